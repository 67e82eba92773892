"""Which parts of which queues lie in which objects: state that a broker keeps in its log, changed by events alone.

A stretch of the log goes up in two phases. `StretchBegun` names it before the first object is put, `StretchCommitted`
names all its objects once every one is there; only then do readers see them. A stretch that was begun by a master of
an earlier epoch and not committed is dropped by the next one, whose objects have other keys. An object goes in two
phases as well: `ObjectsRemoved` hides it, `ObjectsDeleted` says later that the store has it no more.

Pure: no clock, no store. The same events in the same order make the same map, at a start, at a replica and after a
change of the master.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec

__all__ = [
    "MAX_STRETCH_OBJECTS",
    "ColdEvent",
    "ColdMap",
    "ColdObject",
    "ColdPart",
    "ColdRange",
    "ObjectsDeleted",
    "ObjectsRemoved",
    "StretchBegun",
    "StretchCommitted",
    "StretchDropped",
    "object_key",
    "stretch_prefix",
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
    """An object that is whole in the store."""

    key: str
    size_bytes: int
    checksum: int
    """CRC-32 of the whole object."""
    parts: tuple[ColdPart, ...]


class StretchBegun(msgspec.Struct, frozen=True, tag="begun"):
    """Objects of the log from `log_begin` to before `log_end` are about to be put below the stretch's prefix."""

    name: str
    epoch: int
    log_begin: int
    log_end: int


class StretchCommitted(msgspec.Struct, frozen=True, tag="committed"):
    """All objects of the stretch are in the store; none where the stretch has nothing that goes up."""

    name: str
    objects: tuple[ColdObject, ...]


class StretchDropped(msgspec.Struct, frozen=True, tag="dropped"):
    """The stretch will not be committed; what was put of it is to be deleted."""

    name: str


class ObjectsRemoved(msgspec.Struct, frozen=True, tag="removed"):
    """Nobody finds these objects any more; who reads one may go on until they are deleted."""

    keys: tuple[str, ...]
    removed_ms: int


class ObjectsDeleted(msgspec.Struct, frozen=True, tag="deleted"):
    """The store has these objects no more."""

    keys: tuple[str, ...]


ColdEvent = StretchBegun | StretchCommitted | StretchDropped | ObjectsRemoved | ObjectsDeleted


@dataclass(frozen=True, slots=True)
class ColdRange:
    """A part of a queue and the object that it lies in."""

    first_queue_offset: int
    next_queue_offset: int
    first_stored_ms: int
    last_stored_ms: int
    key: str


def stretch_prefix(cluster: str, broker: str, log_begin: int, epoch: int, unique: str) -> str:
    """Where the objects of a stretch lie. `unique` differs for each attempt, so no object is ever put twice."""
    return f"ms1/{cluster}/{broker}/log/{log_begin:020}-{epoch:010}-{unique}"


def object_key(name: str, number: int) -> str:
    """The key of an object of a stretch."""
    return f"{name}/{number:05}.msc"


@dataclass(slots=True)
class ColdMap:
    """The state behind all events so far."""

    uploaded_log_offset: int = 0
    """All before it has gone up, as far as it goes up at all: the log may be dropped up to here."""

    begun: dict[str, StretchBegun] = field(default_factory=dict)
    """Stretches that are neither committed nor dropped, by name."""

    removed_ms: dict[str, int] = field(default_factory=dict)
    """Objects that are hidden and not deleted yet, and since when."""

    objects: dict[str, ColdObject] = field(default_factory=dict)
    """Objects that readers find, by key."""

    _queues: dict[tuple[str, int], list[ColdRange]] = field(default_factory=dict)

    def apply(self, event: ColdEvent) -> None:
        """Take over an event. One that does not fit is left out: it was decided on a state that is gone."""
        match event:
            case StretchBegun():
                if event.log_begin == self.uploaded_log_offset and event.log_end > event.log_begin:
                    self.begun[event.name] = event
            case StretchCommitted():
                self._commit(event)
            case StretchDropped():
                self.begun.pop(event.name, None)
            case ObjectsRemoved():
                self._remove(event)
            case ObjectsDeleted():
                for key in event.keys:
                    self.removed_ms.pop(key, None)

    def _commit(self, event: StretchCommitted) -> None:
        stretch = self.begun.pop(event.name, None)
        if stretch is None or stretch.log_begin != self.uploaded_log_offset:
            # Another stretch of the same log was committed first; the objects of this one have no reader.
            return
        self.uploaded_log_offset = stretch.log_end
        for found in event.objects:
            self.objects[found.key] = found
            for part in found.parts:
                self._add(part, found.key)

    def _add(self, part: ColdPart, key: str) -> None:
        ranges = self._queues.setdefault((part.topic, part.queue_id), [])
        first = max(part.first_queue_offset, ranges[-1].next_queue_offset) if ranges else part.first_queue_offset
        if first < part.next_queue_offset:
            ranges.append(ColdRange(first, part.next_queue_offset, part.first_stored_ms, part.last_stored_ms, key))

    def _remove(self, event: ObjectsRemoved) -> None:
        for key in event.keys:
            found = self.objects.pop(key, None)
            if found is None:
                continue
            self.removed_ms[key] = event.removed_ms
            for part in found.parts:
                place = part.topic, part.queue_id
                left = [one for one in self._queues.get(place, ()) if one.key != key]
                if left:
                    self._queues[place] = left
                else:
                    self._queues.pop(place, None)

    def find(self, topic: str, queue_id: int, queue_offset: int) -> ColdRange | None:
        """The range with that message, else the next one behind it; None where none follows."""
        ranges = self._queues.get((topic, queue_id), ())
        number = bisect_right(ranges, queue_offset, key=lambda one: one.next_queue_offset)
        return ranges[number] if number < len(ranges) else None

    def bounds(self, topic: str, queue_id: int) -> tuple[int, int] | None:
        """The first offset that is cold and the one behind the last; None where nothing of the queue is."""
        ranges = self._queues.get((topic, queue_id))
        return (ranges[0].first_queue_offset, ranges[-1].next_queue_offset) if ranges else None

    def ranges(self, topic: str, queue_id: int) -> Sequence[ColdRange]:
        """All ranges of a queue, by offset."""
        return tuple(self._queues.get((topic, queue_id), ()))

    def queues(self) -> Iterator[tuple[str, int]]:
        """The topics and numbers of all queues with something cold."""
        return iter(tuple(self._queues))

    def expired(self, until_ms: Iterable[tuple[str, int]], default_ms: int) -> list[str]:
        """Keys of objects all of whose parts end before their topic's time; `default_ms` for topics not named."""
        limits = dict(until_ms)
        return [
            key
            for key, found in self.objects.items()
            if all(part.last_stored_ms < limits.get(part.topic, default_ms) for part in found.parts)
        ]

    def snapshot(self) -> bytes:
        """The whole state, for `restore`."""
        state = _State(
            self.uploaded_log_offset,
            list(self.begun.values()),
            self.removed_ms,
            list(self.objects.values()),
            [
                (topic, queue_id, [(*_fields(one),) for one in ranges])
                for (topic, queue_id), ranges in self._queues.items()
            ],
        )
        return msgspec.msgpack.encode(state)

    @classmethod
    def restore(cls, snapshot: bytes) -> ColdMap:
        """The map of a snapshot. Raises msgspec.MsgspecError for bytes that are none."""
        state = msgspec.msgpack.decode(snapshot, type=_State)
        found = cls(
            state.uploaded_log_offset,
            {one.name: one for one in state.begun},
            state.removed_ms,
            {one.key: one for one in state.objects},
        )
        for topic, queue_id, ranges in state.queues:
            found._queues[topic, queue_id] = [ColdRange(*one) for one in ranges]
        return found


class _State(msgspec.Struct, array_like=True):
    uploaded_log_offset: int
    begun: list[StretchBegun]
    removed_ms: dict[str, int]
    objects: list[ColdObject]
    queues: list[tuple[str, int, list[tuple[int, int, int, int, str]]]]


def _fields(one: ColdRange) -> tuple[int, int, int, int, str]:
    return one.first_queue_offset, one.next_queue_offset, one.first_stored_ms, one.last_stored_ms, one.key
