"""Which parts of which queues lie in which objects: rows of a broker's state, and how they are found by queue offset.

A row is a stretch of the log. It goes up in two phases: a row without objects names the stretch before the first of
them is put, and a row with all of them follows once every one is there; only then do readers see them. A stretch that
a master began and did not commit is dropped by the next one, whose objects have other keys. An object goes in two
phases as well: it is marked as removed, which hides it, and leaves the row when the store has it no more.

A row of merged objects names the rows that it replaces, so that one change hides all of them and shows theirs.

Pure: no clock, no store, no threads. The rows are changes in the log of the broker, so a start, a replica and a new
master make the same map of them.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Final

import msgspec

__all__ = [
    "MAX_STRETCH_OBJECTS",
    "ColdMap",
    "ColdObject",
    "ColdPart",
    "ColdRange",
    "ColdStretch",
    "broker_prefix",
    "commit_stretch",
    "drop_topic",
    "forget_objects",
    "manifest_prefix",
    "object_key",
    "release_objects",
    "remove_objects",
    "stretch_name",
]

MAX_STRETCH_OBJECTS: Final = 10_000
"""Objects of one stretch at most."""


class ColdPart(msgspec.Struct, frozen=True, array_like=True):
    """What an object has of one queue: messages from one offset to before another, and their store timestamps."""

    topic: str
    queue_id: int
    first_queue_offset: int
    next_queue_offset: int
    first_stored_ms: int
    last_stored_ms: int


class ColdObject(msgspec.Struct, frozen=True, array_like=True):
    """An object that is whole in the store. `checksum` is the CRC-32 of all its bytes."""

    key: str
    size_bytes: int
    checksum: int
    parts: tuple[ColdPart, ...]


class ColdStretch(msgspec.Struct, frozen=True):
    """A row: the log from `log_begin` to before `log_end`, as a master of that epoch put it into objects."""

    epoch: int
    log_begin: int
    log_end: int
    objects: tuple[ColdObject, ...] | None = None
    """None before all are in the store; () where the stretch has nothing that goes up, or nothing is left of it."""
    removed_ms: dict[str, int] = msgspec.field(default_factory=dict)
    """Keys of objects that nobody finds any more and that are to be deleted, and since when."""
    generation: int = 0
    """How often its messages were merged."""
    replaces: tuple[str, ...] = ()
    """Rows whose messages it has since it was committed: readers find nothing by these any more."""


@dataclass(frozen=True, slots=True)
class ColdRange:
    """A part of a queue and the object that it lies in."""

    first_queue_offset: int
    next_queue_offset: int
    first_stored_ms: int
    last_stored_ms: int
    key: str
    size_bytes: int
    """Of the object."""


def broker_prefix(cluster: str, broker: str) -> str:
    """What the keys of all objects of a broker begin with."""
    return f"ms1/{cluster}/{broker}/"


def manifest_prefix(prefix: str) -> str:
    """What the keys of the manifests of a broker with that prefix begin with."""
    return f"{prefix}manifest/"


def stretch_name(cluster: str, broker: str, log_begin: int, epoch: int, unique: str) -> str:
    """The name of a row, below which its objects lie. `unique` differs for each attempt: no key is ever put twice."""
    return f"{broker_prefix(cluster, broker)}log/{log_begin:020}-{epoch:010}-{unique}"


def object_key(name: str, number: int) -> str:
    """The key of an object of a stretch."""
    return f"{name}/{number:05}.msc"


def commit_stretch(row: ColdStretch, objects: Iterable[ColdObject]) -> ColdStretch:
    """The row once all objects are in the store."""
    return msgspec.structs.replace(row, objects=tuple(objects))


def remove_objects(row: ColdStretch, keys: Iterable[str], now_ms: int) -> ColdStretch:
    """The row without these objects, which are to be deleted later."""
    gone = {*keys}
    left = tuple(one for one in row.objects or () if one.key not in gone)
    removed = {one.key: now_ms for one in row.objects or () if one.key in gone}
    return msgspec.structs.replace(row, objects=left, removed_ms={**row.removed_ms, **removed})


def release_objects(row: ColdStretch, kept: Container[str], now_ms: int) -> ColdStretch:
    """The row once another one replaces it, which goes on with the objects in `kept`; the others are to be deleted."""
    removed = {one.key: now_ms for one in row.objects or () if one.key not in kept}
    return msgspec.structs.replace(row, objects=(), removed_ms={**row.removed_ms, **removed})


def drop_topic(row: ColdStretch, topic: str, now_ms: int) -> ColdStretch:
    """The row without the parts of a topic that was deleted; objects with nothing else are to be deleted later."""
    left: list[ColdObject] = []
    removed: dict[str, int] = {}
    for one in row.objects or ():
        parts = tuple(part for part in one.parts if part.topic != topic)
        if not parts:
            removed[one.key] = now_ms
        else:
            left.append(one if len(parts) == len(one.parts) else msgspec.structs.replace(one, parts=parts))
    return msgspec.structs.replace(row, objects=tuple(left), removed_ms={**row.removed_ms, **removed})


def forget_objects(row: ColdStretch, keys: Iterable[str]) -> ColdStretch:
    """The row once the store has these removed objects no more."""
    gone = {*keys}
    left = {key: removed_ms for key, removed_ms in row.removed_ms.items() if key not in gone}
    return msgspec.structs.replace(row, removed_ms=left)


_first: Final = attrgetter("first_queue_offset")
_next: Final = attrgetter("next_queue_offset")


@dataclass(slots=True)
class ColdMap:
    """All rows by name, and the ranges of each queue that they make. `apply` is the only change."""

    rows: dict[str, ColdStretch] = field(default_factory=dict)
    _queues: dict[tuple[str, int], list[ColdRange]] = field(default_factory=dict)
    _queue_ids: dict[str, set[int]] = field(default_factory=dict)
    """By topic the queues that have something cold, or had."""
    _row_names: dict[str, str] = field(default_factory=dict)
    """Of each object that readers find the row that has it now."""
    _replaced: set[str] = field(default_factory=set)
    """Rows by which readers find nothing, since others have their messages."""

    def apply(self, name: str, row: ColdStretch | None) -> None:
        """Put the row of that name in the place of the one there was; None: there is none any more."""
        before = self.rows.pop(name, None)
        gone = [] if before is None or name in self._replaced else [before]
        if row is None:
            self._replaced.discard(name)
            self._swap(name, gone, None)
            return
        self.rows[name] = row
        if row.objects is not None:
            for other in row.replaces:
                if other not in self._replaced:
                    self._replaced.add(other)
                    gone += [self.rows[other]] if other in self.rows else []
        self._swap(name, gone, None if name in self._replaced else row)

    def _swap(self, name: str, gone: Sequence[ColdStretch], row: ColdStretch | None) -> None:
        """Have readers find what the row says in place of what these did, for each queue at once: threads read, too."""
        keys = {one.key for one_row in gone for one in one_row.objects or ()}
        changed: dict[tuple[str, int], int] = {}
        for one_row in gone:
            for one in one_row.objects or ():
                for part in one.parts:
                    place = part.topic, part.queue_id
                    changed[place] = changed.get(place, 0) + 1
        for key in keys:
            self._row_names.pop(key, None)
        added: dict[tuple[str, int], list[ColdRange]] = {}
        for found in (row.objects or ()) if row is not None else ():
            self._row_names[found.key] = name
            for part in found.parts:
                added.setdefault((part.topic, part.queue_id), []).append(_range_of(part, found))
                self._queue_ids.setdefault(part.topic, set()).add(part.queue_id)
        for place, count in changed.items():
            left = _exchange(self._queues.get(place, []), keys, count, added.pop(place, []))
            if left:
                self._queues[place] = left
            else:
                self._queues.pop(place, None)
        for place, ranges in added.items():
            for new in ranges:
                insort(self._queues.setdefault(place, []), new, key=_first)

    @property
    def uploaded_log_offset(self) -> int:
        """All of the log before it has gone up, as far as it goes up at all; 0 where nothing has."""
        return max((row.log_end for row in self.rows.values() if row.objects is not None), default=0)

    @property
    def begun(self) -> dict[str, ColdStretch]:
        """The rows that are not committed."""
        return {name: row for name, row in self.rows.items() if row.objects is None}

    @property
    def objects(self) -> Iterator[tuple[str, ColdObject]]:
        """All objects that readers find, each with the name of its row."""
        return (
            (name, one) for name, row in self.rows.items() if name not in self._replaced for one in row.objects or ()
        )

    def objects_at(self, log_offset: int) -> list[ColdObject]:
        """The objects in one of which a record is that began at an offset of the log, if it went up at all."""
        rows = [row for name, row in list(self.rows.items()) if name not in self._replaced]
        return [one for row in rows if row.log_begin <= log_offset < row.log_end for one in row.objects or ()]

    def find(self, topic: str, queue_id: int, queue_offset: int) -> ColdRange | None:
        """The range with that message, else the next one behind it; None where none follows."""
        ranges = self._queues.get((topic, queue_id), ())
        number = bisect_right(ranges, queue_offset, key=_next)
        return ranges[number] if number < len(ranges) else None

    def bounds(self, topic: str, queue_id: int) -> tuple[int, int] | None:
        """The first offset that is cold and the one behind the last; None where nothing of the queue is."""
        ranges = self._queues.get((topic, queue_id))
        return (ranges[0].first_queue_offset, ranges[-1].next_queue_offset) if ranges else None

    def ranges(self, topic: str, queue_id: int) -> Sequence[ColdRange]:
        """All ranges of a queue, by offset."""
        return tuple(self._queues.get((topic, queue_id), ()))

    def ranges_between(self, topic: str, queue_id: int, begin: int, end: int, max_count: int) -> Sequence[ColdRange]:
        """At most `max_count` ranges with messages from `begin` to before `end`, by offset."""
        ranges = self._queues.get((topic, queue_id), ())
        number = bisect_right(ranges, begin, key=_next)
        behind = bisect_left(ranges, end, lo=number, key=_first) if begin < end else number
        return tuple(ranges[number : min(behind, number + max_count)])

    def rows_from(self, topic: str, log_begin: int) -> list[tuple[str, ColdStretch]]:
        """The rows from that log offset on that have something of a topic, with their names, in the order of the log.

        Looks at no others: offsets of a queue ascend with the log.
        """
        names: set[str] = set()
        for queue_id in self._queue_ids.get(topic, ()):
            for one in reversed(self._queues.get((topic, queue_id), ())):
                name = self._row_names[one.key]
                if self.rows[name].log_begin < log_begin:
                    break
                names.add(name)
        return sorted(((name, self.rows[name]) for name in names), key=lambda pair: pair[1].log_begin)

    def stretches(self) -> list[tuple[str, ColdStretch]]:
        """The rows by which readers find something, with their names, in the order of the log."""
        found = [(name, row) for name, row in self.rows.items() if row.objects and name not in self._replaced]
        return sorted(found, key=lambda pair: pair[1].log_begin)

    def is_replaced(self, name: str) -> bool:
        """Whether another row has the messages of that row."""
        return name in self._replaced

    def find_unreleased(self) -> dict[str, list[str]]:
        """The rows that others replaced and that still name objects, with those of them that the others go on with."""
        return {
            name: [one.key for one in self.rows[name].objects or () if one.key in self._row_names]
            for name in self._replaced
            if name in self.rows and self.rows[name].objects
        }

    def queues(self) -> list[tuple[str, int]]:
        """The topics and numbers of all queues with something cold."""
        return list(self._queues)

    def find_expired(self, before_ms: Mapping[str, int], default_ms: int) -> dict[str, list[str]]:
        """By row the keys of objects all of whose parts were stored before their topic's time, else `default_ms`."""
        found: dict[str, list[str]] = {}
        for name, one in self.objects:
            if all(part.last_stored_ms < before_ms.get(part.topic, default_ms) for part in one.parts):
                found.setdefault(name, []).append(one.key)
        return found

    def empty_rows(self) -> list[str]:
        """Rows that say nothing any more: nothing is left of them, and a later one says how far the log has gone up."""
        uploaded = self.uploaded_log_offset
        return [
            name
            for name, row in self.rows.items()
            if row.objects == ()
            and not row.removed_ms
            and row.log_end < uploaded
            and not any(other in self.rows for other in row.replaces)
        ]


def _range_of(part: ColdPart, found: ColdObject) -> ColdRange:
    return ColdRange(
        part.first_queue_offset,
        part.next_queue_offset,
        part.first_stored_ms,
        part.last_stored_ms,
        found.key,
        found.size_bytes,
    )


def _exchange(ranges: list[ColdRange], gone: set[str], count: int, added: list[ColdRange]) -> list[ColdRange]:
    """The ranges of a queue without the `count` of those objects, with others."""
    if len(added) == 1:
        # After a merge: what comes covers what goes, so a place in the list tells of both.
        first = bisect_left(ranges, added[0].first_queue_offset, key=_first)
        behind = bisect_left(ranges, added[0].next_queue_offset, lo=first, key=_first)
        if behind - first == count and all(one.key in gone for one in ranges[first:behind]):
            return [*ranges[:first], added[0], *ranges[behind:]]
    left = [one for one in ranges if one.key not in gone]
    return sorted([*left, *added], key=_first)
