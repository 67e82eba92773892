"""Topics read by the bulk lane give the very rows that they give when they are pulled."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="needs the extra streams")

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from millstream.client.blocking import BlockingClient
from millstream.client.bulk.blocking_producer import BlockingBulkProducer
from millstream.client.bulk.encoding import BulkEncoder
from millstream.client.bulk.fetched import TABLE_SCHEMA
from millstream.model.message import Message
from millstream.model.topic import TopicConfig
from millstream.protocol.remoting.codes import RequestCode
from millstream.streams.connectors.rocketmq.reader import TopicBatchReader, read_partition
from millstream.streams.plan.types import BIGINT, INT, STRING, DataType, TypeKind
from millstream.streams.spark.source.client_log import (
    _FETCHED_TABLE_BYTES,
    _FIRST_FETCH_BYTES,
    _PULL_BYTES,
    ClientLog,
    _next_fetch_bytes,
)
from millstream.streams.spark.source.dead_letters import malformed_spool
from millstream.streams.spark.source.messages import TableMessages
from millstream.streams.spark.source.position import Position, Slice, next_cut
from millstream.streams.spark.source.rows import METADATA_KEYS
from millstream.streams.spark.source.spec import SourceColumn, SourceSpec
from millstream.streams.spark.source.topic_partition import TopicPartition
from servers import Servers

QUEUE = "broker-a/0"
COLUMNS = (
    SourceColumn("topic", STRING, "topic"),
    SourceColumn("queue", INT, "queue-id"),
    SourceColumn("id", INT),
    SourceColumn("at", BIGINT, "queue-offset"),
    SourceColumn("text_at", STRING, "queue-offset"),
    SourceColumn("message", STRING, "message-id"),
    SourceColumn("keys", STRING, "keys"),
    SourceColumn("key_list", DataType(TypeKind.ARRAY, elements=(STRING,)), "keys"),
    SourceColumn("tag", STRING, "tag"),
    SourceColumn("born", BIGINT, "born-timestamp"),
    SourceColumn("stored", DataType(TypeKind.TIMESTAMP_LTZ, precision=3), "store-timestamp"),
    SourceColumn("stored_plain", DataType(TypeKind.TIMESTAMP, precision=3), "store-timestamp"),
    SourceColumn("properties", DataType(TypeKind.MAP, elements=(STRING, STRING)), "properties"),
)
BULK_ROWS = 1000


@pytest.fixture
def log(servers_in_thread: Servers) -> Iterator[ClientLog]:
    """A log whose topic `b` holds bulk messages of 1,000 rows, single messages and rows that are no JSON."""
    with BlockingClient(servers_in_thread.nameserver) as client:
        client.create_topic(TopicConfig("b", read_queues=1, write_queues=1, attributes={"queue.type": "BatchCQ"}))
        client.create_topic(TopicConfig("plain", read_queues=1, write_queues=1))
        producer = BlockingBulkProducer(client, encoder=BulkEncoder(max_rows=BULK_ROWS))
        for start in (0, 3000):
            producer.send_batch("b", _rows(start, start + 3000))
            single = [Message("b", b'{"id": -1}', "x", ("k", "l"), user_properties={"mine": "yes"})] * 3
            client.send_many(single)
    opened = ClientLog(servers_in_thread.nameserver, timeout_s=10.0)
    yield opened
    opened.close()


def _rows(start: int, stop: int) -> pa.RecordBatch:
    numbers = range(start, stop)
    return pa.record_batch(
        {
            "body": [b"no json" if n % 500 == 7 else json.dumps({"id": n}).encode() for n in numbers],
            "key": [None if n % 3 else f"k{n}" for n in numbers],
            "tag": [None if n % 4 == 3 else "abc"[n % 4] for n in numbers],
            "properties": [None if n % 2 else f"colour\x01c{n}\x02PGROUP\x01hidden\x02" for n in numbers],
        }
    )


def spec(servers: Servers, directory: Path, tag: str = "*", start: int = 0, end: int = 0) -> SourceSpec:
    return SourceSpec(
        servers.nameserver, "b", COLUMNS, Position({QUEUE: start}), Position({QUEUE: end}), tag=tag,
        spool=str(directory / "spool"), decoded="",
    )  # fmt: skip


def table(spec: SourceSpec, part: Slice, *, bulk: bool) -> pa.Table:
    batches = list(read_partition(spec, TopicPartition((part,), bulk=bulk)))
    assert all(batch.num_rows <= 8000 for batch in batches)
    return pa.Table.from_batches(batches) if batches else pa.table({})


@pytest.mark.parametrize("tag", ["*", "a||b", "x", "none"])
@pytest.mark.parametrize(("start", "end"), [(0, 6006), (1, 999), (999, 1001), (2500, 3002), (3001, 5777), (6005, 6006)])
def test_both_lanes_give_the_same_rows_of_any_range(
    servers_in_thread: Servers, log: ClientLog, tmp_path: Path, tag: str, start: int, end: int
) -> None:
    part = Slice(QUEUE, start, end)
    assert {column.metadata for column in COLUMNS} - {None} == METADATA_KEYS
    bulk = table(spec(servers_in_thread, tmp_path / "bulk", tag), part, bulk=True)
    ordinary = table(spec(servers_in_thread, tmp_path / "ordinary", tag), part, bulk=False)
    assert bulk.to_pylist() == ordinary.to_pylist()
    assert bulk.num_rows > 0 or tag != "*"
    refused = [list(malformed_spool(tmp_path / lane / "spool").take()) for lane in ("bulk", "ordinary")]
    assert refused[0] == refused[1]


def test_the_topic_says_whether_the_lane_is_taken(servers_in_thread: Servers, log: ClientLog, tmp_path: Path) -> None:
    assert [log.takes_bulk(topic) for topic in ("b", "plain", "missing")] == [True, False, False]
    reader = TopicBatchReader(spec(servers_in_thread, tmp_path, end=6006))
    assert all(isinstance(task, TopicPartition) and task.bulk for task in reader.partitions())


def test_a_broker_without_the_lane_is_pulled_from(servers_in_thread: Servers, log: ClientLog) -> None:
    del servers_in_thread.broker_server.handlers[RequestCode.BULK_FETCH]  # type: ignore[attr-defined]
    assert not log.takes_bulk("b")


def test_a_cut_by_store_time_counts_the_rows_of_bulk_messages(log: ClientLog) -> None:
    spans = log.spans("b")
    assert spans[QUEUE].max_offset == 6006
    position, seen = Position(), 0
    for _ in range(100):
        end = next_cut(position, spans, 1500, lambda queue, at: log.offset_at("b", queue, at), lambda: 0)
        if not end.rows_since(position):
            break
        part = Slice(QUEUE, position.offset(QUEUE), end.offset(QUEUE))
        offsets = [at for rows in log.read_bulk("b", part) for at in rows.column("queue_offset").to_pylist()]
        assert offsets == list(range(part.start, part.end))
        assert len(offsets) == end.rows_since(position)
        seen += len(offsets)
        position = end
    assert seen == 6006


def test_messages_of_several_answers_are_one_and_those_that_are_kept_of_kept_ones_are_the_same() -> None:
    values = [(b"%d" % number, f"k{number}", f"t{number % 3}", None, 100 + number, 5, 6) for number in range(10)]
    columns = [
        pa.array(column, kind) for column, kind in zip(zip(*values, strict=True), TABLE_SCHEMA.types, strict=True)
    ]
    batch = pa.RecordBatch.from_arrays(columns, schema=TABLE_SCHEMA)
    table = pa.Table.from_batches([batch.slice(0, 3), batch.slice(3, 0), batch.slice(3, 5), batch.slice(8)])
    messages = TableMessages(table, 7)
    assert (len(messages), messages.bodies()) == (10, [value[0] for value in values])
    assert list(map(bytes, messages.views())) == messages.bodies()
    kept = messages.keep(pa.array([1, 3, 4, 9], pa.int32()))
    once_more = kept.keep(pa.array([3, 1], pa.int32()))
    assert (len(once_more), once_more.bodies()) == (2, [b"9", b"3"])
    assert list(map(bytes, once_more.views())) == [b"9", b"3"]
    assert [bytes(once_more.body(place)) for place in (0, 1)] == [b"9", b"3"]
    assert [once_more.queue_offset(place) for place in (0, 1)] == [109, 103]
    assert list(once_more.metadata("keys")) == [("k9",), ("k3",)]
    assert list(once_more.metadata("tag")) == ["t0", "t0"]
    assert list(once_more.metadata("queue-id")) == [7, 7]
    numbers = kept.numbers("queue-offset")
    assert numbers is not None
    assert numbers.to_pylist() == [101, 103, 104, 109]


@pytest.mark.parametrize("body", [b"\xff", b"\xc3", b"\xed\xa0\x80"])
def test_bodies_are_texts_where_each_of_them_is_utf_8_by_itself(body: bytes) -> None:
    rows = [("\u00e9".encode(), b"", b"plain"), (b"plain", body)]
    for bodies, expected in zip(rows, (True, False), strict=True):
        columns = [pa.array(bodies, pa.binary()), *(pa.nulls(len(bodies), kind) for kind in TABLE_SCHEMA.types[1:])]
        table = pa.Table.from_arrays(columns, schema=TABLE_SCHEMA)
        assert TableMessages(table, 7).are_texts() is expected


def test_a_character_that_is_cut_between_two_bodies_makes_them_no_texts() -> None:
    columns = [pa.array([b"\xc3", b"\xa9"], pa.binary()), *(pa.nulls(2, kind) for kind in TABLE_SCHEMA.types[1:])]
    assert not TableMessages(pa.Table.from_arrays(columns, schema=TABLE_SCHEMA), 7).are_texts()


@given(st.integers(30, 10_000), st.integers(100, 3_000))
def test_fetches_come_to_ask_for_what_makes_a_table_of_a_good_size(ratio: int, stored_kib: int) -> None:
    asked, tables = _FIRST_FETCH_BYTES, []
    for _ in range(30):
        table_bytes = min(asked, stored_kib << 10) * ratio // 30
        tables.append(table_bytes)
        asked = _next_fetch_bytes(asked, table_bytes)
    assert 0 < asked <= _PULL_BYTES
    settled = tables[-3:]
    assert max(settled) <= _FETCHED_TABLE_BYTES
    assert asked == _PULL_BYTES or min(settled) >= _FETCHED_TABLE_BYTES // 4
