"""Sequential scans of cold ranges without a cache, for jobs that read much of a queue once.

Calls wait for the object store. A scan belongs to one thread of one process.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from millstream.protocol.record import split_record, store_timestamp_ms
from millstream.tiered.checked_block import find_stored
from millstream.tiered.chunk import BlockInfo, ChunkPart, damage_of, decode_block, find_block, find_time
from millstream.tiered.cold_map import ColdRange
from millstream.tiered.footers import find_part, read_footer
from millstream.tiered.objects import ObjectStore

__all__ = ["ColdBlock", "ColdScan"]

REQUEST_BYTES: Final = 4 * 1024 * 1024
"""Bytes of an object that one request asks for, unless a single block is larger."""

KEPT_PARTS: Final = 16
"""Lists of blocks of the last objects that a scan keeps: slices of a queue meet in the middle of objects."""


@dataclass(frozen=True, slots=True)
class ColdBlock:
    """Records of one queue by offset, verified. `next_queue_offset` is behind the last."""

    first_queue_offset: int
    next_queue_offset: int
    records: list[memoryview]

    def offset_at(self, stored_ms: int) -> int | None:
        """The offset of the first record that was stored at that time or later; None where all were before."""
        number = find_stored(iter(self.records), stored_ms)
        return None if number is None else split_record(self.records[number]).queue_offset

    def stored_ms(self, queue_offset: int) -> int | None:
        """When the record with that message was stored; None where it lies before the block."""
        number = bisect_right(self.records, queue_offset, key=lambda record: split_record(record).queue_offset)
        return store_timestamp_ms(self.records[number - 1]) if number else None


@dataclass
class ColdScan:
    """Reads of one process. Raises CHUNK_DAMAGED, ObjectNotFound, ObjectStoreDenied, ObjectStoreAway."""

    objects: ObjectStore
    bytes_read: int = 0
    _parts: dict[tuple[str, str, int], ChunkPart] = field(default_factory=dict)

    def blocks(self, topic: str, queue_id: int, where: ColdRange, begin: int, end: int) -> Iterator[ColdBlock]:
        """The blocks of the range with messages from `begin` to before `end`, verified, in order.

        The first and the last block may hold others as well.
        """
        part = self._part(topic, queue_id, where)
        first = find_block(part, begin)
        if first is None:
            return
        wanted = [block for block in part.blocks[first:] if block.first_queue_offset < end]
        for together in _cut_requests(wanted):
            yield from self._read_blocks(where.key, together)

    def offset_at(self, topic: str, queue_id: int, where: ColdRange, stored_ms: int) -> int | None:
        """The first offset of the range that was stored at that time or later; None where all were before."""
        info = find_time(self._part(topic, queue_id, where), stored_ms)
        if info is None:
            return None
        if info.first_stored_ms >= stored_ms:
            return info.first_queue_offset
        [block] = self._read_blocks(where.key, [info])
        return block.offset_at(stored_ms)

    def _read_blocks(self, key: str, together: Sequence[BlockInfo]) -> Iterator[ColdBlock]:
        """Blocks that follow one another in the object."""
        start = together[0].position
        [data] = self._read(key, [(start, together[-1].position + together[-1].size_bytes)])
        for info in together:
            frame = data[info.position - start : info.position - start + info.size_bytes]
            records = decode_block(key, info, frame)
            yield ColdBlock(info.first_queue_offset, info.next_queue_offset, records)

    def _part(self, topic: str, queue_id: int, where: ColdRange) -> ChunkPart:
        place = where.key, topic, queue_id
        known = self._parts.pop(place, None)
        if known is None:
            footer, _ = read_footer(where.key, where.size_bytes, self._read)
            found = find_part(footer, topic, queue_id)
            if found is None:
                raise damage_of(where.key, f"it has nothing of {topic}/{queue_id}")
            known = found[1]
        self._parts[place] = known
        if len(self._parts) > KEPT_PARTS:
            del self._parts[next(iter(self._parts))]
        return known

    def _read(self, key: str, ranges: list[tuple[int, int]]) -> list[bytes]:
        try:
            found = self.objects.get_many(key, ranges)
        except ValueError as error:
            # The object is shorter than its row or its own footer says.
            raise damage_of(key, str(error)) from error
        self.bytes_read += sum(map(len, found))
        return found


def _cut_requests(blocks: Sequence[BlockInfo]) -> Iterator[list[BlockInfo]]:
    """Blocks that follow one another in the object, those of one request together."""
    together: list[BlockInfo] = []
    for block in blocks:
        if together:
            follows = block.position == together[-1].position + together[-1].size_bytes
            if not follows or block.position + block.size_bytes - together[0].position > REQUEST_BYTES:
                yield together
                together = []
        together.append(block)
    if together:
        yield together
