"""The layout of a bulk body: the messages of an Arrow IPC stream, checked but not decompressed.

    schema message | record batch message | end of stream (may be missing)

Each message is int32 -1 | int32 metadata bytes | metadata (a flatbuffer, padded) | body. Little-endian, all lengths
multiples of 8. The end is int32 -1 | int32 0. A buffer of a compressed batch begins with its plain length as int64, or
with -1 where it is not compressed. Source: Apache Arrow's columnar format, version 1.4 (metadata versions 4 and 5).

A bulk body has the columns `body` (binary, no nulls) and, each at most once and in any order, `key`, `tag` and
`properties` (utf8), all with 32-bit offsets, without dictionaries and without metadata of its own.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

from millstream.protocol.arrow.flatbuffer import FlatbufferTable, Misfit, root_table

__all__ = [
    "BODY",
    "CODECS",
    "MAX_METADATA_BYTES",
    "MAX_ROWS",
    "MAX_UNCOMPRESSED_BYTES",
    "OPTIONAL",
    "Buffer",
    "ColumnLayout",
    "StreamLayout",
    "read_layout",
]

MAX_ROWS: Final = 32_767
"""Rows of one bulk message at most: a batch's count is a signed int16 in RocketMQ's index."""

MAX_UNCOMPRESSED_BYTES: Final = 32 * 1024 * 1024
"""Bytes of all buffers of one bulk message at most once they are decompressed; bounds what a reader allocates."""

MAX_METADATA_BYTES: Final = 4096
"""Bytes of the metadata of one message at most; four columns need about 500."""

BODY: Final = "body"
OPTIONAL: Final = ("key", "tag", "properties")

CODECS: Final = ("lz4_frame", "zstd")
"""Arrow's codecs by their number."""

_MESSAGE_HEAD: Final = struct.Struct("<ii")
_INT64: Final = struct.Struct("<q")
_CONTINUATION: Final = -1
_END_OF_STREAM: Final = _MESSAGE_HEAD.pack(_CONTINUATION, 0)
_ALIGNMENT: Final = 8
_VERSIONS: Final = (3, 4)
_SCHEMA, _RECORD_BATCH = 1, 3
_BINARY, _UTF8 = 4, 5
_BUFFERS_A_COLUMN: Final = 3
_OFFSET_BYTES: Final = 4
_STORED_PLAIN: Final = -1


@dataclass(frozen=True, slots=True)
class Buffer:
    """One buffer: its bytes as they lie in the stream, and its length once decompressed. `packed`: it is compressed."""

    start: int
    end: int
    plain_bytes: int
    packed: bool


@dataclass(frozen=True, slots=True)
class ColumnLayout:
    """One column's buffers. `nulls` counts the rows without a value."""

    name: str
    nulls: int
    validity: Buffer
    offsets: Buffer
    data: Buffer


@dataclass(frozen=True, slots=True)
class StreamLayout:
    """A whole bulk body. `codec` is None where no buffer may be compressed."""

    rows: int
    uncompressed_bytes: int
    codec: str | None
    columns: tuple[ColumnLayout, ...]


def read_layout(stream: bytes | memoryview) -> StreamLayout:
    """The layout of a bulk body that fits the format and the limits; Misfit otherwise."""
    schema, position, end = _message(stream, 0, _SCHEMA)
    if position != end:
        raise Misfit("the schema has a body")
    names = _column_names(schema)
    batch, start, end = _message(stream, position, _RECORD_BATCH)
    if stream[end:] not in (b"", _END_OF_STREAM):
        raise Misfit(f"{len(stream) - end} bytes follow the record batch")
    return _batch_layout(stream, batch, names, start, end)


def _message(stream: bytes | memoryview, position: int, kind: int) -> tuple[FlatbufferTable, int, int]:
    """The header of the message at `position`, and where its body begins and ends."""
    start = position + _MESSAGE_HEAD.size
    if start > len(stream):
        raise Misfit(f"no message at {position} of {len(stream)} bytes")
    mark, metadata_bytes = _MESSAGE_HEAD.unpack_from(stream, position)
    if mark != _CONTINUATION or not 0 < metadata_bytes <= MAX_METADATA_BYTES or metadata_bytes % _ALIGNMENT:
        raise Misfit(f"a message at {position} begins with {mark} and {metadata_bytes}")
    body = start + metadata_bytes
    if body > len(stream):
        raise Misfit(f"metadata of {metadata_bytes} bytes at {position} of {len(stream)}")
    message = root_table(bytes(stream[start:body]))
    if message.int16(0) not in _VERSIONS:
        raise Misfit(f"metadata version number {message.int16(0)}")
    header = message.table(2)
    if message.uint8(1) != kind or header is None:
        raise Misfit(f"a message of kind {message.uint8(1)} where one of kind {kind} belongs")
    if message.has(4):
        raise Misfit("a message has metadata of its own")
    body_bytes = message.int64(3)
    if not 0 <= body_bytes <= len(stream) - body or body_bytes % _ALIGNMENT:
        raise Misfit(f"a body of {body_bytes} bytes at {body} of {len(stream)}")
    return header, body, body + body_bytes


def _column_names(schema: FlatbufferTable) -> list[str]:
    if schema.int16(0) != 0:
        raise Misfit("the schema is big-endian")
    if schema.has(2) or schema.has(3):
        raise Misfit("the schema has metadata of its own")
    names: list[str] = []
    for field in schema.tables(1, 1 + len(OPTIONAL)):
        name = field.text(0)
        if name is None or (name != BODY and name not in OPTIONAL):
            raise Misfit(f"a column {name!r}")
        wanted = _BINARY if name == BODY else _UTF8
        if field.uint8(2) != wanted or field.table(3) is None or field.uint8(1) > 1:
            raise Misfit(f"column {name} is not {'binary' if name == BODY else 'utf8'}")
        if field.has(4) or field.count(5) or field.has(6):
            raise Misfit(f"column {name} has a dictionary, children or metadata")
        names.append(name)
    if BODY not in names or len(set(names)) != len(names):
        raise Misfit(f"the columns {', '.join(names) or 'are none'}")
    return names


def _batch_layout(
    stream: bytes | memoryview, batch: FlatbufferTable, names: list[str], start: int, end: int
) -> StreamLayout:
    rows = batch.int64(0)
    if not 1 <= rows <= MAX_ROWS:
        raise Misfit(f"{rows} rows; 1 to {MAX_ROWS} are allowed")
    codec = _codec(batch.table(3))
    nodes, places = batch.pairs(1, len(names)), batch.pairs(2, _BUFFERS_A_COLUMN * len(names))
    if len(nodes) != len(names) or len(places) != _BUFFERS_A_COLUMN * len(names) or batch.count(4):
        raise Misfit(f"{len(nodes)} nodes and {len(places)} buffers for {len(names)} columns")
    buffers: list[Buffer] = []
    free = start
    for offset, length in places:
        if offset < 0 or length < 0 or offset % _ALIGNMENT or not free <= start + offset <= end - length:
            raise Misfit(f"a buffer of {length} bytes at {offset} of a body of {end - start}")
        free = start + offset + length
        buffers.append(_buffer(stream, start + offset, free, codec))
    uncompressed_bytes = sum(buffer.plain_bytes for buffer in buffers)
    if uncompressed_bytes > MAX_UNCOMPRESSED_BYTES:
        raise Misfit(f"{uncompressed_bytes} bytes once decompressed; the limit is {MAX_UNCOMPRESSED_BYTES}")
    columns = tuple(
        _column(name, rows, node, buffers[3 * number : 3 * number + 3])
        for number, (name, node) in enumerate(zip(names, nodes, strict=True))
    )
    return StreamLayout(rows, uncompressed_bytes, codec, columns)


def _codec(compression: FlatbufferTable | None) -> str | None:
    if compression is None:
        return None
    number, method = compression.uint8(0), compression.uint8(1)
    if number >= len(CODECS) or method != 0:
        raise Misfit(f"codec {number} with method {method}")
    return CODECS[number]


def _buffer(stream: bytes | memoryview, start: int, end: int, codec: str | None) -> Buffer:
    if codec is None or start == end:
        return Buffer(start, end, end - start, packed=False)
    if end - start < _INT64.size:
        raise Misfit(f"a compressed buffer of {end - start} bytes")
    plain_bytes: int = _INT64.unpack_from(stream, start)[0]
    start += _INT64.size
    if plain_bytes == _STORED_PLAIN:
        return Buffer(start, end, end - start, packed=False)
    if plain_bytes < 0:
        raise Misfit(f"a buffer of {plain_bytes} bytes once decompressed")
    return Buffer(start, end, plain_bytes, packed=True)


def _column(name: str, rows: int, node: tuple[int, int], buffers: list[Buffer]) -> ColumnLayout:
    length, nulls = node
    if length != rows or not 0 <= nulls <= (0 if name == BODY else rows):
        raise Misfit(f"column {name} has {length} rows and {nulls} nulls of {rows} rows")
    validity, offsets, data = buffers
    if nulls and validity.plain_bytes < (rows + 7) // 8:
        raise Misfit(f"column {name} marks its nulls in {validity.plain_bytes} bytes")
    if offsets.plain_bytes < _OFFSET_BYTES * (rows + 1):
        raise Misfit(f"column {name} has offsets of {offsets.plain_bytes} bytes for {rows} rows")
    return ColumnLayout(name, nulls, validity, offsets, data)
