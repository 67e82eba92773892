"""Chunks to one Parquet file: each message is one row, whatever record it lies in and whatever format it has."""

from __future__ import annotations

import io
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import fastavro
import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from crash.faulty_objects import FaultyObjects

from millstream.model.errors import MillstreamError, StoreError
from millstream.model.message import OutgoingMessage, SystemFlag
from millstream.protocol.remoting.messages.batch import encode_batch_item
from millstream.server.columns import conversion
from millstream.server.columns.conversion import copy_messages
from millstream.store.message_store import MessageStore, PendingRecord, StoreOptions
from millstream.tiered.cold_map import ColdMap, ColdStretch, commit_stretch, stretch_name
from millstream.tiered.columns.column_map import data_prefix, next_file
from millstream.tiered.columns.column_work import CopiedFile, CopyRequest
from millstream.tiered.upload import StretchUpload, gather_stretch

COLUMNS = "id BIGINT, name STRING"
KEY = "columns/c/t/data/b/1.parquet"


def request_of(
    directory: Path,
    objects: FaultyObjects,
    messages: Sequence[OutgoingMessage],
    *,
    columns: str = COLUMNS,
    body_format: str = "json",
    batches: bool = False,
) -> CopyRequest:
    """A copy of these messages, which lie in chunks of `objects`."""
    store = MessageStore.open(directory / "store", StoreOptions(segment_bytes=1 << 22, consume_queue_entries=64))
    for message in messages:
        count = message.message_count if batches else None
        store.put([PendingRecord(message, message.queue_id or 0, batch_count=count)])
    store.flush()
    end = store.visible_log_offset
    stretch = gather_stretch(store.walk_log(0, end), {"t": 0}.get)
    store.close()
    row, name = ColdStretch(0, 0, end), stretch_name("c", "b", 0, 0, "u")
    cold = ColdMap()
    cold.apply(name, commit_stretch(row, StretchUpload(objects, "c", "b").put(name, row, stretch)))
    following = next_file(cold, "t", data_prefix("c", "t", "b"), 0)
    assert following is not None
    return CopyRequest("t", "b", columns, body_format, KEY, following.parts)


def rows_of(objects: FaultyObjects, *names: str) -> list[tuple[Any, ...]]:
    table = pq.read_table(io.BytesIO(objects.objects[KEY]))
    return [tuple(row[name] for name in names) for row in table.to_pylist()]


def json_message(number: int, queue_id: int = 0, **held: str) -> OutgoingMessage:
    return OutgoingMessage("t", msgspec.json.encode({"id": number, "name": f"n{number}"}), held, queue_id=queue_id)


def test_rows_are_in_the_order_of_queues_and_offsets(tmp_path: Path) -> None:
    objects = FaultyObjects()
    held = copy_messages(
        objects, request_of(tmp_path, objects, [json_message(number, number % 3) for number in range(7)])
    )
    assert rows_of(objects, "_queue_id", "_queue_offset", "id") == [
        (0, 0, 0), (0, 1, 3), (0, 2, 6), (1, 0, 1), (1, 1, 4), (2, 0, 2), (2, 1, 5),
    ]  # fmt: skip
    assert (held.rows, held.malformed, held.lost, held.next_offsets) == (7, 0, 0, {0: 3, 1: 2, 2: 2})
    assert held.size_bytes == len(objects.objects[KEY])


def test_each_message_of_a_batch_is_a_row(tmp_path: Path) -> None:
    items = [encode_batch_item(b'{"id": %d}' % number, {"TAGS": "x", "mine": "y"}) for number in (1, 2)]
    plain = OutgoingMessage(
        "t",
        b"".join(items),
        {},
        queue_id=0,
        system_flag=SystemFlag.INNER_BATCH | SystemFlag.NEED_UNWRAP,
        message_count=2,
    )
    table = pa.record_batch({"body": pa.array([b'{"id": 3}', b"none"], pa.binary()), "tag": pa.array(["z", None])})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_batch(table)
    bulk = OutgoingMessage(
        "t",
        sink.getvalue().to_pybytes(),
        {},
        queue_id=0,
        system_flag=SystemFlag.INNER_BATCH | SystemFlag.ARROW_BATCH,
        message_count=2,
    )
    objects = FaultyObjects()
    held = copy_messages(
        objects, request_of(tmp_path, objects, [json_message(0), plain, bulk, json_message(5)], batches=True)
    )
    assert rows_of(objects, "_queue_offset", "id", "_tag", "_body") == [
        (0, 0, None, None), (1, 1, "x", None), (2, 2, "x", None), (3, 3, "z", None), (4, None, None, b"none"),
        (5, 5, None, None),
    ]  # fmt: skip
    assert (held.rows, held.malformed, held.next_offsets) == (6, 1, {0: 6})


def test_a_compressed_body_is_read_unpacked(tmp_path: Path) -> None:
    body = zlib.compress(b'{"id": 9, "name": "packed"}')
    objects = FaultyObjects()
    message = OutgoingMessage("t", body, {}, queue_id=0, system_flag=SystemFlag.COMPRESSED)
    copy_messages(objects, request_of(tmp_path, objects, [message]))
    assert rows_of(objects, "id", "name") == [(9, "packed")]


def avro_body(number: int) -> bytes:
    fields = [{"name": "id", "type": ["null", "long"]}, {"name": "name", "type": ["null", "string"]}]
    sink = io.BytesIO()
    schema = {"type": "record", "name": "r", "fields": fields}
    fastavro.schemaless_writer(sink, schema, {"id": number, "name": f"n{number}"})
    return sink.getvalue()


@pytest.mark.parametrize(
    ("body_format", "columns", "body", "row"),
    [
        ("csv", COLUMNS, b"4,n4", (4, "n4")),
        ("raw", "name STRING", b"as it is", ("as it is",)),
        ("avro", COLUMNS, avro_body(4), (4, "n4")),
    ],
)
def test_bodies_are_read_in_their_format(
    tmp_path: Path, body_format: str, columns: str, body: bytes, row: tuple[Any, ...]
) -> None:
    objects = FaultyObjects()
    messages = [OutgoingMessage("t", body, {}, queue_id=0)]
    copy_messages(objects, request_of(tmp_path, objects, messages, columns=columns, body_format=body_format))
    names = [part.split()[0] for part in columns.split(", ")]
    assert rows_of(objects, *names, "_problem") == [(*row, None)]


def test_row_groups_end_where_they_are_large_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conversion, "ROW_GROUP_ROWS", 10)
    objects = FaultyObjects()
    copy_messages(objects, request_of(tmp_path, objects, [json_message(number) for number in range(25)]))
    metadata = pq.read_metadata(io.BytesIO(objects.objects[KEY]))
    assert [metadata.row_group(number).num_rows for number in range(metadata.num_row_groups)] == [10, 10, 5]


def test_a_file_that_is_there_counts_as_what_it_says_that_it_holds(tmp_path: Path) -> None:
    objects = FaultyObjects()
    request = request_of(tmp_path, objects, [json_message(0), OutgoingMessage("t", b"bad", {}, queue_id=1)])
    first = copy_messages(objects, request)
    # Whoever comes later may find less of the messages.
    later = copy_messages(objects, msgspec.structs.replace(request, parts=request.parts[:1]))
    assert later == first
    assert isinstance(later, CopiedFile)


def test_another_object_in_the_place_of_the_file_is_told(tmp_path: Path) -> None:
    objects = FaultyObjects()
    request = request_of(tmp_path, objects, [json_message(0)])
    objects.put(KEY, b"of somebody else")
    with pytest.raises(StoreError, match="is there already and no copy") as refused:
        copy_messages(objects, request)
    assert refused.value.name == "COLUMN_COPY_FAILED"


def test_a_damaged_chunk_fails_the_copy_unless_it_may_be_passed_over(tmp_path: Path) -> None:
    objects = FaultyObjects()
    request = request_of(tmp_path, objects, [json_message(number) for number in range(5)])
    [key] = [key for key in objects.objects if key.endswith(".msc")]
    chunk = objects.objects[key]
    objects.objects[key] = chunk[:20] + bytes([chunk[20] ^ 1]) + chunk[21:]
    with pytest.raises(MillstreamError) as failed:
        copy_messages(objects, request)
    assert failed.value.name == "CHUNK_DAMAGED"
    held = copy_messages(objects, msgspec.structs.replace(request, passes_damage=True))
    assert (held.rows, held.lost) == (0, 5)
    assert KEY not in objects.objects
