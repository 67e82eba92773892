"""The checksum of a whole record, which is its last property: `__CRC32#\\x01` and ten digits, lowest first."""

from __future__ import annotations

from typing import Final

__all__ = ["CHECKSUM_BYTES", "checksum_property", "ends_with_checksum"]

_START: Final = b"__CRC32#\x01"
_DIGITS: Final = 10
_MASK: Final = 0x7FFFFFFF

CHECKSUM_BYTES: Final = len(_START) + _DIGITS + 1
"""Bytes of the property."""


def checksum_property(crc: int) -> bytes:
    """The property for the CRC-32 of all that stands before it."""
    # Written backward as a whole, because the digits stand lowest first.
    return (b"\x02%010d\x01#23CRC__" % (crc & _MASK))[::-1]


def ends_with_checksum(record: memoryview) -> bool:
    """Whether the property is there, right or wrong; records of other writers have none."""
    return bytes(record[-CHECKSUM_BYTES : -_DIGITS - 1]) == _START
