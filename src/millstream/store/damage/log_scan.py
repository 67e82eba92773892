"""Scans the log record by record, when the derived files are insufficient.

Two ways to meet bytes that are no record: behind the checkpoint they are the torn end of what was written last, and the
scan stops there; before it they are damage in the middle of records that are on the disk, and the scan goes on at the
next record.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import Final

from millstream.protocol.record import (
    MAGIC_BLANK,
    MAGIC_V1,
    MAGIC_V2,
    MIN_RECORD_BYTES,
    RecordOutline,
    outline_record,
    possible_records,
    verify_record,
)
from millstream.store.commit_log import BLANK_BYTES, CommitLog
from millstream.store.consume_queue import IndexEntry, tags_code
from millstream.store.light_queue import LightEntry
from millstream.store.log.mapped_log import LogSegment, MappedLog

__all__ = [
    "LogScan",
    "entry_of",
    "in_each_queue",
    "is_blank",
    "is_named_by",
    "record_at",
    "skip_records",
    "walk_records",
]

MAX_NAMED_PLACES: Final = 1000
"""Places of damage that a scan names; the others it counts."""

_SIZE_AND_MAGIC = struct.Struct(">ii")
_PLACE = struct.Struct(">ii4xi4xqq")
"""Size, magic, queue number, queue offset and log offset at the head of a record."""


def record_at(view: memoryview, position: int, log_offset: int, *, verify: bool = True) -> memoryview | None:
    """The record at a position of a segment, or None if there is none, it is damaged, or it is of another place.

    Without `verify` its checksum is not looked at.
    """
    if position + MIN_RECORD_BYTES > len(view):
        return None
    size, magic, _, _, own_log_offset = _PLACE.unpack_from(view, position)
    if magic not in (MAGIC_V1, MAGIC_V2) or not MIN_RECORD_BYTES <= size <= len(view) - position:
        return None
    if own_log_offset != log_offset:
        return None
    record = view[position : position + size]
    return record if not verify or verify_record(record) else None


def walk_records(view: memoryview, view_offset: int, start: int, stop: int, max_bytes: int) -> int:
    """The position in a segment behind the last record from `start` on that ends by `stop`, of `max_bytes` at most but
    always one; `start` where none begins. Quick, because no checksum is looked at.

    `view_offset` is the log offset at which the segment begins.
    """
    position, unpack = start, _PLACE.unpack_from
    while position + MIN_RECORD_BYTES <= stop:
        size, magic, _, _, own_log_offset = unpack(view, position)
        following = position + size
        is_record = magic in (MAGIC_V1, MAGIC_V2) and size >= MIN_RECORD_BYTES
        if not is_record or own_log_offset != view_offset + position or following > stop:
            break
        if following - start > max_bytes and position > start:
            break
        position = following
    return position


def skip_records(log: CommitLog, start: int, end: int) -> int:
    """Where the records from `start` on reach `end`, or where the next one does not end by then; no checksum counts."""
    while start < end:
        segment = log.segment_at(start)
        if segment is None:
            return start
        view, stop = log.view(segment), min(end, segment.end) - segment.start
        position = walk_records(view, segment.start, start - segment.start, stop, stop)
        start = segment.start + position
        if start < end:
            if not is_blank(view, position):
                return start
            start = segment.end
    return start


def is_named_by(record: memoryview, entry: IndexEntry) -> bool:
    """Whether the entry leads to this record. The record's checksum is not looked at.

    The head of a record says its offset in its topic's queue, so an entry of a light queue is judged by the place in
    the log and the size alone.
    """
    size, _, _, queue_offset, log_offset = _PLACE.unpack_from(record)
    if size != entry.size_bytes or log_offset != entry.log_offset:
        return False
    return bool(queue_offset == entry.queue_offset) or isinstance(entry, LightEntry)


def in_each_queue(records: Iterable[tuple[RecordOutline, int]]) -> Iterator[tuple[RecordOutline, int]]:
    """Of each record the outline in its topic's queue and those in the light queues that have it, with its size."""
    for outline, size_bytes in records:
        if outline.light_places:
            for each in outline.in_each_queue():
                yield each, size_bytes
        else:
            yield outline, size_bytes


def entry_of(outline: RecordOutline, size_bytes: int) -> IndexEntry:
    """What the queue of a scanned record has of it."""
    _, _, queue_offset, log_offset, _, tag, batch_count, _ = outline
    return IndexEntry(queue_offset, log_offset, size_bytes, tags_code(tag), batch_count or 1)


class LogScan:
    """The whole records from `start` on, in order.

    After the loop `position` is the log offset where it ended and `end_of_records` the one behind the last record.
    Without `durable_end` the scan ends at the first bytes that are no record. With it, it goes on over such bytes to
    the next record and ends at that log offset; `damaged` counts the places, `damage` has the first ones, from where to
    where.
    """

    def __init__(self, log: MappedLog, start: int, *, durable_end: int | None = None) -> None:
        self._log = log
        self._durable_end = durable_end
        self.position = start
        self.end_of_records = start
        self.damaged = 0
        self.damage: list[tuple[int, int]] = []

    def __iter__(self) -> Iterator[tuple[RecordOutline, int]]:
        """The outline and the size of each record."""
        while not self._is_done():
            segment = self._log.segment_at(self.position)
            if segment is None:
                if self._durable_end is None:
                    return
                self._enter_next_segment()
                continue
            view = self._log.view(segment)
            record = record_at(view, self.position - segment.start, self.position)
            if record is not None:
                yield outline_record(record), len(record)
                self.position += len(record)
                self.end_of_records = self.position
            elif is_blank(view, self.position - segment.start):
                self.position = segment.end
            elif self._durable_end is None:
                return
            else:
                self._pass_over(self._next_record(segment, view))

    def _is_done(self) -> bool:
        return self._durable_end is not None and self.position >= self._durable_end

    def _enter_next_segment(self) -> None:
        following = self._log.next_start(self.position)
        assert self._durable_end is not None
        self._pass_over(self._durable_end if following is None else following)

    def _pass_over(self, end: int) -> None:
        self.damaged += 1
        if len(self.damage) < MAX_NAMED_PLACES:
            self.damage.append((self.position, end))
        self.position = end

    def _next_record(self, segment: LogSegment, view: memoryview) -> int:
        """The log offset of the next record of the segment, or the segment's end."""
        for position in possible_records(view, self.position - segment.start + 1):
            if record_at(view, position, segment.start + position) is not None:
                return segment.start + position
        return segment.end


def is_blank(view: memoryview, position: int) -> bool:
    """Whether a segment's records end at the position."""
    if position + BLANK_BYTES > len(view):
        return True
    remaining, magic = _SIZE_AND_MAGIC.unpack_from(view, position)
    return bool(magic == MAGIC_BLANK and remaining == len(view) - position)
