"""`millstream acl`: manage users and policies: grant, revoke, list, and check a decision."""

from __future__ import annotations

from enum import Enum
from typing import Annotated

from cyclopts import Parameter

from millstream.broker.access_file import acl_info, entries_of
from millstream.cli.options import CommonOptions, ExitCode
from millstream.cli.printer import Printer
from millstream.client.access import AccessOperations
from millstream.client.blocking import BlockingClient
from millstream.model.errors import AccessRefused
from millstream.protocol.remoting.administration.access import SUBJECT_PREFIX, UserInfo
from millstream.security.guard import decide
from millstream.security.mqtt_pattern import MqttClient
from millstream.security.policy import PolicyEntry, RequiredAccess, parse_actions
from millstream.security.resource import NameMatch, Resource, ResourceKind, ResourcePattern
from millstream.security.users import User, UserKind, new_secret

__all__ = ["ask", "create", "delete", "grant", "list_entries", "list_users", "revoke", "update"]


_From = Annotated[list[str] | None, Parameter(name="--from", negative="")]
_Default = Annotated[bool, Parameter(negative="")]


def grant(
    user: str,
    actions: str,
    resource: str,
    *,
    sources: _From = None,
    deny: Annotated[bool, Parameter(negative="")] = False,
    default: _Default = False,
    common: CommonOptions = CommonOptions(),
) -> int:
    """Let a user do something, or with --deny forbid it. The most specific entry decides; of equal ones the denial.

    Parameters
    ----------
    user
        The user.
    actions
        Pub, Sub, Create, Update, Delete, Get, List or All; several with commas between them.
    resource
        As in Topic:orders, Topic:ord*, Group:*, Cluster:*, or * for everything.
    sources
        An address or network (CIDR) for which this holds; may be given several times. Default: all.
    deny
        Forbid it instead.
    default
        Use this entry only if none of the others matches.
    """
    kind = "Default" if default else "Custom"
    new = PolicyEntry.read(resource, actions.split(","), sources or [], "Deny" if deny else "Allow", kind)
    with BlockingClient(common.nameserver, timeout_s=common.timeout_s) as client:
        access = AccessOperations(client.conversations)
        there = [
            entry
            for entry in entries_of(client.run(access.acl(user)))
            if (entry.kind, entry.pattern) == (new.kind, new.pattern)
        ]
        (policy,) = acl_info(user, _merge_entry(there, new)).policies
        client.run(access.put_entries(user, kind, policy.entries))
    Printer(common.output).record({"user": user, "entry": str(new)}, sentence=f"{user}: {new}")
    return ExitCode.DONE


def revoke(user: str, resource: str, *, default: _Default = False, common: CommonOptions = CommonOptions()) -> int:
    """Take back all that was granted or denied on a resource.

    Parameters
    ----------
    user
        The user.
    resource
        As it was granted; Topic:* means that entry alone, not the ones of single topics.
    default
        Take back the default entries instead.
    """
    pattern = str(ResourcePattern.parse(resource))
    with BlockingClient(common.nameserver, timeout_s=common.timeout_s) as client:
        access = AccessOperations(client.conversations)
        client.run(access.delete_entries(user, "Default" if default else "Custom", pattern))
    Printer(common.output).record(
        {"user": user, "resource": pattern, "revoked": True}, sentence=f"{user}: nothing is said about {pattern} now"
    )
    return ExitCode.DONE


def list_entries(user: str | None = None, *, common: CommonOptions = CommonOptions()) -> int:
    """List the entries, of one user or of all, in the order in which they are used.

    Parameters
    ----------
    user
        The user; default: all.
    """
    with BlockingClient(common.nameserver, timeout_s=common.timeout_s) as client:
        access = AccessOperations(client.conversations)
        acls = client.run(access.acls()) if user is None else [client.run(access.acl(user))]
    rows = [
        (
            (acl.subject or "").removeprefix(SUBJECT_PREFIX),
            entry.kind.value,
            str(entry.pattern),
            ",".join(sorted(action.value for action in entry.actions)),
            entry.decision.value,
            ",".join(entry.sources) or "all",
        )
        for acl in acls
        for entry in entries_of(acl)
    ]
    columns = ("user", "kind", "resource", "actions", "decision", "from")
    Printer(common.output).listing(columns, rows, empty="There are no entries. Add one: millstream acl grant.")
    return ExitCode.DONE


def ask(
    user: str,
    action: str,
    resource: str,
    *,
    source: Annotated[str, Parameter(name="--from")] = "127.0.0.1",
    client_id: str = "",
    common: CommonOptions = CommonOptions(),
) -> int:
    """Say whether a user may do something, and which entry decides; the exit code is 1 if not.

    Parameters
    ----------
    user
        The user.
    action
        One of Pub, Sub, Create, Update, Delete, Get and List.
    resource
        As in Topic:orders; Topic:* checks all topics at once, as a list of them does. Mqtt:line/# checks a filter.
    source
        The address that the user would come from.
    client_id
        The client id of the MQTT session that would ask.
    """
    (asked,) = parse_actions([action])
    wish = RequiredAccess(_resource(resource, MqttClient(user, client_id)), (asked,))
    with BlockingClient(common.nameserver, timeout_s=common.timeout_s) as client:
        access = AccessOperations(client.conversations)
        info = client.run(access.user(user))
        entries = sorted(entries_of(client.run(access.acl(user))), key=lambda entry: entry.rank)
    there = User(user, "", UserKind(info.user_type), info.user_status == "enable")
    verdict = decide(there, entries, wish, source)
    word = "allowed" if verdict.allowed else "refused"
    Printer(common.output).record(
        {"user": user, "action": asked.value, "resource": str(wish.resource), "from": source, "decision": word,
         "because": verdict.reason},
        sentence=f"{word}: {verdict.reason}",
    )  # fmt: skip
    return ExitCode.DONE if verdict.allowed else ExitCode.REFUSED


def _merge_entry(there: list[PolicyEntry], new: PolicyEntry) -> list[PolicyEntry]:
    """The entries with the new one, whose actions join those of an entry that says the same."""
    same = [entry for entry in there if (entry.decision, entry.sources) == (new.decision, new.sources)]
    actions = new.actions.union(*(entry.actions for entry in same))
    others = [entry for entry in there if entry not in same]
    return [*others, PolicyEntry(new.pattern, actions, new.decision, new.sources, new.kind)]


def _resource(text: str, client: MqttClient) -> Resource:
    pattern = ResourcePattern.parse(text)
    if pattern.match is NameMatch.PREFIX or pattern.kind is ResourceKind.ANY:
        raise AccessRefused(
            "ILLEGAL_POLICY", f"{text!r} is not one resource.", remedy="Ask about one, as Topic:orders."
        )
    if pattern.match is NameMatch.ANY:
        return Resource(pattern.kind, None)
    if pattern.kind is ResourceKind.MQTT:
        return Resource.mqtt(pattern.name, client)
    return Resource.topic(pattern.name) if pattern.kind is ResourceKind.TOPIC else Resource(pattern.kind, pattern.name)


class UserKindChoice(Enum):
    """Whether policies hold for a user; case does not matter."""

    NORMAL = "normal"
    SUPER = "super"


class Status(Enum):
    """Whether a user is let in; case does not matter."""

    ENABLED = "enabled"
    DISABLED = "disabled"


_STATUS_WORDS = {Status.ENABLED: "enable", Status.DISABLED: "disable"}


def create(
    name: str,
    *,
    secret: str | None = None,
    kind: UserKindChoice = UserKindChoice.NORMAL,
    common: CommonOptions = CommonOptions(),
) -> int:
    """Create a user. A new one may do nothing, unless it is a super user, who may do everything.

    Parameters
    ----------
    name
        Letters, digits, _ . @ -, at most 64 characters: RocketMQ's access key.
    secret
        8 to 256 printable characters; if left out, one is created and shown once.
    kind
        Whether policies apply.
    """
    chosen = secret or new_secret()
    with BlockingClient(common.nameserver, timeout_s=common.timeout_s) as client:
        client.run(AccessOperations(client.conversations).create_user(UserInfo(name, chosen, kind.name)))
    record: dict[str, str | int | float | bool | None] = {"user": name, "kind": kind.value}
    sentence = f"user {name} is there: {kind.value}"
    if secret is None:
        record["secret"] = chosen
        sentence += f", secret {chosen} (not shown again)"
    Printer(common.output).record(record, sentence=sentence)
    return ExitCode.DONE


def list_users(*, common: CommonOptions = CommonOptions()) -> int:
    """List the users."""
    with BlockingClient(common.nameserver, timeout_s=common.timeout_s) as client:
        users = client.run(AccessOperations(client.conversations).users())
    rows = [(user.username, (user.user_type or "").lower(), f"{user.user_status}d") for user in users]
    Printer(common.output).listing(("user", "kind", "status"), rows, empty="There are no users.")
    return ExitCode.DONE


def update(
    name: str,
    *,
    secret: str | None = None,
    kind: UserKindChoice | None = None,
    status: Status | None = None,
    common: CommonOptions = CommonOptions(),
) -> int:
    """Change a user's secret, kind or status; it holds from the next request on.

    Parameters
    ----------
    name
        The user.
    secret
        The new secret.
    kind
        Whether policies apply.
    status
        Whether the user may log in.
    """
    change = UserInfo(name, secret, kind.name if kind else None, _STATUS_WORDS[status] if status else None)
    with BlockingClient(common.nameserver, timeout_s=common.timeout_s) as client:
        client.run(AccessOperations(client.conversations).update_user(change))
    Printer(common.output).record({"user": name, "changed": True}, sentence=f"user {name} is changed")
    return ExitCode.DONE


def delete(name: str, *, common: CommonOptions = CommonOptions()) -> int:
    """Delete a user with all policies."""
    with BlockingClient(common.nameserver, timeout_s=common.timeout_s) as client:
        client.run(AccessOperations(client.conversations).delete_user(name))
    Printer(common.output).record({"user": name, "deleted": True}, sentence=f"user {name} is deleted")
    return ExitCode.DONE
