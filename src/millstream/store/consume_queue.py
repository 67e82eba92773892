"""Where the records of one queue stand in the log: 20 bytes a record, found by the queue offset.

An entry is `int64 log offset | int32 size | int64 tags code`, big-endian, in files of a fixed number of entries named
by the 20 digits of the byte they start at. Source of the layout: RocketMQ 5.3 (facts only).

The log is the truth. New entries stay in memory (`tail`), where readers find them, until a checkpoint writes them in
one go; a crash before that costs a scan of the log from the checkpoint on. An entry of size 0 and tags code -1 stands
for a record that was found damaged while the file was made again; it names the log offset of the next whole one.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from millstream.model.errors import StoreError
from millstream.model.filter import java_hash_code
from millstream.store.files import FileLayer, OpenFiles

__all__ = ["ENTRY", "ENTRY_BYTES", "LOST_TAGS_CODE", "ConsumeQueue", "IndexEntry", "tags_code"]

ENTRY = struct.Struct(">qiq")
ENTRY_BYTES = ENTRY.size
LOST_TAGS_CODE = -1
"""With size 0: the entry of a lost record. Zeros alone would be what a file's torn end looks like."""

_NAME_DIGITS = 20
_CACHED_TAGS = 4096


@lru_cache(maxsize=_CACHED_TAGS)
def tags_code(tag: str | None) -> int:
    """What an entry holds of a message's tag: its Java hash code, 0 without one."""
    return java_hash_code(tag) if tag else 0


class IndexEntry(NamedTuple):
    """One record of a queue and where it stands. A tuple, because one is made for every record read.

    `tags_code` is the Java hash code of the tag, 0 without one. `size_bytes` 0 means that the record is lost.
    """

    queue_offset: int
    log_offset: int
    size_bytes: int
    tags_code: int


class ConsumeQueue:
    """The entries from `min_offset` up to but without `next_offset`.

    `visible_offset` is how far readers may look; the store moves it. Not safe for use by several threads at once but
    for `write`, which touches nothing but the files.
    """

    def __init__(
        self, topic: str, queue_id: int, directory: Path, entries_per_file: int, files: FileLayer, opened: OpenFiles
    ) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self.directory = directory
        self.min_offset = 0
        self.tail_offset = 0
        self.tail = bytearray()
        self.visible_offset = 0
        self._file_bytes = entries_per_file * ENTRY_BYTES
        self._files = files
        self._opened = opened

    @property
    def next_offset(self) -> int:
        """The queue offset of the next record."""
        return self.tail_offset + len(self.tail) // ENTRY_BYTES

    def start_at(self, min_offset: int, next_offset: int) -> None:
        """Take the entries from `min_offset` to `next_offset` as being in the files, and none in memory."""
        self.min_offset, self.tail_offset, self.visible_offset = min_offset, next_offset, next_offset
        self.tail.clear()

    def add(self, queue_offset: int, log_offset: int, size_bytes: int, tags_code: int) -> None:
        """Append a record that a scan has found; offsets passed over become entries of lost records.

        The first entry of an empty queue sets `min_offset`. A queue offset that is there already is passed over.
        """
        following = self.next_offset
        if queue_offset < following:
            return
        if queue_offset > following or self.min_offset == following:
            self.skip_to(queue_offset, log_offset)
        self.tail += ENTRY.pack(log_offset, size_bytes, tags_code)

    def skip_to(self, next_offset: int, log_offset: int) -> None:
        """Let the queue go on at `next_offset`, with entries of lost records up to there unless it is empty."""
        following = self.next_offset
        if self.min_offset == following:
            self.start_at(next_offset, next_offset)
        else:
            self.tail += ENTRY.pack(log_offset, 0, LOST_TAGS_CODE) * (next_offset - following)

    def entries(self, queue_offset: int, max_count: int) -> list[IndexEntry]:
        """At most `max_count` visible entries from `queue_offset` (or `min_offset`, if that is later) on."""
        first = max(queue_offset, self.min_offset)
        end = min(first + max_count, self.visible_offset)
        if first >= end:
            return []
        packed = b""
        if first < self.tail_offset:
            packed = self._read(first, min(end, self.tail_offset))
        if end > self.tail_offset:
            start = max(first - self.tail_offset, 0) * ENTRY_BYTES
            packed += self.tail[start : (end - self.tail_offset) * ENTRY_BYTES]
        return [IndexEntry(number, *fields) for number, fields in enumerate(ENTRY.iter_unpack(packed), start=first)]

    def entry(self, queue_offset: int) -> IndexEntry:
        """The entry of a queue offset that is visible."""
        return self.entries(queue_offset, 1)[0]

    def _read(self, first: int, end: int) -> bytes:
        parts = []
        for path, position, length in self._pieces(first * ENTRY_BYTES, (end - first) * ENTRY_BYTES):
            try:
                part = self._files.pread(self._opened.descriptor(path), length, position)
            except FileNotFoundError:
                part = b""
            if len(part) < length:
                raise StoreError("RECORD_DAMAGED", f"The consume queue file {path} is missing or too short.")
            parts.append(part)
        return b"".join(parts)

    def _pieces(self, start: int, length: int) -> list[tuple[Path, int, int]]:
        pieces = []
        while length:
            file_start = start - start % self._file_bytes
            piece = min(length, file_start + self._file_bytes - start)
            pieces.append((self.directory / f"{file_start:0{_NAME_DIGITS}}", start - file_start, piece))
            start, length = start + piece, length - piece
        return pieces

    def write(self, first: int, packed: bytes) -> None:
        """Put entries from the queue offset `first` on into the files; they are on the disk when this returns."""
        self._files.make_directory(self.directory)
        done = 0
        for path, position, length in self._pieces(first * ENTRY_BYTES, len(packed)):
            is_new = not self._files.exists(path)
            with self._files.opened(path, create=True) as descriptor:
                self._files.pwrite(descriptor, packed[done : done + length], position)
                self._files.fdatasync(descriptor)
            if is_new:
                self._files.sync_directory(self.directory)
            done += length

    def forget_written(self, packed_bytes: int) -> None:
        """Leave the first bytes of the tail to the files from here on."""
        del self.tail[:packed_bytes]
        self.tail_offset += packed_bytes // ENTRY_BYTES
