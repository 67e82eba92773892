"""A stored record as one of another queue: for readers of a logic queue, who know its numbers alone."""

from __future__ import annotations

import struct
from typing import Final
from zlib import crc32

from millstream.protocol.record_checksum import CHECKSUM_BYTES, checksum_property, ends_with_checksum

__all__ = ["place_of", "place_record"]

_QUEUE_ID = struct.Struct(">i")
_QUEUE_ID_POSITION: Final = 12
_QUEUE_OFFSET = struct.Struct(">q")
_QUEUE_OFFSET_POSITION: Final = 20


def place_of(record: bytes | memoryview) -> tuple[int, int]:
    """The queue and the queue offset that a record names."""
    queue_id: int = _QUEUE_ID.unpack_from(record, _QUEUE_ID_POSITION)[0]
    queue_offset: int = _QUEUE_OFFSET.unpack_from(record, _QUEUE_OFFSET_POSITION)[0]
    return queue_id, queue_offset


def place_record(record: bytes | memoryview, queue_id: int, queue_offset: int) -> bytes | memoryview:
    """The record with that queue and queue offset, and with the checksum of the whole that goes with them."""
    if place_of(record) == (queue_id, queue_offset):
        return record
    changed = bytearray(record)
    _QUEUE_ID.pack_into(changed, _QUEUE_ID_POSITION, queue_id)
    _QUEUE_OFFSET.pack_into(changed, _QUEUE_OFFSET_POSITION, queue_offset)
    with memoryview(changed) as view:
        if ends_with_checksum(view):
            start = len(view) - CHECKSUM_BYTES
            view[start:] = checksum_property(crc32(view[:start]))
    return bytes(changed)
