"""The plain bytes of a buffer, which never grow beyond the length that was declared and checked."""

from __future__ import annotations

import sys
from typing import Final

import lz4.frame

from millstream.protocol.arrow.flatbuffer import Misfit
from millstream.protocol.arrow.layout import Buffer

if sys.version_info >= (3, 14):
    from compression.zstd import DecompressionParameter, ZstdDecompressor, ZstdError
else:
    from backports.zstd import DecompressionParameter, ZstdDecompressor, ZstdError

__all__ = ["MAX_WINDOW_LOG", "plain_bytes"]

MAX_WINDOW_LOG: Final = 25
"""Binary logarithm of zstd's window at most: 32 MiB, what a bulk message may have once it is decompressed."""


def plain_bytes(stream: bytes, buffer: Buffer, codec: str | None) -> bytes:
    """The buffer, decompressed if it is packed; Misfit where it is not what was declared."""
    packed = stream[buffer.start : buffer.end]
    if not buffer.packed:
        return packed
    if not buffer.plain_bytes:
        # A decompressor that is given no room says nothing about what there would have been.
        if packed:
            raise Misfit("a buffer of 0 bytes has compressed bytes")
        return b""
    decompressor = _zstd() if codec == "zstd" else lz4.frame.LZ4FrameDecompressor()
    try:
        plain = decompressor.decompress(packed, buffer.plain_bytes)
        if not decompressor.eof:
            # The end mark of a frame may need one more step, which gives no bytes.
            plain += decompressor.decompress(b"", 1)
    except (ZstdError, RuntimeError, EOFError) as error:
        raise Misfit(f"a buffer cannot be decompressed: {error}") from None
    if len(plain) != buffer.plain_bytes or not decompressor.eof or decompressor.unused_data:
        raise Misfit(f"a buffer has not the {buffer.plain_bytes} bytes that it declares")
    return bytes(plain)


def _zstd() -> ZstdDecompressor:
    return ZstdDecompressor(options={DecompressionParameter.window_log_max: MAX_WINDOW_LOG})
