"""Fetched records as Arrow tables, with decompressed bodies.

Bulk reading verifies checksums here.
"""

from __future__ import annotations

import struct
import sys
import zlib
from dataclasses import dataclass
from typing import Final

import lz4.frame
import pyarrow as pa
import pyarrow.compute as pc

from millstream.client.values import PullBatch, QueueAddress
from millstream.model.errors import MessageRefused, StoreError
from millstream.model.message import SystemFlag
from millstream.model.operations import PullStatus
from millstream.model.properties import encode_properties
from millstream.protocol.arrow.batch import MAX_ROWS, outline
from millstream.protocol.record import RecordParts, iterate_records, split_record, verify_record
from millstream.protocol.remoting.messages.batch import decode_batch

__all__ = [
    "MAX_TABLE_BYTES",
    "MAX_UNPACKED_BYTES",
    "TABLE_SCHEMA",
    "DamagedRecord",
    "FetchedBatch",
    "decode_fetch",
    "plain_body",
]


if sys.version_info >= (3, 14):
    from compression.zstd import ZstdDecompressor, ZstdError
else:
    from backports.zstd import ZstdDecompressor, ZstdError


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


TABLE_SCHEMA: Final = pa.schema(
    [
        ("body", pa.binary()),
        ("key", pa.utf8()),
        ("tag", pa.utf8()),
        ("properties", pa.utf8()),
        ("queue_offset", pa.int64()),
        ("store_timestamp_ms", pa.int64()),
        ("born_timestamp_ms", pa.int64()),
    ]
)
"""What a fetch gives, whatever kind of record the messages came in. `properties` is the stored text."""

MAX_TABLE_BYTES: Final = 64 * 1024 * 1024
"""Bytes of one table's rows; records that would go beyond are left to the next fetch, but for the first one."""

_Single = tuple[bytes | memoryview, str | None, str | None, str | None, int, int, int]
"""One message in the order of the schema."""

_ARROW_BATCH: Final = int(SystemFlag.ARROW_BATCH)
_INNER_BATCH: Final = int(SystemFlag.INNER_BATCH)
_LOG_OFFSET: Final = struct.Struct(">q")
_LOG_OFFSET_POSITION: Final = 28
_OFFSET_COLUMN: Final = 4
_LENGTH_BYTES: Final = 2
_INT64_BYTES: Final = 8
_TEXTS: Final = ("key", "tag", "properties")
_OWN_COLUMNS: Final = {b"KEYS": 0, b"TAGS": 1}
_CHECKSUM: Final = b"__CRC32#"
_COUNTING: Final = pa.array(range(MAX_ROWS), pa.int64())


@dataclass(frozen=True, slots=True)
class DamagedRecord:
    """A record that failed its checksum or cannot be read. `log_offset` is what its header says."""

    log_offset: int
    reason: str


@dataclass(frozen=True, slots=True)
class FetchedBatch:
    """One answer to a fetch. `table` has `TABLE_SCHEMA`; the rows of damaged records are missing from it."""

    status: PullStatus
    next_offset: int
    min_offset: int
    max_offset: int
    table: pa.Table
    damaged: tuple[DamagedRecord, ...] = ()


def decode_fetch(answer: PullBatch, queue: QueueAddress, offset: int) -> FetchedBatch:
    """The rows of an answer from `offset` on, every checksum verified; damaged records are named and passed over.

    RECORD_DAMAGED where the records' own lengths lead astray, so that nothing of the answer can be told.
    """
    batches: list[pa.RecordBatch] = []
    singles: list[_Single] = []
    damaged: list[DamagedRecord] = []
    place = _Place(queue, answer.next_offset)
    next_offset, room = answer.next_offset, MAX_TABLE_BYTES
    for record in iterate_records(answer.buffer):
        try:
            parts = place.verify(record)
            room -= _unpacked_bytes(parts)
            if room < 0 and (batches or singles):
                next_offset = parts.queue_offset
                break
            if not parts.system_flag & _ARROW_BATCH:
                singles += [single for single in _singles(parts) if single[_OFFSET_COLUMN] >= offset]
                continue
            rows = _bulk_rows(parts, offset)
        except (StoreError, MessageRefused) as error:
            damaged.append(DamagedRecord(_LOG_OFFSET.unpack_from(record, _LOG_OFFSET_POSITION)[0], error.message))
            continue
        batches += _single_rows(singles)
        singles.clear()
        batches.append(rows)
    batches += _single_rows(singles)
    table = pa.Table.from_batches(batches, TABLE_SCHEMA)
    return FetchedBatch(answer.status, next_offset, answer.min_offset, answer.max_offset, table, tuple(damaged))


class _Place:
    """Where the records of an answer belong: the server, which reads none of them, may be led astray by its index."""

    def __init__(self, queue: QueueAddress, next_offset: int) -> None:
        topic = queue.topic.encode()
        self._queue_id = queue.queue_id
        self._topic = bytes([len(topic) & 0xFF]) + topic
        self._free = 0
        self._next_offset = next_offset

    def verify(self, record: memoryview) -> RecordParts:
        """The parts of a record that is whole and stands where it belongs; RECORD_DAMAGED otherwise."""
        if not verify_record(record):
            raise StoreError("RECORD_DAMAGED", "The record fails its checksum.")
        parts = split_record(record)
        end = len(record) - len(parts.properties) - _LENGTH_BYTES
        fits = self._free <= parts.queue_offset < self._next_offset and parts.queue_id == self._queue_id
        if not fits or record[end - len(self._topic) : end] != self._topic:
            raise StoreError("RECORD_DAMAGED", f"The record of offset {parts.queue_offset} belongs elsewhere.")
        self._free = parts.queue_offset + 1
        return parts


def _unpacked_bytes(parts: RecordParts) -> int:
    """Bytes of the record's rows in the table; MESSAGE_MALFORMED where the Arrow batch lies about its structure."""
    return outline(parts.body).uncompressed_bytes if parts.system_flag & _ARROW_BATCH else len(parts.body)


def _bulk_rows(parts: RecordParts, offset: int) -> pa.RecordBatch:
    # The outline has bounded what the library allocates; the validation keeps offsets inside of their buffers.
    try:
        batch = pa.ipc.open_stream(pa.py_buffer(parts.body)).read_next_batch()
        batch.validate(full=True)
    except (pa.ArrowException, OSError) as error:
        raise StoreError("RECORD_DAMAGED", f"The Arrow batch cannot be read: {error}.") from None
    count = batch.num_rows
    present = batch.schema.names
    columns = [batch.column("body")]
    columns += [batch.column(name) if name in present else pa.nulls(count, pa.utf8()) for name in _TEXTS]
    columns += [
        pc.add(_COUNTING.slice(0, count), pa.scalar(parts.queue_offset, pa.int64())),
        _constant(parts.store_timestamp_ms, count),
        _constant(parts.born_timestamp_ms, count),
    ]
    rows = pa.RecordBatch.from_arrays(columns, schema=TABLE_SCHEMA)
    return rows.slice(max(0, offset - parts.queue_offset))


def _constant(value: int, count: int) -> pa.Array:
    """As `pa.repeat`, several times cheaper."""
    data = value.to_bytes(_INT64_BYTES, sys.byteorder, signed=True) * count
    return pa.Array.from_buffers(pa.int64(), count, [None, pa.py_buffer(data)])


def _singles(parts: RecordParts) -> list[_Single]:
    """The messages of a record that is no Arrow batch: one, or those of RocketMQ's inner batch."""
    times = parts.store_timestamp_ms, parts.born_timestamp_ms
    body = plain_body(parts)
    if not parts.system_flag & _INNER_BATCH:
        return [(body, *_texts(parts.properties), parts.queue_offset, *times)]
    items = decode_batch(bytes(body))
    return [
        (body, *_texts(encode_properties(properties)), parts.queue_offset + place, *times)
        for place, (body, properties, _flag) in enumerate(items)
    ]


def _single_rows(singles: list[_Single]) -> list[pa.RecordBatch]:
    if not singles:
        return []
    columns = [
        pa.array(values, kind) for values, kind in zip(zip(*singles, strict=True), TABLE_SCHEMA.types, strict=True)
    ]
    return [pa.RecordBatch.from_arrays(columns, schema=TABLE_SCHEMA)]


def _texts(properties: bytes | memoryview) -> tuple[str | None, str | None, str | None]:
    """Key, tag and the other properties of an ordinary message, without its checksum."""
    own: list[str | None] = [None, None]
    rest: list[bytes] = []
    for pair in bytes(properties).split(b"\x02"):
        name, mark, value = pair.partition(b"\x01")
        if name in _OWN_COLUMNS:
            own[_OWN_COLUMNS[name]] = value.decode("utf-8", "replace")
        elif mark and name != _CHECKSUM:
            rest.append(pair + b"\x02")
    return own[0], own[1], b"".join(rest).decode("utf-8", "replace") if rest else None
