"""Laying out what one `put` appends: offsets, encoded records, index entries."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final, NamedTuple

from millstream.model.errors import MessageRefused
from millstream.model.message import Address, OutgoingMessage
from millstream.model.properties import INNER_BASE, INNER_NUMBER, TAGS
from millstream.protocol.record import RecordEncoder
from millstream.store.batch_queue import BATCH_ENTRY, MAX_BATCH_COUNT
from millstream.store.commit_log import BLANK_BYTES, CommitLog, Run
from millstream.store.consume_queue import ENTRY, tags_code
from millstream.store.queue_table import AnyQueue, QueueTable

__all__ = ["AppendedRecord", "PendingRecord", "QueueShare", "WriteBatch"]


class PendingRecord(NamedTuple):
    """A message and the queue it goes to. A tuple like the next one, because both are made for every message.

    `batch_count` is for a queue of batches: the number of messages that the record holds, 1 to 32,767. A queue is of
    the kind of its first record.
    """

    message: OutgoingMessage
    queue_id: int
    batch_count: int | None = None


class AppendedRecord(NamedTuple):
    """Where a message was stored; of a batch its first one."""

    queue_offset: int
    log_offset: int
    size_bytes: int
    store_timestamp_ms: int


class QueueShare:
    """What one `put` adds to one queue: packed index entries, and the queue offset behind them."""

    __slots__ = ("entries", "next_offset", "queue")

    def __init__(self, queue: AnyQueue) -> None:
        self.queue: Final = queue
        self.next_offset = queue.next_offset
        self.entries: list[bytes] = []

    def commit(self) -> None:
        """Let the queue have the entries."""
        queue, packed = self.queue, b"".join(self.entries)
        if queue.holds_batches:
            queue.append(packed, self.next_offset - queue.next_offset)
        else:
            queue.entry_files.tail += packed


class WriteBatch:
    """The records of one `put`, laid out behind the log's end but not yet part of it."""

    def __init__(self, log: CommitLog, queues: QueueTable, store_host: Address, store_timestamp_ms: int) -> None:
        self.runs = [Run(log.end, [])]
        self.shares: dict[tuple[str, int], QueueShare] = {}
        self.end = log.end
        self._log = log
        self._limit = log.limit(log.end)
        self._queues = queues
        self._encoder = RecordEncoder(store_timestamp_ms, store_host)
        self._timestamp_ms = store_timestamp_ms

    def add(self, records: Iterable[PendingRecord]) -> list[AppendedRecord]:
        """Lay out the records one behind the other and say where they will stand."""
        appended = []
        shares, encode, timestamp_ms = self.shares, self._encoder.encode, self._timestamp_ms
        for message, queue_id, batch_count in records:
            key = (message.topic, queue_id)
            share = shares.get(key)
            if share is None:
                share = shares[key] = self._share(key, holds_batches=batch_count is not None)
            queue_offset = share.next_offset
            if batch_count is not None or share.queue.holds_batches:
                message = _with_place(message, queue_offset, batch_count, share.queue)
            record = encode(message, queue_id, queue_offset, self.end)
            size = len(record)
            if self.end + size + BLANK_BYTES > self._limit:
                self._roll(size)
                record = encode(message, queue_id, queue_offset, self.end)
            properties = message.properties
            code = tags_code(properties[TAGS]) if TAGS in properties else 0
            if batch_count is None:
                share.entries.append(ENTRY.pack(self.end, size, code))
                share.next_offset = queue_offset + 1
            else:
                entry = BATCH_ENTRY.pack(self.end, size, code, timestamp_ms, queue_offset, batch_count, 0, 0)
                share.entries.append(entry)
                share.next_offset = queue_offset + batch_count
            appended.append(AppendedRecord(queue_offset, self.end, size, timestamp_ms))
            self.runs[-1].records.append(record)
            self.end += size
        return appended

    def _share(self, key: tuple[str, int], *, holds_batches: bool) -> QueueShare:
        queue = self._queues.find(*key)
        return QueueShare(queue or self._queues.unlisted(*key, holds_batches=holds_batches))

    def _roll(self, size: int) -> None:
        start, limit = self._limit, self._log.limit(self._limit)
        if start + size + BLANK_BYTES > limit:
            raise MessageRefused(
                "BODY_TOO_LARGE", f"A record of {size} bytes does not fit a segment of {limit - start} bytes."
            )
        self.end, self._limit = start, limit
        self.runs.append(Run(start, []))


def _with_place(message: OutgoingMessage, base: int, count: int | None, queue: AnyQueue) -> OutgoingMessage:
    """The message with what a record of a batch queue says of itself, so that a scan of the log can tell it."""
    if count is None or not queue.holds_batches or not 1 <= count <= MAX_BATCH_COUNT:
        kind = "batches" if queue.holds_batches else "single messages"
        raise ValueError(f"queue {queue.queue_id} of {queue.topic!r} holds {kind}; a record of {count} does not fit")
    places = {INNER_NUMBER: str(count), INNER_BASE: str(base)}
    return replace(message, properties={**message.properties, **places})
