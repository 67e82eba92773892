"""Bodies as consumers get them: never compressed, because client libraries disagree on how to unpack."""

from __future__ import annotations

import logging
import sys
import zlib
from hashlib import md5

import lz4.frame

from millstream.model.clock import SystemClock
from millstream.model.message import MAX_BODY_BYTES, StoredMessage, SystemFlag
from millstream.transport.heavy_work import HEAVY_BYTES
from millstream.transport.strangers import StrangerAct, StrangerLog

if sys.version_info >= (3, 14):
    from compression.zstd import ZstdDecompressor, ZstdError
else:
    from backports.zstd import ZstdDecompressor, ZstdError

__all__ = ["MAX_UNPACKED_BYTES", "light_body", "md5_text", "plain_body"]

_log = logging.getLogger(__name__)
_strangers = StrangerLog(SystemClock())

MAX_UNPACKED_BYTES = MAX_BODY_BYTES
"""Bytes of an unpacked body at most, as of one that is sent plain; one that would grow beyond is unpacked no further
and delivered as it is stored."""

_HEAVY_PLAIN_BYTES = 4 * HEAVY_BYTES
"""A plain body is checked and copied alone, which is quicker."""

_COMPRESSED = int(SystemFlag.COMPRESSED)
_GZIP_OR_ZLIB = zlib.MAX_WBITS | 32
_UNPACKING_ERRORS = (zlib.error, RuntimeError, ZstdError, EOFError)


def plain_body(message: StoredMessage) -> bytes:
    """The body, unpacked if its record says that it is compressed (gzip, zlib, lz4 frame or zstd, told by its first
    bytes). A body that cannot be unpacked is delivered as it is stored: refusing it would stop its queue."""
    if not int(message.system_flag) & _COMPRESSED:
        return message.body
    try:
        unpacked = _unpack(message.body, MAX_UNPACKED_BYTES + 1)
    except _UNPACKING_ERRORS as error:
        _say(message, f"is not unpacked: {error}")
        return message.body
    if len(unpacked) > MAX_UNPACKED_BYTES:
        _say(message, f"unpacks to over {MAX_UNPACKED_BYTES} bytes")
        return message.body
    return unpacked


def light_body(message: StoredMessage) -> bytes | None:
    """The same where that is done at once; None where it takes so long that it belongs to a thread."""
    body = message.body
    if not int(message.system_flag) & _COMPRESSED:
        return body if len(body) <= _HEAVY_PLAIN_BYTES else None
    if len(body) > HEAVY_BYTES:
        return None
    try:
        unpacked = _unpack(body, HEAVY_BYTES + 1)
    except _UNPACKING_ERRORS:
        return plain_body(message)
    return unpacked if len(unpacked) <= HEAVY_BYTES else None


def _unpack(body: bytes, limit: int) -> bytes:
    """At most `limit` bytes of it: no more are made."""
    if body.startswith(b"\x28\xb5\x2f\xfd"):
        return bytes(ZstdDecompressor().decompress(body, limit))
    if body.startswith(b"\x04\x22\x4d\x18"):
        return bytes(lz4.frame.LZ4FrameDecompressor().decompress(body, limit))
    return zlib.decompressobj(_GZIP_OR_ZLIB).decompress(body, limit)


def _say(message: StoredMessage, what: str) -> None:
    words = f"The body at log offset {message.log_offset} of {message.topic} {what}."
    _strangers.say(_log, StrangerAct.BAD_REQUEST, words)


def md5_text(body: bytes) -> str:
    """The checksum that every client library reads the same way: MD5 as upper-case hex."""
    return md5(body, usedforsecurity=False).hexdigest().upper()
