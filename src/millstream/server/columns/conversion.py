"""Messages of a topic as one Parquet file: read from chunks, decoded as a SQL job does, put under a given name.

Blocks, and takes its time; for a process of its own.
"""

from __future__ import annotations

import io
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from millstream.client.bulk.fetched import decode_fetch
from millstream.client.values import PullBatch, QueueAddress
from millstream.model.errors import StoreError
from millstream.model.moment import FIRST_MS, LAST_MS
from millstream.model.operations import PullStatus
from millstream.protocol.batches import BATCH_FLAGS
from millstream.protocol.record import system_flag_of
from millstream.server.columns.declaration import CopyColumns, parse_columns
from millstream.streams.spark.source.formats.keyed_rows import BodyDecoder
from millstream.streams.spark.source.messages import Messages, RecordMessages, TableMessages
from millstream.tiered.cold_map import ColdRange
from millstream.tiered.cold_scan import ColdBlock, ColdScan
from millstream.tiered.columns.column_work import CopiedFile, CopyPart, CopyRequest
from millstream.tiered.objects import ObjectExists, ObjectStore

__all__ = ["copy_messages"]

ROW_GROUP_ROWS: Final = 64 * 1024
"""Rows of one row group at most: what a reader skips or reads as one."""

ROW_GROUP_BYTES: Final = 64 * 1024 * 1024
"""Bytes of unpacked rows after which a row group ends, however few rows it has."""

_HELD: Final = b"millstream.copy"
"""The key of the file's own metadata under which it says what it holds."""

_MICROSECONDS: Final = 1000
_log = logging.getLogger(__name__)


@dataclass
class _Tally:
    """What went into a file so far."""

    rows: int = 0
    malformed: int = 0
    lost: int = 0
    first_stored_ms: int | None = None
    last_stored_ms: int = 0
    next_offsets: dict[int, int] = field(default_factory=dict)

    def describe(self, size_bytes: int) -> CopiedFile:
        first_ms = self.first_stored_ms or 0
        return CopiedFile(
            size_bytes, self.rows, self.malformed, self.lost, first_ms, self.last_stored_ms, self.next_offsets
        )


def copy_messages(objects: ObjectStore, request: CopyRequest) -> CopiedFile:
    """Put the file of a request, unless it is there already; what it holds. Raises as `ColumnWork.copy`."""
    declaration = parse_columns(request.columns, request.body_format)
    tally, sink = _Tally(), io.BytesIO()
    schema = declaration.schema
    with pq.ParquetWriter(sink, schema, compression="zstd", compression_level=1) as writer:
        for group in _row_groups(_batches(objects, request, declaration, tally)):
            writer.write_table(pa.Table.from_batches(group, schema), row_group_size=ROW_GROUP_ROWS)
        writer.add_key_value_metadata({_HELD: msgspec.json.encode(tally.describe(0))})
    if not tally.rows:
        return tally.describe(0)
    data = sink.getvalue()
    try:
        objects.put(request.key, data, create_only=True)
    except ObjectExists:
        # Put before a crash, or its answer was lost: what it says of itself counts, and no message is copied again.
        return _held_by(request.key, objects.get(request.key))
    return tally.describe(len(data))


def _held_by(key: str, data: bytes) -> CopiedFile:
    try:
        metadata = pq.read_metadata(pa.BufferReader(data))
        held = msgspec.json.decode((metadata.metadata or {})[_HELD], type=CopiedFile)
    except (pa.ArrowException, OSError, KeyError, msgspec.MsgspecError) as error:
        words = f"The object {key!r} is there already and no copy of messages: {error}."
        raise StoreError("COLUMN_COPY_FAILED", words, remedy="Remove the object.") from None
    return msgspec.structs.replace(held, size_bytes=len(data))


def _row_groups(batches: Iterator[pa.RecordBatch]) -> Iterator[list[pa.RecordBatch]]:
    group: list[pa.RecordBatch] = []
    rows = size_bytes = 0
    for batch in batches:
        group.append(batch)
        rows, size_bytes = rows + batch.num_rows, size_bytes + batch.nbytes
        if rows >= ROW_GROUP_ROWS or size_bytes >= ROW_GROUP_BYTES:
            yield group
            group, rows, size_bytes = [], 0, 0
    if group:
        yield group


def _batches(
    objects: ObjectStore, request: CopyRequest, declaration: CopyColumns, tally: _Tally
) -> Iterator[pa.RecordBatch]:
    scan, decoder, schema = ColdScan(objects), declaration.decoder(), declaration.schema
    for part in request.parts:
        for messages in _read_part(scan, request, part, tally):
            batch = _rows(request.broker, part.queue_id, messages, decoder, schema)
            _count(tally, part.queue_id, batch)
            yield batch


def _read_part(scan: ColdScan, request: CopyRequest, part: CopyPart, tally: _Tally) -> Iterator[Messages]:
    """The messages of a part, block by block."""
    begin, end = part.first_queue_offset, part.next_queue_offset
    where = ColdRange(begin, end, 0, 0, part.object_key, part.object_bytes)
    offset = begin
    try:
        for block in scan.blocks(request.topic, part.queue_id, where, begin, end):
            if any(system_flag_of(record) & BATCH_FLAGS for record in block.records):
                yield from _unpack_batches(request, part, block, tally)
            else:
                yield RecordMessages(block.records)
            offset = block.next_queue_offset
    except StoreError as error:
        if not request.passes_damage or error.name != "CHUNK_DAMAGED":
            raise
        _log.error("Left out of the copy of %s, queue %d, from %d on: %s", request.topic, part.queue_id, offset, error)
        tally.lost += end - offset
        tally.next_offsets[part.queue_id] = end


def _unpack_batches(request: CopyRequest, part: CopyPart, block: ColdBlock, tally: _Tally) -> Iterator[TableMessages]:
    """The messages of a block some of whose records are batches: several messages each, or of the bulk lane."""
    queue = QueueAddress(request.topic, request.broker, part.queue_id, "")
    first, end = block.first_queue_offset, block.next_queue_offset
    answer = PullBatch(PullStatus.FOUND, end, first, end, b"".join(block.records))
    offset = first
    while offset < end:
        fetched = decode_fetch(answer, queue, offset)
        offset = fetched.next_offset
        tally.lost += len(fetched.damaged)
        for damage in fetched.damaged:
            words = "Left out of the copy of %s, log offset %d: %s"
            _log.error(words, request.topic, damage.log_offset, damage.reason)
        if fetched.table.num_rows:
            yield TableMessages(fetched.table, part.queue_id)


def _rows(broker: str, queue_id: int, messages: Messages, decoder: BodyDecoder, schema: pa.Schema) -> pa.RecordBatch:
    """One row for each message, those that are malformed among them."""
    count, bodies = len(messages), messages.bodies()
    decoded = decoder.decode(bodies)
    problems: list[str | None] = [None] * count
    kept_bodies: list[bytes | memoryview | None] = [None] * count
    declared: Sequence[pa.Array] = decoded.columns
    if decoded.malformed or decoded.kept is not None:
        rows: list[int | None] = [None] * count
        for row, position in enumerate(range(count) if decoded.kept is None else decoded.kept.to_pylist()):
            rows[position] = row
        for one in decoded.malformed:
            problems[one.position] = one.reason
            kept_bodies[one.position] = bodies[one.position]
        places = pa.array(rows, pa.int32())
        declared = [column.take(places) for column in decoded.columns]
    arrays = [
        pa.repeat(pa.scalar(broker, pa.string()), count),
        pa.repeat(pa.scalar(queue_id, pa.int32()), count),
        _numbers(messages, "queue-offset"),
        _moments(messages, "store-timestamp", schema.field("_stored_at").type),
        _moments(messages, "born-timestamp", schema.field("_born_at").type),
        pa.array(messages.metadata("message-id"), pa.string()),
        pa.array(messages.metadata("keys"), schema.field("_keys").type),
        pa.array(messages.metadata("tag"), pa.string()),
        pa.array([list(one.items()) for one in messages.metadata("properties")], schema.field("_properties").type),
        pa.array(problems, pa.string()),
        pa.array(kept_bodies, pa.binary()),
        *declared,
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _moments(messages: Messages, key: str, instant: pa.DataType) -> pa.Array:
    """NULL where the year is none that tables have: the broker keeps what a sender says, whose unit may be another."""
    numbers = _numbers(messages, key)
    is_fit = pc.and_(pc.greater_equal(numbers, FIRST_MS), pc.less_equal(numbers, LAST_MS))
    return pc.multiply(pc.if_else(is_fit, numbers, None), _MICROSECONDS).cast(instant)


def _numbers(messages: Messages, key: str) -> pa.Array:
    found = messages.numbers(key)
    return pa.array(messages.metadata(key), pa.int64()) if found is None else found


def _count(tally: _Tally, queue_id: int, batch: pa.RecordBatch) -> None:
    stored = pc.min_max(batch.column("_stored_at").cast(pa.int64())).as_py()
    first_ms, last_ms = stored["min"] // _MICROSECONDS, stored["max"] // _MICROSECONDS
    tally.first_stored_ms = first_ms if tally.first_stored_ms is None else min(tally.first_stored_ms, first_ms)
    tally.last_stored_ms = max(tally.last_stored_ms, last_ms)
    tally.rows += batch.num_rows
    tally.malformed += batch.num_rows - batch.column("_problem").null_count
    tally.next_offsets[queue_id] = batch.column("_queue_offset")[-1].as_py() + 1
