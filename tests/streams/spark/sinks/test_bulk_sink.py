"""The topic sink sends the same messages by the bulk lane as one by one."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="needs the extra streams")

import pyarrow as pa

from millstream.client.blocking import BlockingClient
from millstream.model.errors import MessageRefused
from millstream.model.message import StoredMessage
from millstream.model.topic import TopicConfig
from millstream.streams.connectors.rocketmq.sink import MessageMaker, TopicSink
from millstream.streams.plan.types import INT, STRING, DataType, Field, Schema, TypeKind
from millstream.streams.spark.sinks.sink import Attempt, SinkTask
from servers import Servers

PAIRS = DataType(TypeKind.MAP, elements=(STRING, STRING))
SCHEMA = Schema((Field("id", INT), Field("k", STRING), Field("t", STRING), Field("p", PAIRS)))
METADATA = (("k", "keys"), ("t", "tag"), ("p", "properties"))


def rows(start: int, stop: int) -> pa.RecordBatch:
    numbers = range(start, stop)
    return pa.record_batch(
        {
            "id": pa.array(list(numbers), pa.int32()),
            "k": [None if n % 3 else f"k{n} l" for n in numbers],
            "t": ["" if n % 4 else "tag" for n in numbers],
            "p": pa.array([[("colour", f"c{n}")] if n % 2 else None for n in numbers], pa.map_(pa.utf8(), pa.utf8())),
        }
    )


def sent(
    client: BlockingClient, servers: Servers, notes: Path, topic: str, batches: list[pa.RecordBatch]
) -> list[StoredMessage]:
    sink = TopicSink("s", MessageMaker(topic, SCHEMA, METADATA), servers.nameserver, timeout_s=10.0)
    sink.begin(Attempt("job", 0, 0, notes / topic))
    writer = sink.writer(SinkTask("job", 0, 0))
    for batch in batches:
        writer.write(batch)
    writer.finish()
    [held] = client.queue_ranges(topic)
    return [
        message
        for batch in client.read(held.queue, 0, held.range.max_offset)
        for message in batch.messages(verify=True)
    ]


def test_both_lanes_send_the_same_messages(servers_in_thread: Servers, tmp_path: Path) -> None:
    batches = [rows(0, 6000), rows(6000, 12_000), rows(12_000, 12_003)]
    with BlockingClient(servers_in_thread.nameserver) as client:
        client.create_topic(TopicConfig("b", read_queues=1, write_queues=1, attributes={"queue.type": "BatchCQ"}))
        client.create_topic(TopicConfig("plain", read_queues=1, write_queues=1))
        bulk = sent(client, servers_in_thread, tmp_path, "b", batches)
        plain = sent(client, servers_in_thread, tmp_path, "plain", batches)
    assert len(bulk) == 12_003
    for one, other in zip(bulk, plain, strict=True):
        assert (one.body, one.keys, one.tag, one.user_properties) == (
            other.body,
            other.keys,
            other.tag,
            other.user_properties,
        )
    # Full bulk messages, then what was left.
    times = [message.store_timestamp_ms for message in bulk]
    assert len(set(times[:10_000])) == 1


def test_a_row_that_cannot_be_stored_fails_the_task(servers_in_thread: Servers, tmp_path: Path) -> None:
    with BlockingClient(servers_in_thread.nameserver) as client:
        client.create_topic(TopicConfig("b", read_queues=1, write_queues=1, attributes={"queue.type": "BatchCQ"}))
        bad = rows(0, 1).set_column(1, "k", pa.array(["a\x01"]))
        with pytest.raises(MessageRefused):
            sent(client, servers_in_thread, tmp_path, "b", [bad])
