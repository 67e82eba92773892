"""The offsets of groups in each queue: committed by readers, or derived from the ledgers of pop groups.

Both are one table of the broker's state, whose key is a queue of a group. What changed is written to the state log now
and then, each queue as of one moment. What happened after that is delivered again, never lost.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection
from typing import NamedTuple

import msgspec

from millstream.broker.queues.fifo import FifoLedger
from millstream.broker.queues.ledger import MAX_IN_FLIGHT, Delivery, Ledger
from millstream.broker.queues.retry_lines import is_of, stored_topic
from millstream.broker.state.document import Document, SavedDocument, encode_document
from millstream.broker.state.state_table import StateTable
from millstream.model.light_queue import LIGHT_PREFIX
from millstream.store.snapshot import Snapshot

__all__ = ["MAX_WRITTEN_AT_ONCE", "GroupPosition", "OffsetTable", "QueueKey"]

_log = logging.getLogger(__name__)

QueueKey = tuple[str, str, int]
"""Group, topic and queue."""

MAX_WRITTEN_AT_ONCE = 512
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
    """Committed offsets and ledgers by group, topic and queue: in memory, written to the state log by `write_changes`.

    `limit` before use, once the saved ones are loaded.
    """

    def __init__(self, snapshot: Snapshot, *, max_in_flight: int = MAX_IN_FLIGHT) -> None:
        saved = SavedDocument(snapshot, _Document, noun="offsets", version=_VERSION)
        self.table = StateTable("offset", saved, _QueueDocument, self, encode_in_turns=self.encode_in_turns)
        """Its saved form; the key is group, topic and queue number with tabs between them."""
        self._max_in_flight = max_in_flight
        self._committed: dict[QueueKey, int] = {}
        self._ledgers: dict[QueueKey, Ledger] = {}
        self._resets: set[QueueKey] = set()
        self._changed: dict[QueueKey, None] = {}

    @property
    def is_changed(self) -> bool:
        """Whether there is something that is not yet written."""
        return bool(self._changed) or any(ledger.changed for ledger in self._ledgers.values())

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
            self._changed[key] = None

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
        self._changed[key] = None

    def has_reset(self, group: str, topic: str, queue_id: int) -> bool:
        """Whether `take_reset` has something to say."""
        return bool(self._resets) and (group, topic, queue_id) in self._resets

    def take_reset(self, group: str, topic: str, queue_id: int) -> int | None:
        """The offset that a reader has to go on at because the group was reset, told once; None ordinarily."""
        key = (group, topic, queue_id)
        if key not in self._resets:
            return None
        self._resets.discard(key)
        self._changed[key] = None
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
        self._changed[key] = None
        return ledger

    def convert_ledger(self, group: str, topic: str, queue_id: int, ledger: Ledger, *, fifo: bool) -> Ledger:
        """The ledger as one that keeps order or as one that does not, for a group whose settings were changed."""
        kind = FifoLedger if fifo else Ledger
        converted = kind(ledger.cursor, capacity=self._max_in_flight, in_flight=ledger.in_flight)
        converted.floor_ms = ledger.floor_ms
        self._ledgers[group, topic, queue_id] = converted
        self._changed[group, topic, queue_id] = None
        return converted

    def positions(self, max_pairs: int) -> tuple[list[GroupPosition], int]:
        """Where groups stand, queue by queue, for the first `max_pairs` of group and topic; how many have no place.

        Nothing is told of lite topics and light queues: there may be more of them than anybody wants to look at. Nor
        of what groups pop from their retry topics, where many ledgers share a queue.
        """
        shown: set[tuple[str, str]] = set()
        others: set[tuple[str, str]] = set()
        found = []
        for key in (*self._ledgers, *self._committed):
            pair = key[:2]
            if pair[1].startswith(LIGHT_PREFIX) or pair[1] != stored_topic(pair[1]):
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
                self._changed[key] = None

    def forget_queues(self, keys: Collection[QueueKey]) -> None:
        """Drop all of these queues of groups."""
        for key in keys:
            had = self._committed.pop(key, None) is not None
            if self._ledgers.pop(key, None) is not None or had:
                self._resets.discard(key)
                self._changed[key] = None

    def forget_topics(self, names: Collection[str]) -> None:
        """Drop all of these topics, which may be many."""
        for table in (self._committed, self._ledgers):
            for key in [key for key in table if key[1] in names]:
                del table[key]
                self._changed[key] = None

    def write_changes(self) -> None:
        """Write all that changed; on the disk when this returns. Raises STORE_FAILED, DISK_FULL: then it is still to be
        written."""
        self._write(self._take_changes(), durable=True)

    async def write_changes_in_turns(self) -> int:
        """Write what changed beside other work: however many queues there are, nobody waits for all of them.

        How many queues and deliveries there were. They are on the disk when the log is. Raises as `write_changes`.
        """
        changed = self._take_changes()
        written = begin = 0
        while begin < len(changed):
            end, weight = begin, 0
            while end < len(changed) and weight < MAX_WRITTEN_AT_ONCE:
                weight += self._weight(changed[end])
                end += 1
            try:
                self._write(changed[begin:end], durable=False)
            except BaseException:
                self._changed.update(dict.fromkeys(changed[end:]))
                raise
            written += weight
            begin = end
            await asyncio.sleep(0)
        return written

    def _take_changes(self) -> list[QueueKey]:
        changed = dict.fromkeys(key for key, ledger in self._ledgers.items() if ledger.changed)
        changed.update(self._changed)
        self._changed = {}
        return list(changed)

    def _weight(self, key: QueueKey) -> int:
        ledger = self._ledgers.get(key)
        return 1 if ledger is None else 1 + ledger.capacity - ledger.room

    def _write(self, keys: list[QueueKey], *, durable: bool) -> None:
        changes = [(_text_of(key), self._queue_document(key)) for key in keys]
        for key in keys:
            if key in self._ledgers:
                self._ledgers[key].changed = False
        try:
            self.table.write_all(changes, durable=durable)
        except BaseException:
            self._changed.update(dict.fromkeys(keys))
            raise

    def _queue_document(self, key: QueueKey) -> _QueueDocument | None:
        ledger = self._ledgers.get(key)
        if ledger is not None:
            return _QueueDocument(ledger.committed, _ledger_document(ledger))
        committed = self._committed.get(key)
        return None if committed is None else _QueueDocument(committed, was_reset=key in self._resets)

    def shift(self, step_ms: int) -> None:
        """The wall clock was put forward by so much, or back: all deliveries are out of sight as long as before."""
        for ledger in self._ledgers.values():
            ledger.shift(step_ms)

    def make_document(self) -> _Document:
        """All offsets and ledgers."""
        groups: dict[str, dict[str, dict[int, _QueueDocument]]] = {}
        for key in (*self._committed, *self._ledgers):
            group, topic, queue_id = key
            held = self._queue_document(key)
            assert held is not None
            groups.setdefault(group, {}).setdefault(topic, {})[queue_id] = held
        return _Document(version=_VERSION, groups=groups)

    async def encode_in_turns(self) -> bytes:
        """The text of the document, made beside other work; each queue is as it is when its turn comes."""
        groups: _EncodedQueues = {}
        weight = 0
        for key in [*self._committed, *self._ledgers]:
            held = self._queue_document(key)
            if held is None:
                continue
            group, topic, queue_id = key
            groups.setdefault(group, {}).setdefault(topic, {})[queue_id] = msgspec.Raw(msgspec.json.encode(held))
            weight += self._weight(key)
            if weight >= MAX_WRITTEN_AT_ONCE:
                weight = 0
                await asyncio.sleep(0)
        return encode_document(_EncodedDocument(version=_VERSION, groups=groups))

    def load_document(self, document: _Document) -> None:
        """Take up the saved offsets and ledgers."""
        for group, topics in document.groups.items():
            for topic, queues in topics.items():
                for queue_id, held in queues.items():
                    self._put((group, topic, queue_id), held)

    def apply_change(self, key: str, value: _QueueDocument | None) -> None:
        """Have a queue of a group so, or have it no more."""
        group, topic, queue_id = key.split("\t")
        self._put((group, topic, int(queue_id)), value)

    def _put(self, key: QueueKey, held: _QueueDocument | None) -> None:
        self._committed.pop(key, None)
        self._ledgers.pop(key, None)
        self._resets.discard(key)
        if held is None:
            return
        if held.ledger is not None:
            self._ledgers[key] = self._ledger_of(held.ledger)
            return
        self._committed[key] = held.committed
        if held.was_reset:
            self._resets.add(key)

    def limit(self, max_offset: Callable[[str, int], int | None], now_ms: int | None = None) -> None:
        """Fit what was loaded to the log. `max_offset(topic, queue_id)` says where a queue ends, None if it is gone.

        With `now_ms` no delivery is out of sight for longer than its invisible time from now. A queue may end before
        the saved offsets when the machine lost power: other messages will have those offsets, so they are cut back.
        """
        for key in [*self._committed, *self._ledgers]:
            end = max_offset(key[1], key[2])
            if end is None:
                self._put(key, None)
                self._changed[key] = None
                continue
            ledger = self._ledgers.get(key)
            if max(ledger.cursor if ledger else 0, self._committed.get(key, 0)) > end:
                _log.warning("The log ends before the offsets of %s, topic %s, queue %d: cut to %d.", *key, end)
                self._changed[key] = None
            if ledger is None:
                self._committed[key] = min(self._committed[key], end)
            else:
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


def _text_of(key: QueueKey) -> str:
    group, topic, queue_id = key
    return f"{group}\t{topic}\t{queue_id}"
