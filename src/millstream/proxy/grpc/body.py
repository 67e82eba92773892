"""Bodies as consumers get them: never compressed, because client libraries disagree on how to unpack."""

from __future__ import annotations

import logging
import sys
import zlib
from hashlib import md5

import lz4.frame

from millstream.model.message import StoredMessage, SystemFlag

if sys.version_info >= (3, 14):
    from compression.zstd import ZstdDecompressor, ZstdError
else:
    from backports.zstd import ZstdDecompressor, ZstdError

__all__ = ["MAX_UNPACKED_BYTES", "md5_text", "plain_body"]

_log = logging.getLogger(__name__)

MAX_UNPACKED_BYTES = 64 * 1024 * 1024
"""Bytes of an unpacked body at most; a body that would grow beyond is delivered as it is stored."""

_COMPRESSED = int(SystemFlag.COMPRESSED)
_GZIP_OR_ZLIB = zlib.MAX_WBITS | 32


def plain_body(message: StoredMessage) -> bytes:
    """The body, unpacked if its record says that it is compressed (gzip, zlib, lz4 frame or zstd, told by its first
    bytes). A body that cannot be unpacked is delivered as it is stored: refusing it would stop its queue."""
    if not int(message.system_flag) & _COMPRESSED:
        return message.body
    try:
        unpacked = _unpack(message.body)
    except (zlib.error, RuntimeError, ZstdError, EOFError) as error:
        _log.warning("the body at log offset %d of %s is not unpacked: %s", message.log_offset, message.topic, error)
        return message.body
    if len(unpacked) > MAX_UNPACKED_BYTES:
        _log.warning("the body at log offset %d of %s unpacks to too much", message.log_offset, message.topic)
        return message.body
    return unpacked


def _unpack(body: bytes) -> bytes:
    limit = MAX_UNPACKED_BYTES + 1
    if body.startswith(b"\x28\xb5\x2f\xfd"):
        return bytes(ZstdDecompressor().decompress(body, limit))
    if body.startswith(b"\x04\x22\x4d\x18"):
        return bytes(lz4.frame.LZ4FrameDecompressor().decompress(body, limit))
    return zlib.decompressobj(_GZIP_OR_ZLIB).decompress(body, limit)


def md5_text(body: bytes) -> str:
    """The checksum that every client library reads the same way: MD5 as upper-case hex."""
    return md5(body, usedforsecurity=False).hexdigest().upper()
