"""One immutable generation of a compacted queue: `data` holds the records, `index` their rows."""

from __future__ import annotations

import struct
from bisect import bisect_left
from pathlib import Path
from typing import Self

from millstream.model.errors import StoreError
from millstream.protocol.checksum import crc32
from millstream.protocol.record import MIN_RECORD_BYTES, verify_record
from millstream.store.compaction.header import GenerationHeader
from millstream.store.compaction.row import OFFSET_OF_ROW, ROW, ROW_BYTES
from millstream.store.consume_queue import IndexEntry
from millstream.store.files import FileLayer

__all__ = ["COMPACTED_BIT", "CompactedEntry", "Generation", "map_file"]

COMPACTED_BIT = 1 << 62
"""Set in the log offset of an entry whose record is in a generation: no log reaches so far."""

_PLACE = struct.Struct(">12xi4xq")
"""Queue number and queue offset at the head of a record."""


class CompactedEntry(IndexEntry):
    """An entry whose record is in a generation, which it keeps readable whatever compaction does meanwhile.

    `log_offset` is the position in the generation's data with `COMPACTED_BIT` set, so no log takes it for its own.
    """

    generation: Generation


def map_file(path: Path, files: FileLayer) -> memoryview:
    """The whole file without a copy; nothing where it is missing."""
    return files.map_file(path) if files.exists(path) else memoryview(b"")


class Generation:
    """The rows and records of one generation, mapped. Fit for any thread; readable as long as it is held."""

    def __init__(self, header: GenerationHeader, index: memoryview, data: memoryview) -> None:
        self.header = header
        self.index = index
        self.data = data

    @classmethod
    def open(cls, directory: Path, header: GenerationHeader, files: FileLayer) -> Self | None:
        """The generation that `header` describes, or None if its index is missing or damaged.

        Data that is missing or damaged costs the records that were there: reading them says so.
        """
        index = map_file(directory / "index", files)
        if len(index) != header.rows * ROW_BYTES or crc32(index) != header.index_crc:
            return None
        return cls(header, index, map_file(directory / "data", files))

    @property
    def has_all_data(self) -> bool:
        """Whether the data is as long as it was written."""
        return len(self.data) == self.header.data_bytes

    def row_at(self, queue_offset: int) -> int:
        """The number of the first row at or behind the queue offset; the number of rows if there is none."""
        return bisect_left(range(self.header.rows), queue_offset, key=self._offset_of_row)

    def _offset_of_row(self, number: int) -> int:
        queue_offset: int = OFFSET_OF_ROW.unpack_from(self.index, number * ROW_BYTES)[0]
        return queue_offset

    def entries(self, queue_offset: int, max_count: int) -> list[IndexEntry]:
        """At most `max_count` entries at or behind the queue offset. Offsets without a record are passed over."""
        start = self.row_at(queue_offset) * ROW_BYTES
        entries: list[IndexEntry] = []
        for number, position, size_bytes, tags_code, _, _ in ROW.iter_unpack(
            self.index[start : start + max(max_count, 0) * ROW_BYTES]
        ):
            entry = CompactedEntry(number, COMPACTED_BIT | position, size_bytes, tags_code)
            entry.generation = self
            entries.append(entry)
        return entries

    def read(self, entry: IndexEntry) -> memoryview:
        """The whole record of one of this generation's entries, not copied, verified. Raises RECORD_DAMAGED."""
        position = entry.log_offset & ~COMPACTED_BIT
        record = self.data[position : position + entry.size_bytes]
        if len(record) < MIN_RECORD_BYTES or not verify_record(record) or not self._is_named_by(record, entry):
            header = self.header
            raise StoreError(
                "RECORD_DAMAGED",
                f"The record of {entry.size_bytes} bytes at queue offset {entry.queue_offset} of the compacted queue "
                f"{header.topic}/{header.queue_id}, generation {header.number}, is damaged or missing.",
            )
        return record

    def _is_named_by(self, record: memoryview, entry: IndexEntry) -> bool:
        return bool(_PLACE.unpack_from(record) == (self.header.queue_id, entry.queue_offset))
