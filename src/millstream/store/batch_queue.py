"""A consume queue for records of several messages each: 46 bytes a record, searched by queue offset.

An entry is `int64 log offset | int32 size | int64 tags code | int64 store time | int64 base offset | int16 count |
int32 compacted offset | int32 reserved`, big-endian, in order of the base offset. The base offset is the queue offset
of the record's first message. Source of the layout: RocketMQ 5.3's batch consume queue (facts only).
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from typing import ClassVar, Literal

from millstream.store.consume_queue import LOST_TAGS_CODE, IndexEntry, QueueExtent
from millstream.store.entry_files import EntryFiles

__all__ = ["BATCH_ENTRY", "BATCH_ENTRY_BYTES", "MAX_BATCH_COUNT", "BatchQueue"]

BATCH_ENTRY = struct.Struct(">qiqqqhii")
BATCH_ENTRY_BYTES = BATCH_ENTRY.size

MAX_BATCH_COUNT = 32_767
"""Messages of one record at most: the count is a signed int16."""

_BASE_AND_COUNT = struct.Struct(">qh")
_BASE_POSITION = 28


class BatchQueue:
    """The messages from `min_offset` up to but without `next_offset`; `ConsumeQueue` says the rest."""

    __slots__ = ("_min_number", "_next_offset", "entry_files", "min_offset", "queue_id", "topic", "visible_offset")

    holds_batches: ClassVar[Literal[True]] = True
    entry_bytes: ClassVar[int] = BATCH_ENTRY_BYTES

    def __init__(self, topic: str, queue_id: int, entry_files: EntryFiles) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self.min_offset = 0
        self.visible_offset = 0
        self.entry_files = entry_files
        self._next_offset = 0
        self._min_number = 0

    @property
    def next_offset(self) -> int:
        """The queue offset of the next message."""
        return self._next_offset

    @property
    def extent(self) -> QueueExtent:
        """What a checkpoint notes of the queue."""
        return QueueExtent(self.min_offset, self._next_offset, self._min_number, self.entry_files.next_number)

    def start_at(self, extent: QueueExtent) -> None:
        """Take the entries of the extent as being in the files, and none in memory."""
        self.min_offset, self.visible_offset = extent.min_offset, extent.next_offset
        self._next_offset, self._min_number = extent.next_offset, extent.min_number
        self.entry_files.start_at(extent.next_number)

    def add(self, found: IndexEntry, stored_ms: int) -> None:
        """As `ConsumeQueue.add`."""
        following = self._next_offset
        if found.queue_offset < following:
            return
        if found.queue_offset > following or self.min_offset == following:
            self.skip_to(found.queue_offset, found.log_offset)
        self._append(found, stored_ms)

    def skip_to(self, next_offset: int, log_offset: int) -> None:
        """As `ConsumeQueue.skip_to`; one entry stands for all the messages that are lost in a row."""
        following = self._next_offset
        if self.min_offset == following:
            number = self.entry_files.next_number
            self.start_at(QueueExtent(next_offset, next_offset, number, number))
            return
        while following < next_offset:
            count = min(next_offset - following, MAX_BATCH_COUNT)
            self._append(IndexEntry(following, log_offset, 0, LOST_TAGS_CODE, count), stored_ms=0)
            following += count

    def _append(self, entry: IndexEntry, stored_ms: int) -> None:
        base, log_offset, size_bytes, tags_code, count = entry
        self.append(BATCH_ENTRY.pack(log_offset, size_bytes, tags_code, stored_ms, base, count, 0, 0), count)

    def append(self, packed: bytes, count: int) -> None:
        """Take the packed entry of the next record."""
        self.entry_files.tail += packed
        self._next_offset += count

    def entries(self, queue_offset: int, max_count: int) -> list[IndexEntry]:
        """At most `max_count` visible entries, from the one that holds `queue_offset` (or `min_offset`) on."""
        first = max(queue_offset, self.min_offset)
        if first >= self.visible_offset or max_count < 1:
            return []
        number = self._number_of(first)
        end = min(number + max_count, self.entry_files.next_number)
        found = []
        for log_offset, size, code, _, base, count, _, _ in BATCH_ENTRY.iter_unpack(
            self.entry_files.read_packed(number, end)
        ):
            if base >= self.visible_offset:
                break
            found.append(IndexEntry(base, log_offset, size, code, count))
        return found

    def _number_of(self, queue_offset: int) -> int:
        """The number of the entry that holds the queue offset."""
        numbers = range(self._min_number, self.entry_files.next_number)
        return numbers[max(bisect_right(numbers, queue_offset, key=self._base) - 1, 0)]

    def _base(self, number: int) -> int:
        base: int = _BASE_AND_COUNT.unpack_from(self.entry_files.read_packed(number, number + 1), _BASE_POSITION)[0]
        return base

    def entry(self, queue_offset: int) -> IndexEntry:
        """The entry that holds a queue offset that is visible."""
        return self.entries(queue_offset, 1)[0]

    def last_entries(self, count: int) -> list[IndexEntry]:
        """The last `count` visible entries, or all of them."""
        if self.visible_offset <= self.min_offset:
            return []
        number = max(self._number_of(self.visible_offset - 1) + 1 - count, self._min_number)
        return self.entries(self._base(number), count)

    def first_offset_in_log(self, log_start: int) -> int:
        """The first queue offset whose record stands at `log_start` or behind it, `visible_offset` if there is none."""
        low, high = self.min_offset, self.visible_offset
        while low < high:
            entry = self.entry((low + high) // 2)
            if entry.log_offset < log_start:
                low = entry.queue_offset + entry.message_count
            else:
                high = max(entry.queue_offset, low)
        return low

    def trim(self, min_offset: int) -> None:
        """Let the queue begin at `min_offset`, if that is later than it does; a record is not taken apart."""
        min_offset = min(min_offset, self.visible_offset)
        if min_offset <= self.min_offset:
            return
        if min_offset < self.visible_offset:
            self._min_number = self._number_of(min_offset)
            self.min_offset = max(self._base(self._min_number), self.min_offset)
        elif self.visible_offset == self._next_offset:
            self._min_number, self.min_offset = self.entry_files.next_number, self._next_offset

    def remove_trimmed_files(self) -> None:
        """Remove the files that hold nothing but entries before `min_offset`."""
        self.entry_files.remove_before(self._min_number)
