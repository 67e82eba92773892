"""The rows of a bulk body, one message each; `layout` describes the body.

The plain bytes of a buffer, which never grow beyond the length that was declared and checked.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise, repeat
from operator import le
from typing import Final

import lz4.frame

from millstream.model.errors import MessageRefused, StoreError
from millstream.protocol.arrow.flatbuffer import Misfit
from millstream.protocol.arrow.layout import (
    BODY,
    MAX_ROWS,
    MAX_UNCOMPRESSED_BYTES,
    OPTIONAL,
    Buffer,
    ColumnLayout,
    StreamLayout,
    read_layout,
)

__all__ = [
    "MAX_ROWS",
    "MAX_UNCOMPRESSED_BYTES",
    "MAX_WINDOW_LOG",
    "BatchOutline",
    "Row",
    "outline",
    "plain_bytes",
    "rows",
]

if sys.version_info >= (3, 14):
    from compression.zstd import DecompressionParameter, ZstdDecompressor, ZstdError
else:
    from backports.zstd import DecompressionParameter, ZstdDecompressor, ZstdError


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


Row = tuple[bytes, str | None, str | None, str | None]
"""Body, key, tag and the properties' stored text."""

_SET_BITS: Final = tuple(tuple(value >> bit & 1 for bit in range(8)) for value in range(256))


@dataclass(frozen=True, slots=True)
class BatchOutline:
    """What a bulk body holds. `codec` is `zstd`, `lz4_frame` or None; `uncompressed_bytes` is all buffers' length."""

    rows: int
    uncompressed_bytes: int
    columns: tuple[str, ...]
    codec: str | None


def outline(body: bytes | memoryview) -> BatchOutline:
    """What the body holds, as it declares; nothing is decompressed. MESSAGE_MALFORMED where it does not fit.

    What passes can be read without leading outside or growing beyond `MAX_UNCOMPRESSED_BYTES`; whether its buffers
    hold what they declare shows in `rows`.
    """
    try:
        layout = read_layout(body)
    except Misfit as error:
        raise MessageRefused(
            "MESSAGE_MALFORMED", f"The Arrow batch of {len(body)} bytes is refused: {error}."
        ) from None
    columns = tuple(column.name for column in layout.columns)
    return BatchOutline(layout.rows, layout.uncompressed_bytes, columns, layout.codec)


def rows(body: bytes | memoryview, start: int = 0, stop: int | None = None) -> Iterator[Row]:
    """The rows from `start` up to but without `stop`, in order; RECORD_DAMAGED where the body does not fit.

    Everything is checked before the first row is given. Holds the decompressed body, at most
    `MAX_UNCOMPRESSED_BYTES`, and the wanted rows.
    """
    stream = bytes(body)
    try:
        layout = read_layout(stream)
        columns = {column.name: column for column in layout.columns}
        wanted = range(layout.rows)[start:stop]
        bodies = _Values(stream, columns[BODY], layout).slices(wanted)
        texts = [
            _Values(stream, columns[name], layout).texts(wanted) if name in columns else repeat(None, len(wanted))
            for name in OPTIONAL
        ]
    except Misfit as error:
        raise StoreError("RECORD_DAMAGED", f"The Arrow batch of {len(stream)} bytes is damaged: {error}.") from None
    return zip(bodies, *texts, strict=True)


class _Values:
    """One column, decompressed, its offsets checked."""

    def __init__(self, stream: bytes, column: ColumnLayout, layout: StreamLayout) -> None:
        self._name = column.name
        self._data = plain_bytes(stream, column.data, layout.codec)
        offsets = plain_bytes(stream, column.offsets, layout.codec)
        self._offsets: tuple[int, ...] = struct.unpack_from(f"<{layout.rows + 1}i", offsets)
        if self._offsets[0] < 0 or self._offsets[-1] > len(self._data):
            raise Misfit(f"column {column.name} leads outside of its {len(self._data)} bytes")
        if not all(map(le, self._offsets, self._offsets[1:])):
            raise Misfit(f"the offsets of column {column.name} fall")
        self._valid: list[int] | None = None
        if column.nulls:
            marks = plain_bytes(stream, column.validity, layout.codec)
            self._valid = [bit for mark in marks[: (layout.rows + 7) // 8] for bit in _SET_BITS[mark]][: layout.rows]
            if self._valid.count(0) != column.nulls:
                raise Misfit(f"column {column.name} declares {column.nulls} nulls and has {self._valid.count(0)}")

    def slices(self, wanted: range) -> list[bytes]:
        """The values as bytes."""
        data = self._data
        edges = self._offsets[wanted.start : wanted.stop + 1]
        return [data[start:end] for start, end in pairwise(edges)]

    def texts(self, wanted: range) -> Sequence[str | None]:
        """The values as text, None for a null; every value of the column must be UTF-8."""
        everything = range(len(self._offsets) - 1)
        if self._data.isascii():
            data = self._data.decode("ascii")
            edges = self._offsets[wanted.start : wanted.stop + 1]
            values = [data[start:end] for start, end in pairwise(edges)]
        else:
            try:
                values = [value.decode() for value in self.slices(everything)][wanted.start : wanted.stop]
            except UnicodeDecodeError as error:
                raise Misfit(f"column {self._name} is not UTF-8: {error.reason}") from None
        if self._valid is None:
            return values
        marks = self._valid[wanted.start : wanted.stop]
        return [value if mark else None for value, mark in zip(values, marks, strict=True)]
