"""`millstream acl user`: create, list, change and delete users."""

from __future__ import annotations

from enum import Enum

from millstream.cli.options import CommonOptions, ExitCode
from millstream.cli.printer import Printer
from millstream.client.access import AccessOperations
from millstream.client.blocking import BlockingClient
from millstream.protocol.remoting.administration.access import UserInfo
from millstream.security.user import new_secret

__all__ = ["create", "delete", "list_users", "update"]


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
