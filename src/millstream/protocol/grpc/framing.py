"""gRPC over HTTP/2: message prefix, timeout, status codes, and trailers.

The format is that of the document PROTOCOL-HTTP2 of gRPC.
"""

from __future__ import annotations

import zlib
from enum import IntEnum
from struct import Struct
from typing import Final

__all__ = [
    "PREFIX",
    "PREFIX_BYTES",
    "GrpcStatus",
    "InflatedTooLarge",
    "encode_status_message",
    "inflate_message",
    "parse_timeout_s",
]

PREFIX: Final = Struct("!BI")
"""Before each message: whether it is compressed, and its length."""

PREFIX_BYTES: Final = 5

_UNITS_S: Final = {"H": 3600.0, "M": 60.0, "S": 1.0, "m": 1e-3, "u": 1e-6, "n": 1e-9}
_MAX_TIMEOUT_DIGITS: Final = 8
_GZIP: Final = zlib.MAX_WBITS | 16


class GrpcStatus(IntEnum):
    """How a call ended."""

    OK = 0
    CANCELLED = 1
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    UNAUTHENTICATED = 16


class InflatedTooLarge(ValueError):
    """A compressed message grows beyond the limit."""


def parse_timeout_s(text: str) -> float | None:
    """Seconds of the header `grpc-timeout`, as in `500m`; None for what is no timeout."""
    digits, unit = text[:-1], _UNITS_S.get(text[-1:])
    if unit is None or not digits.isascii() or not digits.isdecimal() or len(digits) > _MAX_TIMEOUT_DIGITS:
        return None
    return int(digits) * unit


def encode_status_message(words: str) -> str:
    """The words of a status as they stand in a header: printable ASCII but for the percent sign, the rest escaped."""
    return "".join([chr(byte) if 0x20 <= byte <= 0x7E and byte != 0x25 else f"%{byte:02X}" for byte in words.encode()])


def inflate_message(data: bytes, limit_bytes: int) -> bytes:
    """A message that was compressed with gzip. InflatedTooLarge over the limit, ValueError for what is no gzip."""
    inflater = zlib.decompressobj(_GZIP)
    try:
        message = inflater.decompress(data, limit_bytes + 1)
    except zlib.error as error:
        raise ValueError(str(error)) from None
    if len(message) > limit_bytes:
        raise InflatedTooLarge(f"The message grows beyond {limit_bytes} bytes.")
    if not inflater.eof or inflater.unused_data:
        raise ValueError("it ends before its end, or goes on behind it")
    return message
