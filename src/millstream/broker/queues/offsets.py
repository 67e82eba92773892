"""How far each group is in each queue: offsets that readers commit, and the ledgers of groups that pop.

Both are one document, in which each queue is as of one moment. What happened after the last save is delivered again,
never lost.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from threading import Lock
from typing import NamedTuple

import msgspec

from millstream.broker.document import Document, SavedDocument, encode_document
from millstream.broker.queues.fifo import FifoLedger
from millstream.broker.queues.ledger import MAX_IN_FLIGHT, Delivery, Ledger
from millstream.broker.queues.retry_lines import is_of, stored_topic
from millstream.model.errors import StoreError
from millstream.model.lite import LITE_PREFIX
from millstream.store.snapshot import Snapshot

__all__ = ["MAX_ENCODED_A_TURN", "EncodedOffsets", "GroupPosition", "OffsetTable", "QueueKey"]

_log = logging.getLogger(__name__)

QueueKey = tuple[str, str, int]
"""Group, topic and queue."""

MAX_ENCODED_A_TURN = 512
"""Queues and deliveries that are encoded before others get their turn; one queue is never parted."""

_VERSION = 1


class _LedgerDocument(msgspec.Struct, omit_defaults=True, gc=False):
    cursor: int
    fifo: bool = False
    in_flight: list[Delivery] = []
    floor_ms: int = 0


class _QueueDocument(msgspec.Struct, omit_defaults=True, gc=False):
    committed: int
    ledger: _LedgerDocument | None = None
    was_reset: bool = False


class _Document(Document):
    """Group, topic, queue."""

    groups: dict[str, dict[str, dict[int, _QueueDocument]]]


_EncodedQueues = dict[str, dict[str, dict[int, msgspec.Raw]]]


class _EncodedDocument(Document):
    """The same with a text for each queue."""

    groups: _EncodedQueues


@dataclass(frozen=True, slots=True)
class EncodedOffsets:
    """The text of all offsets; a higher number was begun later."""

    number: int
    text: bytes


class GroupPosition(NamedTuple):
    """Where a group stands in one queue; what is not known of groups that pull is None."""

    group: str
    topic: str
    queue_id: int
    committed: int
    next_offset: int | None = None
    """The first offset that was never delivered to the group."""
    in_flight: int | None = None


class OffsetTable:
    """Committed offsets and ledgers by group, topic and queue: in memory, saved when somebody says so."""

    def __init__(self, snapshot: Snapshot, *, max_in_flight: int = MAX_IN_FLIGHT) -> None:
        self._saved = SavedDocument(snapshot, _Document, noun="offsets", version=_VERSION)
        self._max_in_flight = max_in_flight
        self._committed: dict[QueueKey, int] = {}
        self._ledgers: dict[QueueKey, Ledger] = {}
        self._resets: set[QueueKey] = set()
        self._changed = False
        self._encodings = 0
        self._saved_number = 0
        self._saving = Lock()

    @property
    def is_changed(self) -> bool:
        """Whether there is something that `encode` has not yet given."""
        return self._changed or any(ledger.changed for ledger in self._ledgers.values())

    def committed_offset(self, group: str, topic: str, queue_id: int) -> int | None:
        """The offset up to which the group has consumed the queue, None if it never did anything there."""
        key = (group, topic, queue_id)
        ledger = self._ledgers.get(key)
        return self._committed.get(key) if ledger is None else ledger.committed

    def commit(self, group: str, topic: str, queue_id: int, queue_offset: int) -> None:
        """Set the group's offset; negative ones are passed over. Where the group pops, it can only move forward.

        Passed over are also those of a reader that has not yet heard that the offset was reset: see `take_reset`.
        """
        key = (group, topic, queue_id)
        if queue_offset < 0 or key in self._resets:
            return
        ledger = self._ledgers.get(key)
        if ledger is not None:
            ledger.skip_to(queue_offset)
        elif self._committed.get(key) != queue_offset:
            self._committed[key] = queue_offset
            self._changed = True

    def reset(self, group: str, topic: str, queue_id: int, queue_offset: int, now_ms: int) -> None:
        """Put the group to an offset, forward or back. Deliveries in flight are discarded, their handles invalid."""
        key = (group, topic, queue_id)
        ledger = self._ledgers.get(key)
        if ledger is None:
            self._committed[key] = queue_offset
            self._resets.add(key)
        else:
            fresh = self._ledgers[key] = type(ledger)(queue_offset, capacity=self._max_in_flight)
            fresh.floor_ms = max(now_ms, ledger.floor_ms, ledger.last_pop_ms())
        self._changed = True

    def take_reset(self, group: str, topic: str, queue_id: int) -> int | None:
        """The offset that a reader has to go on at because the group was reset, told once; None ordinarily."""
        key = (group, topic, queue_id)
        if key not in self._resets:
            return None
        self._resets.discard(key)
        self._changed = True
        return self._committed.get(key)

    def places(self, group: str) -> list[tuple[str, int]]:
        """The topics and queues in which the group has a position, sorted."""
        keys = {*self._committed, *self._ledgers}
        return sorted((topic, queue_id) for name, topic, queue_id in keys if name == group)

    def readers(self, topic: str) -> list[str]:
        """The groups that have a position in the topic, sorted."""
        return sorted({key[0] for table in (self._committed, self._ledgers) for key in table if key[1] == topic})

    def ledger(self, group: str, topic: str, queue_id: int) -> Ledger | None:
        """The queue's ledger, None if the group never popped there."""
        return self._ledgers.get((group, topic, queue_id))

    def open_ledger(self, group: str, topic: str, queue_id: int, *, fifo: bool, first_offset: int) -> Ledger:
        """A new ledger, which begins where the group stands in the queue, for a new group at `first_offset`."""
        key = (group, topic, queue_id)
        cursor = max(first_offset, self._committed.pop(key, first_offset))
        self._resets.discard(key)
        kind = FifoLedger if fifo else Ledger
        ledger = self._ledgers[key] = kind(cursor, capacity=self._max_in_flight)
        self._changed = True
        return ledger

    def convert_ledger(self, group: str, topic: str, queue_id: int, ledger: Ledger, *, fifo: bool) -> Ledger:
        """The ledger as one that keeps order or as one that does not, for a group whose settings were changed."""
        kind = FifoLedger if fifo else Ledger
        converted = kind(ledger.cursor, capacity=self._max_in_flight, in_flight=ledger.in_flight)
        converted.floor_ms = ledger.floor_ms
        self._ledgers[group, topic, queue_id] = converted
        self._changed = True
        return converted

    def positions(self, max_pairs: int) -> tuple[list[GroupPosition], int]:
        """Where groups stand, queue by queue, for the first `max_pairs` of group and topic; how many have no place.

        Nothing is told of lite topics: there may be more of them than anybody wants to look at. Nor of what groups pop
        from their retry topics, where many ledgers share a queue.
        """
        shown: set[tuple[str, str]] = set()
        others: set[tuple[str, str]] = set()
        found = []
        for key in (*self._ledgers, *self._committed):
            pair = key[:2]
            if pair[1].startswith(LITE_PREFIX) or pair[1] != stored_topic(pair[1]):
                continue
            if pair not in shown:
                if len(shown) >= max_pairs:
                    others.add(pair)
                    continue
                shown.add(pair)
            found.append(self._position(key))
        return found, len(others)

    def _position(self, key: QueueKey) -> GroupPosition:
        ledger = self._ledgers.get(key)
        if ledger is None:
            return GroupPosition(*key, self._committed[key])
        return GroupPosition(*key, ledger.committed, ledger.cursor, ledger.capacity - ledger.room)

    def forget(self, *, topic: str | None = None, group: str | None = None) -> None:
        """Drop all of a topic or all of a group."""
        for table in (self._committed, self._ledgers):
            for key in [key for key in table if (topic is not None and is_of(key[1], topic)) or key[0] == group]:
                del table[key]
                self._resets.discard(key)
                self._changed = True

    def forget_topics(self, names: Collection[str]) -> None:
        """Drop all of these topics, which may be many."""
        for table in (self._committed, self._ledgers):
            for key in [key for key in table if key[1] in names]:
                del table[key]
                self._changed = True

    def encode(self) -> EncodedOffsets:
        """What is to be saved; what changes from here on makes `is_changed` true again."""
        queues: _EncodedQueues = {}
        number, keys = self.begin_encoding()
        for key in keys:
            self._encode_queue(key, queues)
        return _encode_offsets(number, queues)

    async def save_in_turns(self) -> None:
        """Put everything on the disk beside other work: however many queues there are, nobody waits for all of them.

        Raises as `save_encoded`.
        """
        queues: _EncodedQueues = {}
        number, keys = self.begin_encoding()
        done = 0
        for key in keys:
            done += self._encode_queue(key, queues)
            if done >= MAX_ENCODED_A_TURN:
                done = 0
                await asyncio.sleep(0)
        if number != self._encodings:
            # Of two encodings at once the one that is saved need not have the newest of each queue.
            self._changed = True
        await asyncio.to_thread(self.save_encoded, _encode_offsets(number, queues))

    def begin_encoding(self) -> tuple[int, list[QueueKey]]:
        """The number of the save that begins, and the queues to encode."""
        self._changed = False
        self._encodings += 1
        return self._encodings, [*self._committed, *self._ledgers]

    def _encode_queue(self, key: QueueKey, queues: _EncodedQueues) -> int:
        """Enter a queue as it is now, if it is still there; how much there was to encode."""
        ledger = self._ledgers.get(key)
        if ledger is not None:
            held = _QueueDocument(ledger.committed, _ledger_document(ledger))
            ledger.changed = False
        elif key in self._committed:
            held = _QueueDocument(self._committed[key], was_reset=key in self._resets)
        else:
            return 1
        group, topic, queue_id = key
        text = msgspec.Raw(msgspec.json.encode(held))
        queues.setdefault(group, {}).setdefault(topic, {})[queue_id] = text
        return 1 + (len(held.ledger.in_flight) if held.ledger else 0)

    def save_encoded(self, encoded: EncodedOffsets) -> None:
        """Put what `encode` gave on the disk, unless something newer is there; may run in another thread.

        What fails (STORE_FAILED, DISK_FULL) is to be encoded again.
        """
        with self._saving:
            if encoded.number <= self._saved_number:
                return
            try:
                self._saved.save_text(encoded.text)
            except StoreError:
                self._changed = True
                raise
            self._saved_number = encoded.number

    def save(self) -> None:
        """Put everything on the disk now."""
        self.save_encoded(self.encode())

    def shift(self, step_ms: int) -> None:
        """The wall clock was put forward by so much, or back: all deliveries are out of sight as long as before."""
        for ledger in self._ledgers.values():
            ledger.shift(step_ms)

    def load(self, max_offset: Callable[[str, int], int | None], now_ms: int | None = None) -> None:
        """Read what was saved. `max_offset(topic, queue_id)` says where the queue ends, None if it is gone.

        With `now_ms` no delivery is out of sight for longer than its invisible time from now.

        A queue may end before the saved offsets when the machine lost power: other messages will have those offsets, so
        they are cut back. Raises STORE_FORMAT where the form is another one.
        """
        document = self._saved.load()
        if document is None:
            return
        for key, held in _rows(document):
            end = max_offset(key[1], key[2])
            if end is None:
                self._changed = True
                continue
            if max(held.committed, held.ledger.cursor if held.ledger else 0) > end:
                _log.warning("The log ends before the offsets of %s, topic %s, queue %d: cut to %d.", *key, end)
                self._changed = True
            if held.ledger is None:
                self._committed[key] = min(held.committed, end)
                if held.was_reset:
                    self._resets.add(key)
            else:
                self._ledgers[key] = ledger = self._ledger_of(held.ledger)
                ledger.truncate(end)
                if now_ms is not None:
                    ledger.limit_invisible_times(now_ms)

    def _ledger_of(self, document: _LedgerDocument) -> Ledger:
        kind = FifoLedger if document.fifo else Ledger
        ledger = kind(document.cursor, capacity=self._max_in_flight, in_flight=document.in_flight)
        ledger.floor_ms = document.floor_ms
        return ledger


def _ledger_document(ledger: Ledger) -> _LedgerDocument:
    return _LedgerDocument(ledger.cursor, isinstance(ledger, FifoLedger), ledger.in_flight, ledger.floor_ms)


def _encode_offsets(number: int, queues: _EncodedQueues) -> EncodedOffsets:
    return EncodedOffsets(number, encode_document(_EncodedDocument(version=_VERSION, groups=queues)))


def _rows(document: _Document) -> Iterator[tuple[QueueKey, _QueueDocument]]:
    for group, topics in document.groups.items():
        for topic, queues in topics.items():
            for queue_id, held in queues.items():
                yield (group, topic, queue_id), held
