"""Which parts of which queues lie in which objects: rows of a broker's state, and how they are found by queue offset.

A row is a stretch of the log. It goes up in two phases: a row without objects names the stretch before the first of
them is put, and a row with all of them follows once every one is there; only then do readers see them. A stretch that
a master began and did not commit is dropped by the next one, whose objects have other keys. An object goes in two
phases as well: it is marked as removed, which hides it, and leaves the row when the store has it no more.

A row of merged objects names the rows that it replaces, so that one change hides all of them and shows theirs.

The rows are changes in the log of the broker, so a start, a replica and a new master make the same map of them. `apply`
takes up a whole row in one turn; of a row with parts of ten thousand queues that replaces others, `prepare` does most
of the work before, in steps, and changes nothing that anybody sees.

Pure: no clock, no store. One thread changes the map, others find what they look for meanwhile.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Container, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Final

import msgspec

__all__ = [
    "MAX_STRETCH_OBJECTS",
    "STEP_PARTS",
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

STEP_PARTS: Final = 1000
"""Parts of objects after which a step of `prepare` ends: one to three milliseconds of work."""


class ColdPart(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What an object has of one queue: messages from one offset to before another, and their store timestamps."""

    topic: str
    queue_id: int
    first_queue_offset: int
    next_queue_offset: int
    first_stored_ms: int
    last_stored_ms: int


class ColdObject(msgspec.Struct, frozen=True, array_like=True, gc=False):
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


class ColdRange(msgspec.Struct, frozen=True, gc=False):
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
_key: Final = attrgetter("key")

_Queues = dict[str, dict[int, list[ColdRange]]]
"""Ranges by topic and number of the queue, in the order of their offsets."""


@dataclass(slots=True)
class _Change:
    """What readers are to find, and what no more."""

    goes: dict[str, tuple[ColdPart, ...]] = field(default_factory=dict)
    """By key, of objects that go."""
    drops: list[tuple[str, ColdPart]] = field(default_factory=list)
    """Parts that go of objects that stay, with the keys."""
    comes: list[ColdObject] = field(default_factory=list)


class _Exchange(msgspec.Struct, frozen=True, gc=False):
    """The ranges of a queue once others came into it and some went."""

    topic: str
    queue_id: int
    new: list[ColdRange]
    before: list[ColdRange] | None
    """What it was made of: this list, as long as it was."""
    length: int
    after: list[ColdRange]
    gone: int


@dataclass(slots=True)
class ColdMap:
    """All rows by name, and the ranges of each queue that they make. `apply` is the only change."""

    rows: dict[str, ColdStretch] = field(default_factory=dict)
    uploaded_log_offset: int = 0
    """All of the log before it has gone up, as far as it goes up at all, and readers find it; 0 where nothing has."""
    _queues: _Queues = field(default_factory=dict)
    """Threads read it: a list only grows at its end, and for any other change a new one comes into its place."""
    _row_names: dict[str, str] = field(default_factory=dict)
    """Of each object that readers find the row that has it now."""
    _replaced: set[str] = field(default_factory=set)
    """Rows by which readers find nothing, since others have their messages."""
    _ready: tuple[_Change, list[_Exchange]] | None = None
    """What was prepared, and what comes of it."""
    _spent: list[_Exchange] = field(default_factory=list)
    """What was prepared and taken up, with the ranges that nobody finds any more."""

    def prepare(self, name: str, row: ColdStretch) -> Generator[None, None, None]:
        """Do most of what `apply` of this row has to do, in steps that are short. Readers see nothing of it.

        The map may change between the steps and until then: what no longer fits is done anew.
        """
        # Who asks has had a look at the parts of all rows in this turn.
        yield
        change, exchanges = self._compare(name, row), []
        for number, exchange in enumerate(self._exchanges(change), 1):
            exchanges.append(exchange)
            if not number % STEP_PARTS:
                yield
        self._ready = change, exchanges

    def give_back(self) -> Generator[None, None, None]:
        """Give back the memory of what a prepared row replaced, in steps: some 20 ms for 200,000 ranges."""
        spent, self._spent = self._spent, []
        while spent:
            del spent[-STEP_PARTS:]
            yield

    def apply(self, name: str, row: ColdStretch | None) -> None:
        """Put the row of that name in the place of the one there was; None: there is none any more."""
        before, change = self.rows.get(name), self._compare(name, row)
        self._swap(change)
        for key in change.goes:
            self._row_names.pop(key, None)
        if row is None:
            self._ready = None
            self.rows.pop(name, None)
            self._replaced.discard(name)
        else:
            if name not in self._replaced:
                self._row_names.update((one.key, name) for one in row.objects or ())
            # Threads look at what is hidden first: they may find a message by both rows, and never by none.
            self.rows[name] = row
            if row.objects is not None:
                self._replaced.update(row.replaces)
        # At the end: the disk lets go of what this says.
        if row is not None and row.objects is not None and row.log_end >= self.uploaded_log_offset:
            self.uploaded_log_offset = row.log_end
        elif before is not None and before.log_end == self.uploaded_log_offset:
            ends = (one.log_end for one in self.rows.values() if one.objects is not None)
            self.uploaded_log_offset = max(ends, default=0)

    def _compare(self, name: str, row: ColdStretch | None) -> _Change:
        """What changes with that row."""
        gone = [name]
        if row is not None and row.objects is not None:
            gone += row.replaces
        change = _Change()
        for one_name in gone:
            if one_name in self.rows and one_name not in self._replaced:
                change.goes.update((one.key, one.parts) for one in self.rows[one_name].objects or ())
        for one in (row.objects or ()) if row is not None and name not in self._replaced else ():
            before = change.goes.get(one.key)
            left_out = None if before is None else _left_out(before, one.parts)
            if left_out is None:
                change.comes.append(one)
            else:
                change.drops += [(one.key, part) for part in left_out]
                del change.goes[one.key]
        return change

    def _swap(self, change: _Change) -> None:
        """Have readers find what comes in place of what goes, for each queue at once."""
        if change.goes and change.comes:
            ready, self._ready = self._ready, None
            if ready is not None and ready[0].goes == change.goes and ready[0].comes == change.comes:
                self._spent = ready[1]
                self._exchange(change, self._spent)
            else:
                self._exchange(change, self._exchanges(change))
        elif change.goes:
            change.drops += [(key, part) for key, parts in change.goes.items() for part in parts]
        else:
            for found in change.comes:
                for part in found.parts:
                    self._add(part.topic, part.queue_id, _range_of(part, found))
        for key, part in change.drops:
            self._drop(key, part)

    def _exchanges(self, change: _Change) -> Iterator[_Exchange]:
        """Of each queue that something comes into, once that is known of all."""
        added: _Queues = {}
        for found in change.comes:
            for part in found.parts:
                added.setdefault(part.topic, {}).setdefault(part.queue_id, []).append(_range_of(part, found))
        goes = {*change.goes}
        for topic, queues in added.items():
            for queue_id, new in queues.items():
                yield self._make_exchange(topic, queue_id, new, goes)

    def _make_exchange(self, topic: str, queue_id: int, new: list[ColdRange], goes: set[str]) -> _Exchange:
        ranges = self._queues.get(topic, {}).get(queue_id)
        before = ranges or []
        after, gone = _replace(before, sorted(new, key=_first) if len(new) > 1 else new, goes)
        return _Exchange(topic, queue_id, new, ranges, len(before), after, gone)

    def _exchange(self, change: _Change, exchanges: Iterable[_Exchange]) -> None:
        left, goes = sum(map(len, change.goes.values())), {*change.goes}
        for one in exchanges:
            queues = self._queues.setdefault(one.topic, {})
            ranges = queues.get(one.queue_id)
            if ranges is not one.before or len(ranges or ()) != one.length:
                one = self._make_exchange(one.topic, one.queue_id, one.new, goes)
            queues[one.queue_id] = one.after
            left -= one.gone
        if left:
            # Of some queues, or of some of their ranges, something goes in whose place nothing comes.
            come = {(one.key, part) for one in change.comes if one.key in goes for part in one.parts}
            go = ((key, part) for key, parts in change.goes.items() for part in parts)
            change.drops += [one for one in go if one not in come]

    def _add(self, topic: str, queue_id: int, new: ColdRange) -> None:
        queues = self._queues.get(topic)
        if queues is None:
            queues = self._queues[topic] = {}
        ranges = queues.get(queue_id)
        if ranges is None:
            queues[queue_id] = [new]
        elif ranges[-1].next_queue_offset <= new.first_queue_offset:
            ranges.append(new)
        else:
            queues[queue_id] = sorted([*ranges, new], key=_first)

    def _drop(self, key: str, part: ColdPart) -> None:
        ranges, first = self._ranges(part.topic, part.queue_id), part.first_queue_offset
        number = bisect_left(ranges, first, key=_first) if ranges and ranges[0].first_queue_offset < first else 0
        while number < len(ranges) and ranges[number].first_queue_offset == first:
            if ranges[number].key == key and ranges[number].next_queue_offset == part.next_queue_offset:
                left = [*ranges[:number], *ranges[number + 1 :]]
                if left:
                    self._queues[part.topic][part.queue_id] = left
                    return
                del self._queues[part.topic][part.queue_id]
                if not self._queues[part.topic]:
                    del self._queues[part.topic]
                return
            number += 1

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
        hidden = {*self._replaced}
        rows = [row for name, row in list(self.rows.items()) if name not in hidden]
        return [one for row in rows if row.log_begin <= log_offset < row.log_end for one in row.objects or ()]

    def _ranges(self, topic: str, queue_id: int) -> Sequence[ColdRange]:
        queues = self._queues.get(topic)
        return () if queues is None else queues.get(queue_id, ())

    def find(self, topic: str, queue_id: int, queue_offset: int) -> ColdRange | None:
        """The range with that message, else the next one behind it; None where none follows."""
        ranges = self._ranges(topic, queue_id)
        number = bisect_right(ranges, queue_offset, key=_next)
        return ranges[number] if number < len(ranges) else None

    def bounds(self, topic: str, queue_id: int) -> tuple[int, int] | None:
        """The first offset that is cold and the one behind the last; None where nothing of the queue is."""
        ranges = self._ranges(topic, queue_id)
        return (ranges[0].first_queue_offset, ranges[-1].next_queue_offset) if ranges else None

    def ranges(self, topic: str, queue_id: int) -> Sequence[ColdRange]:
        """All ranges of a queue, by offset."""
        return tuple(self._ranges(topic, queue_id))

    def ranges_between(self, topic: str, queue_id: int, begin: int, end: int, max_count: int) -> Sequence[ColdRange]:
        """At most `max_count` ranges with messages from `begin` to before `end`, by offset."""
        ranges = self._ranges(topic, queue_id)
        number = bisect_right(ranges, begin, key=_next)
        behind = bisect_left(ranges, end, lo=number, key=_first) if begin < end else number
        return tuple(ranges[number : min(behind, number + max_count)])

    def rows_from(self, topic: str, log_begin: int) -> list[tuple[str, ColdStretch]]:
        """The rows from that log offset on that have something of a topic, with their names, in the order of the log.

        Looks at no others: offsets of a queue ascend with the log.
        """
        names: set[str] = set()
        for ranges in self._queues.get(topic, {}).values():
            for one in reversed(ranges):
                name = self._row_names[one.key]
                if self.rows[name].log_begin < log_begin:
                    break
                names.add(name)
        return sorted(((name, self.rows[name]) for name in names), key=lambda pair: pair[1].log_begin)

    def rows_with(self, topic: str) -> list[tuple[str, ColdStretch]]:
        """All rows that name something of a topic, those that others replaced included, with their names."""
        hidden = [
            (name, self.rows[name])
            for name in self.find_unreleased()
            if any(part.topic == topic for one in self.rows[name].objects or () for part in one.parts)
        ]
        return [*self.rows_from(topic, 0), *hidden]

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
        return [(topic, queue_id) for topic, queues in list(self._queues.items()) for queue_id in list(queues)]

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


def _left_out(before: tuple[ColdPart, ...], after: tuple[ColdPart, ...]) -> list[ColdPart] | None:
    """The parts that are before and not after; None where there are others after."""
    if before == after:
        return []
    left_out, rest = [], iter(after)
    following = next(rest, None)
    for part in before:
        if part is following or part == following:
            following = next(rest, None)
        else:
            left_out.append(part)
    return left_out if following is None else None


def _replace(ranges: list[ColdRange], new: list[ColdRange], goes: set[str]) -> tuple[list[ColdRange], int]:
    """The ranges of a queue with new ones in place of those of objects that go, and how many go."""
    # After a merge: what comes covers what goes, so a place in the list tells of both.
    first = bisect_left(ranges, new[0].first_queue_offset, key=_first)
    behind = bisect_left(ranges, new[-1].next_queue_offset, lo=first, key=_first)
    if goes.issuperset(map(_key, ranges[first:behind])):
        return [*ranges[:first], *new, *ranges[behind:]], behind - first
    left = [one for one in ranges if one.key not in goes]
    return sorted([*left, *new], key=_first), len(ranges) - len(left)
