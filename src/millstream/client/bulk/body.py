"""Bodies as they were before a client compressed them."""

from __future__ import annotations

import sys
import zlib

import lz4.frame

from millstream.model.message import SystemFlag
from millstream.protocol.record import RecordParts

if sys.version_info >= (3, 14):
    from compression.zstd import ZstdDecompressor, ZstdError
else:
    from backports.zstd import ZstdDecompressor, ZstdError

__all__ = ["MAX_UNPACKED_BYTES", "plain_body"]

MAX_UNPACKED_BYTES = 64 * 1024 * 1024
"""Bytes of an unpacked body at most; one that would grow beyond is taken as it is stored."""

_COMPRESSED = int(SystemFlag.COMPRESSED)
_GZIP_OR_ZLIB = zlib.MAX_WBITS | 32
_ZSTD_START = b"\x28\xb5\x2f\xfd"
_LZ4_START = b"\x04\x22\x4d\x18"


def plain_body(record: RecordParts) -> bytes | memoryview:
    """The body, unpacked if the record says that it is compressed; a body that cannot be unpacked as it is stored."""
    if not record.system_flag & _COMPRESSED:
        return record.body
    stored = bytes(record.body)
    try:
        unpacked = _unpack(stored, MAX_UNPACKED_BYTES + 1)
    except (zlib.error, RuntimeError, ZstdError, EOFError):
        return stored
    return stored if len(unpacked) > MAX_UNPACKED_BYTES else unpacked


def _unpack(body: bytes, limit: int) -> bytes:
    if body.startswith(_ZSTD_START):
        return bytes(ZstdDecompressor().decompress(body, limit))
    if body.startswith(_LZ4_START):
        return bytes(lz4.frame.LZ4FrameDecompressor().decompress(body, limit))
    return zlib.decompressobj(_GZIP_OR_ZLIB).decompress(body, limit)
