"""`millstream tiered`: show, verify and garbage-collect a broker's objects in an object store."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated

from cyclopts import Parameter
from cyclopts.validators import Number

from millstream.cli.options import CommonOptions, ExitCode
from millstream.cli.printer import Printer, Value
from millstream.client.blocking import BlockingClient
from millstream.client.cluster_operations import ClusterOperations
from millstream.protocol.remoting.administration.cold_checks import (
    ColdProblem,
    ColdStatus,
    ColumnStatus,
    Orphan,
    OrphanQuery,
    VerificationQuery,
)

__all__ = ["copy_words", "gc", "status", "verify"]


def status(name: str, *, common: CommonOptions = CommonOptions()) -> int:
    """Show what of each queue of a broker is in the object store.

    Parameters
    ----------
    name
        The broker's name.
    """
    with BlockingClient(common.nameserver, timeout_s=common.timeout_s) as client:
        found = client.run(ClusterOperations(client.conversations).cold_status(name))
    columns = ("topic", "queue", "objects", "messages", "bytes", "first_offset", "last_offset", "behind_messages")
    rows = [
        (
            one.topic,
            one.queue_id,
            one.objects,
            one.messages,
            one.bytes,
            one.first_offset,
            one.last_offset,
            one.behind_messages,
        )
        for one in found.queues
    ]
    printer = Printer(common.output)
    printer.listing(columns, rows, empty="Nothing is in the object store yet.")
    if printer.format == "table":
        print(_summary(found))
    fails = found.last_error or any(copy.problem for copy in found.copies)
    return ExitCode.REFUSED if fails else ExitCode.DONE


def _summary(found: ColdStatus) -> str:
    lines = [f"{found.objects:,} objects; {found.behind_bytes:,} bytes of the log are not there yet."]
    if found.left_out:
        lines.append(f"{found.left_out:,} more queues are not shown.")
    if found.last_error:
        lines.append(f"The object store failed last with: {found.last_error}")
    lines += [f"Copy of {copy.topic}: {copy_words(copy)}" for copy in found.copies]
    return "\n".join(lines)


def copy_words(copy: ColumnStatus) -> str:
    """What a broker has of the copy of a topic, and what is amiss."""
    words = f"{copy.rows:,} rows in {copy.files:,} Parquet files, {copy.bytes:,} bytes"
    words += ", in a table" if copy.is_table else ""
    if copy.malformed:
        words += f"; {copy.malformed:,} rows have bodies that do not fit the columns"
    if copy.lost:
        words += f"; {copy.lost:,} messages are damaged and in no row"
    return f"{words}. {copy.problem}" if copy.problem else f"{words}."


def verify(
    name: str,
    *,
    sample: Annotated[int, Parameter(validator=Number(gte=0))] = 0,
    common: CommonOptions = CommonOptions(),
) -> int:
    """Have a broker read its objects and check every byte of them against its rows.

    Of copies as tables it checks whether the Parquet files that a table names are there, and how long they are. The
    exit code is 1 where an object is damaged or missing.

    Parameters
    ----------
    name
        The broker's name.
    sample
        About so many objects, spread evenly, instead of all.
    """
    problems: list[ColdProblem] = []
    objects = size_bytes = 0
    with BlockingClient(common.nameserver, timeout_s=common.timeout_s) as client:
        cluster = ClusterOperations(client.conversations)
        place = client.run(cluster.find_broker(name))
        status = client.run(cluster.cold_status(name))
        there = status.objects + sum(copy.files for copy in status.copies)
        step = max(1, there // sample) if sample else 1
        after, is_first = "", True
        while after or is_first:
            is_first = False
            found = client.run(cluster.verify_cold(place, VerificationQuery(after, step)))
            objects, size_bytes, after = objects + found.objects, size_bytes + found.bytes, found.after
            problems += found.problems
    rows = [(one.key, ", ".join(one.topics), one.problem) for one in problems]
    empty = f"{objects:,} of {there:,} objects, {size_bytes:,} bytes, are as their rows say."
    Printer(common.output).listing(("object", "topics", "problem"), rows, empty=empty)
    return ExitCode.REFUSED if problems else ExitCode.DONE


def gc(
    name: str,
    *,
    dry_run: Annotated[bool, Parameter(negative="")] = False,
    common: CommonOptions = CommonOptions(),
) -> int:
    """Delete objects of a broker that belong to no message, and that are older than 24 hours.

    Such are left where an upload was cut off and the row that told of it was lost, as by a restore. Parquet files of
    copies go where no snapshot of their table names them either.

    Parameters
    ----------
    name
        The broker's name.
    dry_run
        Only show them.
    """
    orphans: list[Orphan] = []
    with BlockingClient(common.nameserver, timeout_s=common.timeout_s) as client:
        cluster = ClusterOperations(client.conversations)
        place = client.run(cluster.find_broker(name))
        after, is_first = "", True
        while after or is_first:
            is_first = False
            found = client.run(cluster.collect_orphans(place, OrphanQuery(after, deletes=not dry_run)))
            orphans, after = [*orphans, *found.orphans], found.after
    rows: Sequence[Sequence[Value]] = [
        (one.key, one.bytes, _time_of(one.modified_ms), "found" if dry_run else "deleted") for one in orphans
    ]
    empty = "No object older than 24 hours is without a row."
    Printer(common.output).listing(("object", "bytes", "stored", "state"), rows, empty=empty)
    return ExitCode.DONE


def _time_of(modified_ms: int) -> str:
    return datetime.fromtimestamp(modified_ms / 1000, UTC).isoformat(timespec="seconds")
