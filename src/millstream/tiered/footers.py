"""Cached chunk footers, which locate blocks inside an object."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from millstream.tiered.chunk import TAIL_BYTES, ChunkFooter, ChunkPart, decode_footer, footer_range

__all__ = ["ReadRanges", "find_part", "read_footer"]

END_BYTES: Final = 64 * 1024
"""Bytes from an object's end on that are asked for at first: most footers are shorter."""

ReadRanges = Callable[[str, list[tuple[int, int]]], list[bytes]]
"""Gives the bytes of ranges of an object. Raises what the object store raises."""


def read_footer(key: str, size_bytes: int, read: ReadRanges) -> tuple[ChunkFooter, int]:
    """The footer of an object of that size, and the bytes that it has there. Raises CHUNK_DAMAGED and as `read`."""
    begin = max(0, size_bytes - END_BYTES)
    [data] = read(key, [(begin, size_bytes)])
    start, end = footer_range(key, size_bytes, data[-TAIL_BYTES:])
    packed = data[start - begin : end - begin] if start >= begin else read(key, [(start, end)])[0]
    return decode_footer(key, packed, data[-TAIL_BYTES:]), len(packed)


def find_part(footer: ChunkFooter, topic: str, queue_id: int) -> tuple[int, ChunkPart] | None:
    """The number and the part of a queue; None where the object has nothing of it."""
    for number, part in enumerate(footer.parts):
        if part.queue_id == queue_id and part.topic == topic:
            return number, part
    return None
