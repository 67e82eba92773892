"""Encodes rows as bulk messages: collects them in columns, cuts at the limits, writes Arrow IPC."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa

from millstream.model.errors import MessageRefused
from millstream.model.message import MAX_BODY_BYTES
from millstream.model.properties import RESERVED, encode_properties
from millstream.protocol.arrow.batch import MAX_ROWS, MAX_UNCOMPRESSED_BYTES
from millstream.protocol.checksum import crc32

__all__ = [
    "CODECS",
    "COLUMNS",
    "DEFAULT_BATCH_BYTES",
    "DEFAULT_HOLD_S",
    "DEFAULT_ROWS",
    "DEFAULT_WAITING_BYTES",
    "MAX_ROW_BYTES",
    "ZSTD_LEVEL",
    "BulkEncoder",
    "EncodedBatch",
    "GatherLimits",
    "GatheredRows",
    "encode_user_properties",
    "row_bytes",
]


COLUMNS: Final = {"body": pa.binary(), "key": pa.utf8(), "tag": pa.utf8(), "properties": pa.utf8()}
"""The columns of a bulk message; all but the body may be missing."""

CODECS: Final = ("zstd", "lz4", "none")

ZSTD_LEVEL: Final = 1
"""Of 100-byte JSON bodies level 1 costs 0.28 us a row; 3 costs 0.5 us and -5 0.18 us, and both pack worse."""

DEFAULT_ROWS: Final = 10_000
"""Rows of one bulk message unless the application says otherwise; at most `MAX_ROWS`."""


@dataclass(frozen=True, slots=True)
class EncodedBatch:
    """One bulk message's body with its CRC-32, and the rows that it was made of."""

    stream: bytes
    crc32: int
    batch: pa.RecordBatch

    @property
    def rows(self) -> int:
        """How many messages it holds."""
        return int(self.batch.num_rows)


class BulkEncoder:
    """Makes bulk messages of `codec` (`zstd`, `lz4` or `none`) with at most `max_rows` rows each."""

    def __init__(self, *, codec: str = "zstd", level: int = ZSTD_LEVEL, max_rows: int = DEFAULT_ROWS) -> None:
        if codec not in CODECS:
            raise ValueError(f"codec {codec!r} is none of {', '.join(CODECS)}")
        if not 1 <= max_rows <= MAX_ROWS:
            raise ValueError(f"{max_rows} rows a batch; 1 to {MAX_ROWS} are possible")
        self._max_rows = max_rows
        packing = {"zstd": pa.Codec("zstd", compression_level=level), "lz4": pa.Codec("lz4"), "none": None}
        self._options = pa.ipc.IpcWriteOptions(compression=packing[codec], use_threads=False)

    def encode(self, rows: pa.RecordBatch | pa.Table) -> Iterator[EncodedBatch]:
        """Bulk messages of all rows, in order, each made when it is asked for.

        Raises MESSAGE_MALFORMED for other columns or a row without a body, BODY_TOO_LARGE for a row that no bulk
        message can hold.
        """
        parts = rows.to_batches() if isinstance(rows, pa.Table) else [rows]
        for part in parts:
            fitting = _lane_columns(part)
            for start in range(0, fitting.num_rows, self._max_rows):
                yield from self._cut(fitting.slice(start, self._max_rows))

    def _cut(self, batch: pa.RecordBatch) -> Iterator[EncodedBatch]:
        if batch.nbytes <= MAX_UNCOMPRESSED_BYTES:
            stream = self._stream(batch)
            if len(stream) <= MAX_BODY_BYTES:
                yield EncodedBatch(stream, crc32(stream), batch)
                return
        if batch.num_rows == 1:
            raise MessageRefused(
                "BODY_TOO_LARGE",
                f"A row of {batch.nbytes} bytes does not fit a bulk message of {MAX_BODY_BYTES} bytes.",
            )
        half = batch.num_rows // 2
        yield from self._cut(batch.slice(0, half))
        yield from self._cut(batch.slice(half))

    def _stream(self, batch: pa.RecordBatch) -> bytes:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema, options=self._options) as writer:
            writer.write_batch(batch)
        stream: bytes = sink.getvalue().to_pybytes()
        return stream


def _lane_columns(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The same rows in the lane's types, without metadata."""
    names = batch.schema.names
    if "body" not in names or len(set(names)) != len(names) or not COLUMNS.keys() >= set(names):
        raise MessageRefused(
            "MESSAGE_MALFORMED",
            f"A bulk batch has the column body and may have key, tag and properties; this one has {names}.",
        )
    try:
        arrays = [batch.column(name).cast(COLUMNS[name]) for name in names]
    except pa.ArrowException as error:
        raise MessageRefused("MESSAGE_MALFORMED", f"A column is not of the lane's type: {error}.") from None
    if arrays[names.index("body")].null_count:
        raise MessageRefused("MESSAGE_MALFORMED", "A row of the batch has no body.")
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema([(name, COLUMNS[name]) for name in names]))


DEFAULT_BATCH_BYTES: Final = 2 * 1024 * 1024
"""Bytes of rows that close a bulk message: 10,000 rows of 100 bytes with key and tag pass below it."""

DEFAULT_HOLD_S: Final = 0.01
"""Seconds that a first row waits for others."""

DEFAULT_WAITING_BYTES: Final = 64 * 1024 * 1024
"""Bytes of rows that are not yet acknowledged; a send waits while there are more. One row may go beyond."""

MAX_ROW_BYTES: Final = MAX_BODY_BYTES - 32 * 1024
"""Bytes of one message at most: with Arrow's metadata, and grown by a codec that finds nothing, it still is a body."""

_ROW_BYTES: Final = 16
"""What a row counts beyond its own bytes, so that empty ones are bounded too."""

_SEPARATORS: Final = ("\x01", "\x02")


@dataclass(frozen=True, slots=True)
class GatherLimits:
    """When gathered rows become a bulk message: at so many rows or bytes, or after so many seconds."""

    rows: int = DEFAULT_ROWS
    batch_bytes: int = DEFAULT_BATCH_BYTES
    hold_s: float = DEFAULT_HOLD_S
    waiting_bytes: int = DEFAULT_WAITING_BYTES


@dataclass(slots=True)
class GatheredRows:
    """The rows of one bulk message in the making."""

    topic: str
    bodies: list[bytes] = field(default_factory=list)
    keys: list[str | None] = field(default_factory=list)
    tags: list[str | None] = field(default_factory=list)
    texts: list[str | None] = field(default_factory=list)
    size_bytes: int = 0

    def add(self, body: bytes, key: str | None, tag: str | None, text: str | None, size_bytes: int) -> int:
        """Append one row, of which `row_bytes` says `size_bytes`; its place."""
        self.bodies.append(body)
        self.keys.append(key)
        self.tags.append(tag)
        self.texts.append(text)
        self.size_bytes += size_bytes
        return len(self.bodies) - 1

    def is_full(self, limits: GatherLimits) -> bool:
        """Whether it is time to send."""
        return len(self.bodies) >= limits.rows or self.size_bytes >= limits.batch_bytes

    def record_batch(self) -> pa.RecordBatch:
        """The rows in columns; columns without a value are left out."""
        texts = {"key": self.keys, "tag": self.tags, "properties": self.texts}
        arrays = {"body": pa.array(self.bodies, COLUMNS["body"])}
        for name, values in texts.items():
            array = pa.array(values, COLUMNS[name])
            if array.null_count < len(values):
                arrays[name] = array
        return pa.record_batch(arrays)


def row_bytes(body: bytes, key: str | None, tag: str | None, text: str | None) -> int:
    """What a row counts; BODY_TOO_LARGE where no bulk message could hold it, TypeError where the body is not bytes."""
    if not isinstance(body, bytes):
        raise TypeError(f"a body is bytes, not {type(body).__name__}")
    size_bytes = len(body) + _ROW_BYTES + len(key or "") + len(tag or "") + len(text or "")
    if size_bytes > MAX_ROW_BYTES:
        raise MessageRefused("BODY_TOO_LARGE", f"The message has {size_bytes} bytes; the limit is {MAX_ROW_BYTES}.")
    return size_bytes


def encode_user_properties(key: str | None, tag: str | None, properties: Mapping[str, str] | None) -> str | None:
    """The stored text of a message's properties; ILLEGAL_PROPERTY where key, tag or properties cannot be stored.

    TypeError where one is no text.
    """
    if properties:
        for name in properties:
            if name in RESERVED:
                raise MessageRefused("ILLEGAL_PROPERTY", f"{name!r} is a reserved name, not one for a user property.")
    parts = (key or "", tag or "", *(properties or ()), *(properties or {}).values())
    for part in parts:
        if not isinstance(part, str):
            raise TypeError(f"tags, keys and properties are text, not {type(part).__name__}")
        if any(mark in part for mark in _SEPARATORS):
            raise MessageRefused(
                "ILLEGAL_PROPERTY",
                "A tag, key or property has one of the characters \\x01 and \\x02, which separate them.",
            )
        if not part.isascii():
            try:
                part.encode()
            except UnicodeEncodeError:
                raise MessageRefused(
                    "ILLEGAL_PROPERTY", "A tag, key or property is not Unicode (half of a pair)."
                ) from None
    return encode_properties(properties).decode() if properties else None
