"""Verifies objects against the cold map byte by byte, and finds orphans. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from millstream.model.errors import StoreError
from millstream.protocol.checksum import crc32
from millstream.tiered.chunk import TAIL_BYTES, ChunkPart, decode_block, decode_footer, decode_key_table, footer_range
from millstream.tiered.cold_map import ColdMap, ColdObject, ColdPart
from millstream.tiered.objects import ObjectInfo

__all__ = ["ORPHAN_MS", "find_orphans", "verify_object"]

ORPHAN_MS: Final = 24 * 60 * 60 * 1000
"""Milliseconds after which an object that no row names belongs to no upload that is still under way."""


def verify_object(row: ColdObject, data: bytes) -> str:
    """What is wrong with the object, of which `data` is all; blank where all of it is as its row says."""
    if len(data) != row.size_bytes:
        return f"it has {len(data)} bytes, not {row.size_bytes}"
    try:
        tail = data[-TAIL_BYTES:]
        start, end = footer_range(row.key, len(data), tail)
        footer = decode_footer(row.key, data[start:end], tail)
        parts = {(part.topic, part.queue_id): part for part in footer.parts}
        for part in footer.parts:
            _decode(row.key, part, data)
    except StoreError as error:
        return error.message
    for wanted in row.parts:
        found = parts.get((wanted.topic, wanted.queue_id))
        if found is None or not _holds(found, wanted):
            offsets = f"{wanted.first_queue_offset} to {wanted.next_queue_offset - 1}"
            return f"it lacks the offsets {offsets} of {wanted.topic}/{wanted.queue_id}"
    return "" if crc32(data) == row.checksum else "its bytes fail the checksum of its row"


def find_orphans(cold: ColdMap, found: Iterable[ObjectInfo], kept_prefix: str, now_ms: int) -> Iterator[ObjectInfo]:
    """The objects that no row names, neither as found by readers nor as removed nor as begun, and that are old enough.

    Nor are those below `kept_prefix` among them.
    """
    named = {one.key for row in cold.rows.values() for one in row.objects or ()}
    named.update(key for row in cold.rows.values() for key in row.removed_ms)
    begun = tuple(f"{name}/" for name in cold.begun)
    for info in found:
        is_kept = info.key in named or info.key.startswith((*begun, kept_prefix))
        if not is_kept and info.modified_ms < now_ms - ORPHAN_MS:
            yield info


def _decode(key: str, part: ChunkPart, data: bytes) -> None:
    """Raises CHUNK_DAMAGED."""
    for block in part.blocks:
        decode_block(key, block, data[block.position : block.position + block.size_bytes])
    if part.keys is not None:
        decode_key_table(key, part.keys, data[part.keys.position : part.keys.position + part.keys.size_bytes])


def _holds(found: ChunkPart, wanted: ColdPart) -> bool:
    offsets = found.first_queue_offset, found.next_queue_offset
    return offsets == (wanted.first_queue_offset, wanted.next_queue_offset)
