"""`millstream broker`: list brokers, show their backlog, and drain one before it is stopped."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from cyclopts.validators import Number

from millstream.cli.options import CommonOptions, ExitCode, OutputFormat
from millstream.cli.printer import Printer, Value
from millstream.cli.servers.replica_sets import look_at_sets, member_count
from millstream.client.blocking import BlockingClient
from millstream.client.cluster_operations import BrokerStatus, ClusterOperations
from millstream.client.metadata_copier import BrokerMetadataCopier
from millstream.model.errors import NameRefused
from millstream.model.topic import Permission
from millstream.protocol.remoting.administration.broker_report import (
    BrokerReport,
    ColdReport,
    ReplicaProgress,
    SetReport,
)

__all__ = ["describe", "drain", "equip", "list_brokers", "restore", "state_of", "undrain"]

_LOOK_S = 1.0
"""Seconds between two looks at a broker that is drained."""


def list_brokers(*, common: CommonOptions = CommonOptions()) -> int:
    """List the brokers, whether they accept messages, and what waits on them."""
    with BlockingClient(common.nameserver, timeout_s=common.timeout_s) as client:
        cluster = ClusterOperations(client.conversations)
        looks = client.run(cluster.inspect_all(client.run(cluster.list_brokers())))
        sets = look_at_sets(client, looks, None)
    columns = ("cluster", "broker", "id", "address", "version", "state", "waiting_messages", "disk_free_bytes", "set")
    rows = [(*_row(look), member_count(sets.of(look.broker.name))) for look in looks]
    Printer(common.output).listing(columns, rows, empty="No broker is registered.")
    return ExitCode.DONE


def _row(look: BrokerStatus) -> tuple[Value, ...]:
    report, place = look.report, look.broker
    figures = (report.version, report.waiting_messages, report.disk_free_bytes) if report else (None, None, None)
    return (place.cluster, place.name, place.broker_id, place.address, figures[0], state_of(look), *figures[1:])


def state_of(look: BrokerStatus) -> str:
    """One word for how a broker is."""
    if look.report is None:
        return "unknown" if look.failure is None or look.failure.name == "REQUEST_NOT_SUPPORTED" else "unreachable"
    if look.report.failure is not None:
        return "failed"
    if look.report.is_drained:
        return "drained" if look.report.is_empty else "draining"
    return "disk full" if look.report.is_disk_full else "serving"


def describe(name: str, *, common: CommonOptions = CommonOptions()) -> int:
    """Show one broker and what waits on it.

    Parameters
    ----------
    name
        The broker's name.
    """
    with BlockingClient(common.nameserver, timeout_s=common.timeout_s) as client:
        report = client.run(ClusterOperations(client.conversations).report_backlog(name))
    printer = Printer(common.output)
    if printer.format == "table":
        print(_sentence(report))
        rows = [(one.group, one.topic, one.ready, one.in_flight) for one in report.backlog]
        printer.listing(("group", "topic", "ready", "in_flight"), rows, empty="Every group has consumed its messages.")
        return ExitCode.DONE
    waiting = [f"{one.group}:{one.topic}:{one.ready + one.in_flight}" for one in report.backlog]
    values: dict[str, Value | Sequence[Value]] = {
        "broker": report.name, "cluster": report.cluster, "address": report.address, "version": report.version,
        "drained": report.is_drained, "topics": report.topics, "groups": report.groups, "log_bytes": report.log_bytes,
        "disk_free_bytes": report.disk_free_bytes, "failure": report.failure, "sync_flush": report.sync_flush,
        "waiting_messages": report.waiting_messages, "delayed_messages": report.delayed_messages,
        "open_transactions": report.open_transactions, "unread_topics": report.unread_topics, "waiting": waiting,
        **_set_values(report.replica_set), **_cold_values(report.cold),
    }  # fmt: skip
    printer.record(values, sentence="")
    return ExitCode.DONE


def restore(
    *,
    url: Annotated[str, Parameter(name="--from")],
    directory: Annotated[Path, Parameter(name="--dir")],
    broker: str = "",
    endpoint: str = "",
    region: str = "",
    output: Annotated[OutputFormat | None, Parameter(name=["--output", "-o"])] = None,
) -> int:
    """Restore a broker's data directory from its object store after its disk is lost.

    Topics have the messages that were in the store at the last upload, groups are where they stood then, and what is
    sent next comes behind. Users are not in the store. The lost broker must not run any more.

    Parameters
    ----------
    url
        The tiered.url of the broker.
    directory
        Where to make it; there must be no messages yet.
    broker
        The broker's name, where the store has several.
    endpoint
        Its tiered.endpoint.
    region
        Its tiered.region.
    """
    from millstream.server.restoring import restore_broker
    from millstream.tiered.places import ObjectPlace

    objects = ObjectPlace(url, endpoint, region).open()
    try:
        found = restore_broker(objects, directory, broker)
    finally:
        objects.close()
    stood = datetime.fromtimestamp(found.written_ms / 1000, UTC).isoformat(timespec="seconds")
    values: dict[str, Value | Sequence[Value]] = {
        "broker": found.broker, "cluster": found.cluster, "directory": str(directory), "as_of": stood,
        "manifest": found.key,
    }  # fmt: skip
    words = f"{directory} is the broker {found.broker} of {found.cluster} as of {stood}. Start it under that name."
    Printer(output).record(values, sentence=words)
    return ExitCode.DONE


def _set_values(found: SetReport | None) -> dict[str, Value | Sequence[Value]]:
    if found is None:
        return {"epoch": None, "set": [], "replicas": []}
    replicas = [f"{one.broker_id}:{_behind(one)}" for one in found.replicas]
    return {"epoch": found.epoch, "set": found.members, "replicas": replicas}


def _behind(replica: ReplicaProgress) -> str:
    return "-" if replica.behind_bytes is None else str(replica.behind_bytes)


def _sentence(report: BrokerReport) -> str:
    lines = [
        f"broker {report.name} of {report.cluster} at {report.address}, Millstream {report.version}",
        f"  takes messages     {'no, it is drained' if report.is_drained else 'yes'}",
        f"  topics, groups     {report.topics:,}, {report.groups:,}",
        f"  log                {report.log_bytes:,} bytes; {report.disk_free_bytes:,} of the disk are free",
        f"  waiting            {_waiting(report)}",
    ]
    lines += _set_lines(report.replica_set)
    lines += _cold_lines(report.cold)
    if report.unread_topics:
        lines.append(f"  read by no group   {', '.join(report.unread_topics)}")
    if report.failure:
        lines.append(f"  failed             {report.failure}")
    return "\n".join(lines)


def _set_lines(found: SetReport | None) -> list[str]:
    if found is None:
        return []
    members = ", ".join(map(str, found.members))
    lines = [f"  set                {members}; this is replica {found.broker_id}, the master of epoch {found.epoch}"]
    for one in found.replicas:
        behind = "not connected" if one.behind_bytes is None else f"{one.behind_bytes:,} bytes behind"
        place = "" if one.in_set else ", not in the set"
        lines.append(f"  {f'replica {one.broker_id}':<18} {behind}{place}")
    return lines


def _cold_values(found: ColdReport | None) -> dict[str, Value | Sequence[Value]]:
    if found is None:
        return {"cold_objects": None, "cold_bytes": None, "cold_behind_bytes": None, "cold_error": None}
    return {
        "cold_objects": found.objects,
        "cold_bytes": found.bytes,
        "cold_behind_bytes": found.behind_bytes,
        "cold_error": found.last_error or None,
    }


def _cold_lines(found: ColdReport | None) -> list[str]:
    if found is None:
        return []
    words = f"{found.bytes:,} bytes in {found.objects:,} objects; {found.behind_bytes:,} bytes of the log not yet"
    lines = [f"  object store       {words}"]
    if found.damaged:
        lines.append(f"  object store       {found.damaged:,} reads met damaged objects")
    if found.last_error:
        lines.append(f"  object store       {found.last_error}")
    return lines


def _waiting(report: BrokerReport) -> str:
    return (
        f"{report.waiting_messages:,} messages for groups, {report.delayed_messages:,} for their time, "
        f"{report.open_transactions:,} transactions"
    )


def equip(name: str, *, common: CommonOptions = CommonOptions()) -> int:
    """Give a new broker the topics and groups that the other brokers of its cluster have.

    Static topics stay where they are. Topics that it has with other settings are named and left as they are.

    Parameters
    ----------
    name
        The broker's name.
    """
    with BlockingClient(common.nameserver, timeout_s=common.timeout_s) as client:
        outfit = client.run(BrokerMetadataCopier(client.conversations).equip(name))
    if outfit.differing:
        print(f"warning: {name} has {', '.join(outfit.differing)} with other settings.", file=sys.stderr)
    Printer(common.output).record(
        {"broker": name, "topics": outfit.topics, "groups": outfit.groups, "differing": outfit.differing},
        sentence=f"broker {name} was given {len(outfit.topics)} topics and {len(outfit.groups)} groups",
    )
    return ExitCode.DONE


def drain(
    name: str,
    *,
    wait: bool = True,
    wait_s: Annotated[float | None, Parameter(name="--for", validator=Number(gt=0))] = None,
    common: CommonOptions = CommonOptions(),
) -> int:
    """Let a broker accept no new messages, and wait until what it holds is consumed: then it can be stopped.

    That holds over restarts, until millstream broker undrain. Producers go on with the other brokers.

    Parameters
    ----------
    name
        The broker's name.
    wait
        Wait, and say what is left; without it, only begin.
    wait_s
        Seconds to wait at most; default: until it is empty or Ctrl-C.
    """
    with BlockingClient(common.nameserver, timeout_s=common.timeout_s) as client:
        cluster = ClusterOperations(client.conversations)
        _check_another(client, cluster, name)
        client.run(cluster.put_permission(name, Permission.READ))
        report = client.run(cluster.report_backlog(name))
        if wait:
            report = _wait(lambda: client.run(cluster.report_backlog(name)), wait_s)
    is_done = report.is_empty
    _tell_unread(report)
    words = f"broker {name} takes no new messages; {_waiting(report)} wait on it"
    Printer(common.output).record(
        {"broker": name, "drained": True, "empty": is_done, "waiting_messages": report.waiting_messages},
        sentence=f"broker {name} is drained and empty; it can be stopped" if is_done else words,
    )
    if wait and not is_done:
        raise NameRefused("BROKER_NOT_EMPTY", f"After {wait_s:g} s {_waiting(report)} wait on the broker {name}.")
    return ExitCode.DONE


def _check_another(client: BlockingClient, cluster: ClusterOperations, name: str) -> None:
    """Say it aloud where nobody is left who takes messages; an old broker may be the last on purpose."""
    place = client.run(cluster.find_broker(name))
    others = [one for one in client.run(cluster.list_brokers()) if one.cluster == place.cluster and one.name != name]
    looks = client.run(cluster.inspect_all(others))
    if not any(state_of(look) in ("serving", "unknown") for look in looks):
        print(f"warning: no other broker of {place.cluster} takes messages; sends will be refused.", file=sys.stderr)


def _wait(look: Callable[[], BrokerReport], wait_s: float | None) -> BrokerReport:
    """The report when the broker was empty in two looks, or the time was over; says what changes."""
    deadline_s = None if wait_s is None else time.monotonic() + wait_s
    error_text, was_empty = "", False
    while True:
        report = look()
        # A message that was accepted before may become visible only now, so one look is not enough.
        if report.is_empty and was_empty:
            return report
        was_empty = report.is_empty
        words = _waiting(report)
        if words != error_text and not was_empty:
            largest = [f"{one.group} in {one.topic}: {one.ready + one.in_flight:,}" for one in report.backlog[:3]]
            shown = f" ({', '.join(largest)})" if largest else ""
            print(f"waiting: {words}{shown}", file=sys.stderr, flush=True)
            error_text = words
        if deadline_s is not None and time.monotonic() > deadline_s:
            return report
        time.sleep(_LOOK_S)


def _tell_unread(report: BrokerReport) -> None:
    if report.unread_topics:
        print(
            f"warning: no group reads {', '.join(report.unread_topics)}; these messages go with the broker.",
            file=sys.stderr,
        )


def undrain(name: str, *, common: CommonOptions = CommonOptions()) -> int:
    """Let a drained broker accept new messages again.

    Parameters
    ----------
    name
        The broker's name.
    """
    with BlockingClient(common.nameserver, timeout_s=common.timeout_s) as client:
        client.run(ClusterOperations(client.conversations).put_permission(name, Permission.READ | Permission.WRITE))
    Printer(common.output).record({"broker": name, "drained": False}, sentence=f"broker {name} takes messages again")
    return ExitCode.DONE
