"""Records of one queue that are read together: copied out of the log in as few pieces as they stand in, checked in one
pass.

A damaged record is never served: each read checks each record against its index entry and its own checksum.
"""

from __future__ import annotations

import struct
from typing import Final

from millstream.protocol.checksum import CHECKSUM_BYTES, checksum_property, crc32, has_checksum
from millstream.protocol.record import MIN_RECORD_BYTES

__all__ = ["Place", "copy_checked_run", "copy_records", "is_checked_run", "number_at"]

Place = tuple[int, int, int]
"""What the index says of a record: log offset, size and tags code."""

_PLACE: Final = struct.Struct(">i16xqq")
"""Size, queue offset and log offset, as a record begins with them."""

_QUEUE_OFFSET_AT: Final = 20
_LOG_OFFSET_AT: Final = 28
_IS_COMPILED: Final = not __file__.endswith(".py")

_unpack_place = _PLACE.unpack_from
_LEAST_BYTES: Final = MIN_RECORD_BYTES
_ENTRY: Final = struct.Struct(">qiq")
_ENTRY_BYTES: Final = _ENTRY.size
_SIZE_AT: Final = 8
_HIGHEST_SIZE: Final = (1 << 31) - 1
_CHECKSUM_BYTES: Final = CHECKSUM_BYTES


def copy_records(view: memoryview, view_offset: int, places: list[Place], max_bytes: int) -> bytes | None:
    """The bytes at the places, one behind the other; None where `view` (the log from `view_offset` on) does not have
    them all, or they are more than `max_bytes`."""
    size_bytes = 0
    for _, size, _ in places:
        size_bytes += size
    start = places[0][0] - view_offset
    last, last_size, _ = places[-1]
    end = last + last_size - view_offset
    if size_bytes > max_bytes or start < 0 or not start < end <= len(view):
        return None
    if end - start == size_bytes:
        return bytes(view[start:end])
    data = b"".join([view[place - view_offset : place - view_offset + size] for place, size, _ in places])
    return data if len(data) == size_bytes else None


def is_checked_run(data: bytes, places: list[Place], queue_offset: int) -> bool:
    """Whether `data` holds the records of the places and nothing else, each whole; the first has that queue offset.

    A `queue_offset` below 0 is that of a light queue, which its records do not say.
    """
    at = 0
    for place, size, _ in places:
        end = at + size
        if size < _LEAST_BYTES or end > len(data):
            return False
        checked = end - _CHECKSUM_BYTES
        crc = crc32(data[at:checked])
        if _IS_COMPILED:
            # Byte by byte, which in C costs less than the objects to compare.
            if not _begins_with(data, at, size, queue_offset, place) or not has_checksum(data, checked, crc):
                return False
        elif data[checked:end] != checksum_property(crc):
            return False
        else:
            own_size, own_offset, own_place = _unpack_place(data, at)
            if own_size != size or own_place != place or (own_offset != queue_offset and queue_offset >= 0):
                return False
        at = end
        if queue_offset >= 0:
            queue_offset += 1
    return at == len(data)


def copy_checked_run(
    view: memoryview, view_offset: int, packed: bytes, max_bytes: int, queue_offset: int
) -> bytes | None:
    """What `copy_records` gives for places as the index has them packed, at least one, if `is_checked_run` of it."""
    if not _IS_COMPILED:
        places = [*_ENTRY.iter_unpack(packed)]
        data = copy_records(view, view_offset, places, max_bytes)
        return data if data is not None and is_checked_run(data, places, queue_offset) else None
    first = number_at(packed, 0, 8)
    size_bytes, at, is_whole = 0, 0, True
    while at < len(packed):
        size = number_at(packed, at + _SIZE_AT, 4)
        if size < _LEAST_BYTES or size > _HIGHEST_SIZE:
            return None
        is_whole = is_whole and number_at(packed, at, 8) == first + size_bytes
        size_bytes += size
        at += _ENTRY_BYTES
    start = first - view_offset
    if size_bytes > max_bytes or start < 0 or start + size_bytes > len(view):
        return None
    data = (
        bytes(view[start : start + size_bytes])
        if is_whole
        else copy_records(view, view_offset, [*_ENTRY.iter_unpack(packed)], max_bytes)
    )
    if data is None:
        return None
    at = begin = 0
    while at < len(packed):
        place, size = number_at(packed, at, 8), number_at(packed, at + _SIZE_AT, 4)
        checked = begin + size - _CHECKSUM_BYTES
        if not _begins_with(data, begin, size, queue_offset, place):
            return None
        if not has_checksum(data, checked, crc32(data[begin:checked])):
            return None
        begin += size
        at += _ENTRY_BYTES
        if queue_offset >= 0:
            queue_offset += 1
    return data


def _begins_with(data: bytes, at: int, size: int, queue_offset: int, log_offset: int) -> bool:
    """Whether a record says so of itself; a negative queue offset stands for any."""
    return (
        number_at(data, at, 4) == size
        and (queue_offset < 0 or not number_at(data, at + _QUEUE_OFFSET_AT, 8) - queue_offset)
        and number_at(data, at + _LOG_OFFSET_AT, 8) == log_offset
    )


def number_at(data: bytes, at: int, size: int) -> int:
    """The number of `size` bytes that stands there, without a sign; IndexError where it does not."""
    number = 0
    for place in range(at, at + size):
        number = number << 8 | data[place]
    return number
