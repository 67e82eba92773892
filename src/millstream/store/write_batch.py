"""Laying out what one `put` appends: offsets, encoded records, index entries."""

from __future__ import annotations

from typing import NamedTuple

from millstream.model.errors import MessageRefused
from millstream.model.message import Address, OutgoingMessage
from millstream.model.properties import TAGS
from millstream.protocol.record import encode_record
from millstream.store.commit_log import BLANK_BYTES, CommitLog, Run
from millstream.store.consume_queue import ENTRY, ConsumeQueue, tags_code

__all__ = ["AppendedRecord", "PendingRecord", "WriteBatch"]


class PendingRecord(NamedTuple):
    """A message and the queue it goes to. A tuple like the next one, because both are made for every message."""

    message: OutgoingMessage
    queue_id: int


class AppendedRecord(NamedTuple):
    """Where a message was stored."""

    queue_offset: int
    log_offset: int
    size_bytes: int
    store_timestamp_ms: int


class WriteBatch:
    """The records of one `put`, laid out behind the log's end but not yet part of it."""

    def __init__(self, log: CommitLog, store_host: Address, store_timestamp_ms: int) -> None:
        self.runs = [Run(log.end, [])]
        self.entries: dict[ConsumeQueue, list[bytes]] = {}
        self.appended: list[AppendedRecord] = []
        self.end = log.end
        self._log = log
        self._limit = log.limit(log.end)
        self._store_host = store_host
        self._timestamp_ms = store_timestamp_ms

    def add(self, message: OutgoingMessage, queue: ConsumeQueue) -> None:
        entries = self.entries.get(queue)
        if entries is None:
            entries = self.entries[queue] = []
        queue_offset = queue.next_offset + len(entries)
        record = self._encode(message, queue.queue_id, queue_offset)
        size = len(record)
        if self.end + size + BLANK_BYTES > self._limit:
            self._roll(size)
            record = self._encode(message, queue.queue_id, queue_offset)
        entries.append(ENTRY.pack(self.end, size, tags_code(message.properties.get(TAGS))))
        self.appended.append(AppendedRecord(queue_offset, self.end, size, self._timestamp_ms))
        self.runs[-1].records.append(record)
        self.end += size

    def _encode(self, message: OutgoingMessage, queue_id: int, queue_offset: int) -> bytes:
        return encode_record(
            message,
            queue_id=queue_id,
            queue_offset=queue_offset,
            log_offset=self.end,
            store_timestamp_ms=self._timestamp_ms,
            store_host=self._store_host,
        )

    def _roll(self, size: int) -> None:
        start, limit = self._limit, self._log.limit(self._limit)
        if start + size + BLANK_BYTES > limit:
            raise MessageRefused(
                "BODY_TOO_LARGE", f"A record of {size} bytes does not fit a segment of {limit - start} bytes."
            )
        self.end, self._limit = start, limit
        self.runs.append(Run(start, []))
