"""Finds the job that kills a shared driver, by bisection, and gives it its own driver. Pure: time is passed in.

After `ENDS_BEFORE_SEARCH` ends of the shared driver its jobs are suspects. Half of them move to a second shared
driver; the driver that dies next has the guilty one among its suspects, and these are parted again, until one is left.
That one is *isolated*, and the others come together again.

Jobs that share a query stay together as long as there are other suspects: who leaves a query in the midst of a
micro-batch begins before it, and writes its rows of it again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final

import msgspec

from millstream.job_server.job_record import JobRecord, RecordedEvent

__all__ = ["APART_S", "ENDS_BEFORE_SEARCH", "FORGET_S", "after_driver_end", "clear_suspicion"]

ENDS_BEFORE_SEARCH: Final = 3
"""Ends of a shared driver, each less than `FORGET_S` after the one before, after which its jobs are suspects."""

FORGET_S: Final = 3_600.0
"""Seconds after which an end of a driver does not count any more."""

APART_S: Final = 600.0
"""Seconds of running after which a suspect is none any more."""


def after_driver_end(
    dead: Sequence[JobRecord],
    others: Iterable[JobRecord],
    now_ms: int,
    *,
    has_room: bool,
    queries: Mapping[str, Collection[str]],
) -> dict[str, JobRecord]:
    """The records that change, by name, when a shared driver with the jobs `dead` has died.

    `others` are all other jobs, `queries` has the queries of each that ran by its name. Without room for a second
    shared driver there is no search.
    """
    counted = [_count_end(record, now_ms) for record in dead]
    changed = {record.name: record for record in counted}
    suspects = [record for record in counted if record.is_suspect]
    suspects = suspects or [record for record in counted if record.driver_ends >= ENDS_BEFORE_SEARCH]
    if len(suspects) == 1 and len(dead) == 1 and not suspects[0].is_suspect:
        # It was alone from the beginning: there is nobody to keep it from.
        return changed
    if len(suspects) == 1:
        changed |= {record.name: record for record in clear_suspicion([*counted, *others])}
        guilty = changed[suspects[0].name]
        changed[guilty.name] = _isolate(guilty, now_ms)
    elif suspects and has_room:
        names = {record.name for record in suspects}
        others_suspected = [record for record in others if record.is_suspect]
        changed |= {one.name: msgspec.structs.replace(one, is_suspect=False) for one in others_suspected}
        moved = _half_of([record.name for record in suspects], queries)
        for record in counted:
            is_apart = record.is_apart is not (record.name in moved)
            changed[record.name] = msgspec.structs.replace(record, is_suspect=record.name in names, is_apart=is_apart)
    return changed


def _half_of(names: Sequence[str], queries: Mapping[str, Collection[str]]) -> set[str]:
    """The names that move: half of those that share no query with others, or of the jobs of the only query."""
    together: list[tuple[list[str], set[str]]] = []
    for name in names:
        own = set(queries.get(name, ()))
        joined = [one for one in together if one[1] & own]
        members = [other for one in joined for other in one[0]]
        shared = own.union(*(one[1] for one in joined))
        together = [one for one in together if one not in joined] + [([*members, name], shared)]
    if len(together) == 1:
        return set(names[len(names) // 2 :])
    return {name for members, _ in together[len(together) // 2 :] for name in members}


def clear_suspicion(records: Iterable[JobRecord]) -> list[JobRecord]:
    """Those of the records that were suspects or apart, as they are when nobody is any more."""
    return [
        msgspec.structs.replace(record, is_suspect=False, is_apart=False)
        for record in records
        if record.is_suspect or record.is_apart
    ]


def _count_end(record: JobRecord, now_ms: int) -> JobRecord:
    is_recent = now_ms - record.driver_ended_at_ms < FORGET_S * 1000
    ends = record.driver_ends + 1 if is_recent else 1
    return msgspec.structs.replace(record, driver_ends=ends, driver_ended_at_ms=now_ms)


def _isolate(record: JobRecord, now_ms: int) -> JobRecord:
    since = datetime.fromtimestamp(now_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    words = f"It has a driver of its own since {since}: drivers that it shared ended {record.driver_ends} times."
    isolated = msgspec.structs.replace(record, isolation=words)
    return isolated.note(RecordedEvent(now_ms, "isolated", words))
