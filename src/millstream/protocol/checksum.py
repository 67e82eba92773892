"""Checksums: of a whole record (its last property), and of bytes from the checksums of their parts."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from millstream.model.message import OutgoingMessage

try:
    # The same sums by the processor's carry-less multiplication: a fourth of the time for a short record.
    from isal.isal_zlib import crc32
except ImportError:
    from zlib import crc32

__all__ = [
    "CHECKSUM_BYTES",
    "CHECKSUM_START",
    "CRC_MASK",
    "MAX_FOLLOWING_BYTES",
    "CheckedMessage",
    "body_crc32",
    "checksum_property",
    "combine_crc32",
    "crc32",
    "ends_with_checksum",
    "has_checksum",
    "write_number",
]


CHECKSUM_START: Final = b"__CRC32#\x01"
"""What the property begins with; ten digits and the end of a value follow."""

_START: Final = CHECKSUM_START
_START_BYTES: Final = len(_START)
_DIGITS: Final = 10
_ZERO: Final = 0x30
_END_OF_VALUE: Final = 2
CRC_MASK: Final = 0x7FFFFFFF
"""The bits of a CRC-32 that are kept."""

_KEPT_BITS: Final = CRC_MASK

CHECKSUM_BYTES: Final = len(_START) + _DIGITS + 1
"""Bytes of the property."""


_LOWEST_FIRST: Final = tuple((b"%03d" % number)[::-1] for number in range(1000))
"""Three digits, the lowest first, in which order the property has them."""

_ENDS: Final = (b"0\x02", b"1\x02", b"2\x02")
"""The highest digit and the end."""

_PROPERTY: Final = bytearray(CHECKSUM_START + bytes(_DIGITS) + b"\x02")
_IS_COMPILED: Final = not __file__.endswith(".py")


def checksum_property(crc: int) -> bytes:
    """The property for the CRC-32 of all that stands before it."""
    crc &= _KEPT_BITS
    if _IS_COMPILED:
        # Digit by digit, which in C costs less than the pieces to join.
        written, left = _PROPERTY, crc
        for place in range(_START_BYTES, _START_BYTES + _DIGITS):
            digit = _ZERO + left % 10
            written[place] = digit
            left //= 10
        return bytes(written)
    low, middle, high = _LOWEST_FIRST[crc % 1000], _LOWEST_FIRST[crc // 1000 % 1000], _LOWEST_FIRST[crc // 10**6 % 1000]
    return b"".join((_START, low, middle, high, _ENDS[crc // 10**9]))


def has_checksum(data: bytes, at: int, crc: int) -> bool:
    """Whether the property for the CRC-32 stands there, where `CHECKSUM_BYTES` of the data are.

    It looks digit by digit, which in C costs less than to write the property and compare; in Python it costs more.
    """
    left = crc & _KEPT_BITS
    for number in range(_START_BYTES):
        if data[at + number] != _START[number]:
            return False
    first_digit = at + _START_BYTES
    for place in range(first_digit, first_digit + _DIGITS):
        if data[place] != _ZERO + left % 10:
            return False
        left //= 10
    return data[first_digit + _DIGITS] == _END_OF_VALUE


def write_number(buffer: bytearray, at: int, size: int, number: int) -> None:
    """Write the lowest `size` bytes of a whole number there, the highest of them first."""
    for place in range(at + size - 1, at - 1, -1):
        byte = number & 0xFF
        buffer[place] = byte
        number >>= 8


def ends_with_checksum(record: memoryview) -> bool:
    """Whether the property is there, right or wrong; records of other writers have none."""
    return bytes(record[-CHECKSUM_BYTES : -_DIGITS - 1]) == _START


MAX_FOLLOWING_BYTES: Final = (1 << 24) - 1
"""Bytes of the second part at most."""

_POLYNOMIAL: Final = 0xEDB88320
_ONE: Final = 1 << 31
_BYTE: Final = 1 << 23
"""x to the power of 8, by which a following byte multiplies."""

_KEPT_FACTORS: Final = 3 * 256


@dataclass(slots=True)
class CheckedMessage(OutgoingMessage):
    """A message whose body somebody has read for its CRC-32, which is `crc32`. Never replace the body alone."""

    crc32: int = 0


def body_crc32(message: OutgoingMessage) -> int:
    """The CRC-32 of the message's body, taken from a `CheckedMessage`, else made."""
    return message.crc32 if isinstance(message, CheckedMessage) else crc32(message.body)


def combine_crc32(first: int, second: int, second_bytes: int) -> int:
    """The CRC-32 of two parts that follow one another, of which the second has `second_bytes` bytes.

    Costs some microseconds, whatever the length. ValueError for more than `MAX_FOLLOWING_BYTES`.
    """
    if not 0 <= second_bytes <= MAX_FOLLOWING_BYTES:
        raise ValueError(f"{second_bytes} bytes; 0 to {MAX_FOLLOWING_BYTES} are possible")
    for place, digit in enumerate(second_bytes.to_bytes(3, "little")):
        if digit:
            first = _product(_factor(place, digit), first)
    return first ^ second


@lru_cache(maxsize=_KEPT_FACTORS)
def _factor(place: int, digit: int) -> int:
    """The power of x for `digit * 256**place` bytes."""
    power, square = _ONE, _BYTE
    for _ in range(8 * place):
        square = _product(square, square)
    while digit:
        if digit & 1:
            power = _product(power, square)
        square = _product(square, square)
        digit >>= 1
    return power


def _product(left: int, right: int) -> int:
    product, bit = 0, _ONE
    while left:
        if left & bit:
            product ^= right
            left ^= bit
        bit >>= 1
        right = right >> 1 ^ (_POLYNOMIAL if right & 1 else 0)
    return product
