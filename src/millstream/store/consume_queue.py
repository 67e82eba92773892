"""A consume queue: where each record of one queue lies in the log, 20 bytes a record, by queue offset.

An entry is `int64 log offset | int32 size | int64 tags code`, big-endian; its number is the queue offset. Source of
the layout: RocketMQ 5.3 (facts only).

The log is the truth. New entries stay in memory, where readers find them, until a checkpoint writes them; a crash
before that costs a scan of the log from the checkpoint on. An entry of size 0 and tags code -1 stands for a record
that was found damaged while the file was made again; it names the log offset of the next whole one.
"""

from __future__ import annotations

import struct
from functools import lru_cache, partial
from typing import ClassVar, Literal, NamedTuple

from millstream.model.filter import java_hash_code
from millstream.store.entry_files import EntryFiles

__all__ = ["ENTRY", "ENTRY_BYTES", "LOST_TAGS_CODE", "ConsumeQueue", "IndexEntry", "QueueExtent", "tags_code"]

ENTRY = struct.Struct(">qiq")
ENTRY_BYTES = ENTRY.size
LOST_TAGS_CODE = -1
"""With size 0: the entry of a lost record. Zeros alone would be what a file's torn end looks like."""

_CACHED_TAGS = 4096


@lru_cache(maxsize=_CACHED_TAGS)
def tags_code(tag: str | None) -> int:
    """What an entry holds of a message's tag: its Java hash code, 0 without one."""
    return java_hash_code(tag) if tag else 0


class IndexEntry(NamedTuple):
    """One record of a queue and where it stands. A tuple, because one is made for every record read.

    `tags_code` is the Java hash code of the tag, 0 without one. `size_bytes` 0 means that the record is lost.
    `message_count` is the number of messages in the record, of which `queue_offset` is the first one's.
    """

    queue_offset: int
    log_offset: int
    size_bytes: int
    tags_code: int
    message_count: int = 1


_entry = partial(tuple.__new__, IndexEntry)
"""A named tuple's own constructor takes its fields apart and together again."""


class QueueExtent(NamedTuple):
    """What a checkpoint notes of a queue; the numbers of its entries are 0 where they are the queue offsets."""

    min_offset: int
    next_offset: int
    min_number: int = 0
    next_number: int = 0


class ConsumeQueue:
    """The entries from `min_offset` up to but without `next_offset`.

    `visible_offset` is how far readers may look; the store moves it. Not safe for use by several threads at once but
    for `entry_files.write`.
    """

    __slots__ = ("entry_files", "min_offset", "queue_id", "topic", "visible_offset")

    holds_batches: ClassVar[Literal[False]] = False
    entry_bytes: ClassVar[int] = ENTRY_BYTES

    def __init__(self, topic: str, queue_id: int, entry_files: EntryFiles) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self.min_offset = 0
        self.visible_offset = 0
        self.entry_files = entry_files

    @property
    def next_offset(self) -> int:
        """The queue offset of the next record."""
        return self.entry_files.next_number

    @property
    def extent(self) -> QueueExtent:
        """What a checkpoint notes of the queue."""
        return QueueExtent(self.min_offset, self.next_offset)

    def start_at(self, extent: QueueExtent) -> None:
        """Take the entries of the extent as being in the files, and none in memory."""
        self.min_offset, self.visible_offset = extent.min_offset, extent.next_offset
        self.entry_files.start_at(extent.next_offset)

    def add(self, found: IndexEntry, stored_ms: int) -> None:
        """Append a record that a scan has found; offsets passed over become entries of lost records.

        The first entry of an empty queue sets `min_offset`. A queue offset that is there already is passed over.
        """
        following = self.next_offset
        if found.queue_offset < following:
            return
        if found.queue_offset > following or self.min_offset == following:
            self.skip_to(found.queue_offset, found.log_offset)
        self.entry_files.tail += ENTRY.pack(found.log_offset, found.size_bytes, found.tags_code)

    def skip_to(self, next_offset: int, log_offset: int) -> None:
        """Let the queue go on at `next_offset`, with entries of lost records up to there unless it is empty."""
        following = self.next_offset
        if self.min_offset == following:
            self.start_at(QueueExtent(next_offset, next_offset))
        else:
            self.entry_files.tail += ENTRY.pack(log_offset, 0, LOST_TAGS_CODE) * (next_offset - following)

    def entries(self, queue_offset: int, max_count: int) -> list[IndexEntry]:
        """At most `max_count` visible entries from `queue_offset` (or `min_offset`, if that is later) on."""
        first = max(queue_offset, self.min_offset)
        return [_entry((number, *place, 1)) for number, place in enumerate(self.places(first, max_count), start=first)]

    def places(self, first: int, max_count: int) -> list[tuple[int, int, int]]:
        """Log offset, size and tags code of at most `max_count` visible entries from the queue offset `first` on, which
        the queue still has."""
        return [*ENTRY.iter_unpack(self.packed_places(first, max_count))]

    def packed_places(self, first: int, max_count: int) -> bytes:
        """The same as they stand in the files, `ENTRY_BYTES` each."""
        end = min(first + max_count, self.visible_offset)
        return self.entry_files.read_packed(first, end) if first < end else b""

    def entry(self, queue_offset: int) -> IndexEntry:
        """The entry of a queue offset that is visible."""
        return self.entries(queue_offset, 1)[0]

    def last_entries(self, count: int) -> list[IndexEntry]:
        """The last `count` visible entries, or all of them."""
        return self.entries(self.visible_offset - count, count)

    def first_offset_in_log(self, log_start: int) -> int:
        """The first queue offset whose record stands at `log_start` or behind it, `visible_offset` if there is none."""
        low, high = self.min_offset, self.visible_offset
        while low < high:
            middle = (low + high) // 2
            if self.entry(middle).log_offset < log_start:
                low = middle + 1
            else:
                high = middle
        return low

    def trim(self, min_offset: int) -> None:
        """Let the queue begin at `min_offset`, if that is later than it does."""
        self.min_offset = max(self.min_offset, min(min_offset, self.visible_offset))

    def remove_trimmed_files(self) -> None:
        """Remove the files that hold nothing but entries before `min_offset`."""
        self.entry_files.remove_before(self.min_offset)
