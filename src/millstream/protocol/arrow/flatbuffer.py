"""Reads an untrusted flatbuffer: every position is checked before use.

A table begins with an int32 back to its vtable: uint16 size of the vtable, uint16 size of the table, then a uint16
position per field (0: absent). Strings, vectors and tables are reached by a uint32 forward. Little-endian.
Source: the FlatBuffers format's public description.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

__all__ = ["FlatbufferTable", "Misfit", "root_table"]

_INT16: Final = struct.Struct("<h")
_INT32: Final = struct.Struct("<i")
_INT64: Final = struct.Struct("<q")
_UINT8: Final = struct.Struct("<B")
_UINT16: Final = struct.Struct("<H")
_UINT32: Final = struct.Struct("<I")
_OFFSET_BYTES: Final = 4
_VTABLE_HEAD_BYTES: Final = 4


class Misfit(ValueError):
    """The bytes do not fit their format; the text says where."""


def root_table(data: bytes) -> FlatbufferTable:
    """The table that a flatbuffer begins with."""
    return _table(data, _forward(data, 0))


@dataclass(frozen=True, slots=True)
class FlatbufferTable:
    """One table. Each reader takes the number of a field and gives the default where it is absent; raises Misfit."""

    data: bytes
    start: int
    vtable: int
    vtable_bytes: int
    table_bytes: int

    def has(self, field: int) -> bool:
        """Whether the field is there."""
        return self._position(field, 0) != 0

    def uint8(self, field: int) -> int:
        """A byte, a union's type or an enum of one byte."""
        return self._number(_UINT8, field)

    def int16(self, field: int) -> int:
        """A number of two bytes."""
        return self._number(_INT16, field)

    def int64(self, field: int) -> int:
        """A number of eight bytes."""
        return self._number(_INT64, field)

    def table(self, field: int) -> FlatbufferTable | None:
        """The table of a field."""
        position = self._position(field, _OFFSET_BYTES)
        return _table(self.data, _forward(self.data, position)) if position else None

    def text(self, field: int) -> str | None:
        """A string."""
        position = self._position(field, _OFFSET_BYTES)
        if not position:
            return None
        start, count = _vector(self.data, _forward(self.data, position), 1)
        if self.data[start + count : start + count + 1] != b"\0":
            raise Misfit(f"a name at {start} has no end")
        try:
            return str(self.data[start : start + count], "utf-8")
        except UnicodeDecodeError:
            raise Misfit(f"a name at {start} is not UTF-8") from None

    def count(self, field: int) -> int:
        """How many elements of four bytes or more the vector of a field has."""
        position = self._position(field, _OFFSET_BYTES)
        return _vector(self.data, _forward(self.data, position), _OFFSET_BYTES)[1] if position else 0

    def tables(self, field: int, limit: int) -> list[FlatbufferTable]:
        """A vector of at most `limit` tables."""
        position = self._position(field, _OFFSET_BYTES)
        if not position:
            return []
        start, count = _vector(self.data, _forward(self.data, position), _OFFSET_BYTES)
        if count > limit:
            raise Misfit(f"{count} elements where {limit} are allowed")
        places = range(start, start + count * _OFFSET_BYTES, _OFFSET_BYTES)
        return [_table(self.data, _forward(self.data, place)) for place in places]

    def pairs(self, field: int, limit: int) -> list[tuple[int, int]]:
        """A vector of at most `limit` structs of two int64."""
        position = self._position(field, _OFFSET_BYTES)
        if not position:
            return []
        start, count = _vector(self.data, _forward(self.data, position), 2 * _INT64.size)
        if count > limit:
            raise Misfit(f"{count} elements where {limit} are allowed")
        numbers = struct.unpack_from(f"<{2 * count}q", self.data, start)
        return list(zip(numbers[::2], numbers[1::2], strict=True))

    def _number(self, layout: struct.Struct, field: int) -> int:
        position = self._position(field, layout.size)
        number: int = layout.unpack_from(self.data, position)[0] if position else 0
        return number

    def _position(self, field: int, size: int) -> int:
        slot = _VTABLE_HEAD_BYTES + 2 * field
        if slot + 2 > self.vtable_bytes:
            return 0
        inside: int = _UINT16.unpack_from(self.data, self.vtable + slot)[0]
        if inside == 0:
            return 0
        if inside < _OFFSET_BYTES or inside + size > self.table_bytes:
            raise Misfit(f"field {field} of the table at {self.start} lies outside of it")
        if size and (self.start + inside) % size:
            raise Misfit(f"field {field} of the table at {self.start} is not aligned")
        return self.start + inside


def _table(data: bytes, start: int) -> FlatbufferTable:
    if start % _OFFSET_BYTES or start + _OFFSET_BYTES > len(data):
        raise Misfit(f"a table at {start} of {len(data)} bytes")
    vtable: int = start - _INT32.unpack_from(data, start)[0]
    if vtable < 0 or vtable % 2 or vtable + _VTABLE_HEAD_BYTES > len(data):
        raise Misfit(f"a vtable at {vtable} of {len(data)} bytes")
    vtable_bytes = _UINT16.unpack_from(data, vtable)[0]
    table_bytes = _UINT16.unpack_from(data, vtable + 2)[0]
    if vtable_bytes < _VTABLE_HEAD_BYTES or vtable_bytes % 2 or vtable + vtable_bytes > len(data):
        raise Misfit(f"a vtable of {vtable_bytes} bytes at {vtable} of {len(data)} bytes")
    if table_bytes < _OFFSET_BYTES or start + table_bytes > len(data):
        raise Misfit(f"a table of {table_bytes} bytes at {start} of {len(data)} bytes")
    return FlatbufferTable(data, start, vtable, vtable_bytes, table_bytes)


def _forward(data: bytes, position: int) -> int:
    if position + _OFFSET_BYTES > len(data):
        raise Misfit(f"an offset at {position} of {len(data)} bytes")
    offset: int = _UINT32.unpack_from(data, position)[0]
    if offset == 0:
        raise Misfit(f"an offset at {position} leads to itself")
    return position + offset


def _vector(data: bytes, position: int, element_bytes: int) -> tuple[int, int]:
    """Where the elements of a vector begin, and how many there are."""
    if position % _OFFSET_BYTES or position + _OFFSET_BYTES > len(data):
        raise Misfit(f"a vector at {position} of {len(data)} bytes")
    count: int = _UINT32.unpack_from(data, position)[0]
    start = position + _OFFSET_BYTES
    # A vector of no elements needs no alignment; one of structs of int64 does.
    if count * element_bytes > len(data) - start or start % min(element_bytes, _INT64.size):
        raise Misfit(f"a vector of {count} elements at {position} of {len(data)} bytes")
    return start, count
