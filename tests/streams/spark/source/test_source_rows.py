"""Records of a topic to rows: metadata, compressed bodies, the tick, and what is left beside the rows."""

from __future__ import annotations

import datetime
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="needs the extra streams")

import pyarrow as pa

from millstream.model.message import Address, OutgoingMessage, SystemFlag
from millstream.protocol.record import encode_record
from millstream.streams.connectors.rocketmq.reader import DecodedSlices
from millstream.streams.plan.types import BIGINT, INT, STRING, DataType, TypeKind
from millstream.streams.spark.source.dead_letters import MalformedMessage, MalformedWriter, malformed_spool
from millstream.streams.spark.source.position import Position, Slice
from millstream.streams.spark.source.rows import METADATA_KEYS, RowBuilder
from millstream.streams.spark.source.spec import SourceColumn, SourceSpec

HOST = Address("127.0.0.1", 10911)
STORED_MS = 1_700_000_000_123
INSTANT = DataType(TypeKind.TIMESTAMP_LTZ, precision=3)
PAIRS = DataType(TypeKind.MAP, elements=(STRING, STRING))
STRINGS = DataType(TypeKind.ARRAY, elements=(STRING,))


def record(body: bytes, *, properties: dict[str, str] | None = None, flag: SystemFlag = SystemFlag.NONE) -> memoryview:
    message = OutgoingMessage("t", body, properties or {}, system_flag=flag, born_timestamp_ms=STORED_MS - 23)
    stored = encode_record(
        message, queue_id=2, queue_offset=7, log_offset=0, store_timestamp_ms=STORED_MS, store_host=HOST
    )
    return memoryview(stored)


def builder(*columns: SourceColumn) -> RowBuilder:
    return RowBuilder(SourceSpec("n", "t", columns, Position()))


def row(columns: Sequence[SourceColumn], stored: memoryview) -> dict[str, object]:
    batch, malformed = builder(*columns).build([stored])
    assert not malformed
    (values,) = batch.to_pylist()
    assert values.pop("__tick") is None
    return dict(values)


def test_every_metadata_key_fills_its_column() -> None:
    stored = record(
        b'{"id": 1}',
        properties={"UNIQ_KEY": "ABC", "KEYS": "k1 k2", "TAGS": "blue", "mine": "yes", "__CRC32#": "1"},
    )
    columns = [
        SourceColumn("topic", STRING, "topic"),
        SourceColumn("queue", INT, "queue-id"),
        SourceColumn("id", INT),
        SourceColumn("at", BIGINT, "queue-offset"),
        SourceColumn("message", STRING, "message-id"),
        SourceColumn("keys", STRING, "keys"),
        SourceColumn("key_list", STRINGS, "keys"),
        SourceColumn("tag", STRING, "tag"),
        SourceColumn("born", BIGINT, "born-timestamp"),
        SourceColumn("stored", INSTANT, "store-timestamp"),
        SourceColumn("properties", PAIRS, "properties"),
    ]
    assert {column.metadata for column in columns} - {None} == METADATA_KEYS
    assert row(columns, stored) == {
        "topic": "t",
        "queue": 2,
        "id": 1,
        "at": 7,
        "message": "ABC",
        "keys": "k1 k2",
        "key_list": ["k1", "k2"],
        "tag": "blue",
        "born": STORED_MS - 23,
        "stored": datetime.datetime(2023, 11, 14, 22, 13, 20, 123000, tzinfo=datetime.UTC),
        "properties": [("mine", "yes")],
    }


def test_what_a_message_does_not_have_is_null() -> None:
    columns = [SourceColumn(key, STRING, key) for key in ("message-id", "keys", "tag")]
    assert row(columns, record(b"{}")) == {"message-id": None, "keys": None, "tag": None}


def test_a_compressed_body_is_read_and_one_that_only_says_so_is_malformed() -> None:
    good = record(zlib.compress(b'{"id": 5}'), flag=SystemFlag.COMPRESSED)
    bad = record(b"\x01\x02", flag=SystemFlag.COMPRESSED)
    batch, malformed = builder(SourceColumn("id", INT)).build([bad, good])
    assert batch.column(0).to_pylist() == [5]
    assert [refused.position for refused in malformed] == [0]


def test_metadata_stays_with_its_row_where_a_neighbour_is_malformed() -> None:
    columns = (SourceColumn("id", INT), SourceColumn("tag", STRING, "tag"))
    records = [record(b"{", properties={"TAGS": "a"}), record(b'{"id": 2}', properties={"TAGS": "b"})]
    batch, _ = builder(*columns).build(records)
    assert [(values["id"], values["tag"]) for values in batch.to_pylist()] == [(2, "b")]


def test_a_tick_is_a_row_of_nothing_but_its_time() -> None:
    batch = builder(SourceColumn("id", INT)).tick(STORED_MS)
    assert batch.schema == builder(SourceColumn("id", INT)).schema
    (values,) = batch.to_pylist()
    assert values["id"] is None
    assert values["__tick"].timestamp() * 1000 == STORED_MS


def test_a_second_read_of_the_same_rows_leaves_the_same_malformed_messages(tmp_path: Path) -> None:
    for _ in range(2):
        writer = MalformedWriter(str(tmp_path), Slice("broker-a/0", 10, 5010), keep_bodies=True)
        for offset in range(10, 2510):
            writer.add(offset, "no JSON", b"x%d" % offset)
        writer.finish()
    messages = list(malformed_spool(tmp_path).take())
    assert [message.queue_offset for message in messages] == list(range(10, 2510))
    assert messages[0] == MalformedMessage("broker-a/0", 10, "no JSON", b"x10")


def test_bodies_are_left_out_of_the_spool_where_they_are_only_counted(tmp_path: Path) -> None:
    writer = MalformedWriter(str(tmp_path), Slice("broker-a/0", 0, 1), keep_bodies=False)
    writer.add(0, "no JSON", b"secret")
    writer.finish()
    assert [message.body for message in malformed_spool(tmp_path).take()] == [b""]


def _batches(*numbers: int) -> Iterator[pa.RecordBatch]:
    for number in numbers:
        yield pa.record_batch({"x": pa.array([number])})


def test_a_decoded_slice_is_found_only_when_it_was_read_to_its_end(tmp_path: Path) -> None:
    part = Slice("broker-a/0", 0, 3)
    decoded = DecodedSlices(str(tmp_path / "decoded"), pa.schema([("x", pa.int64())]))
    assert decoded.find(part) is None
    half = decoded.keep(part, _batches(1, 2, 3))
    next(half)
    half.close()
    assert decoded.find(part) is None
    assert [batch.column(0).to_pylist() for batch in decoded.keep(part, _batches(1, 2, 3))] == [[1], [2], [3]]
    found = decoded.find(part)
    assert found is not None
    assert [batch.column(0).to_pylist() for batch in found] == [[1], [2], [3]]
    assert decoded.find(Slice("broker-a/0", 0, 4)) is None


def test_rows_are_still_read_where_there_is_no_room_to_keep_them(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a directory")
    decoded = DecodedSlices(str(blocked), pa.schema([("x", pa.int64())]))
    assert len(list(decoded.keep(Slice("q/0", 0, 2), _batches(1, 2)))) == 2
