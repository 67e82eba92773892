"""A job over a topic of bulk messages, into a topic of bulk messages, ends as it does over ordinary ones."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from running_jobs import Topic, bounded_run

from millstream.client.blocking import BlockingClient
from millstream.client.bulk.blocking_producer import BlockingBulkProducer
from millstream.client.bulk.encoding import BulkEncoder
from millstream.model.topic import TopicConfig
from servers import running_servers_in_thread

pytestmark = pytest.mark.spark

_BODIES = [
    json.dumps({"id": number, "word": f"w{number % 7}", "ts": f"2026-01-01 00:{number // 66:02d}:00"}).encode()
    for number in range(3000)
]


def _topic(name: str, *, bulk: bool) -> TopicConfig:
    return TopicConfig(name, read_queues=2, write_queues=2, attributes={"queue.type": "BatchCQ"} if bulk else {})


def _job(spark: SparkSession, directory: Path, *, bulk: bool) -> tuple[list[tuple[object, ...]], dict[str, int], int]:
    directory.mkdir()
    with running_servers_in_thread(directory / "data") as servers, BlockingClient(servers.nameserver) as client:
        client.create_topic(_topic("t", bulk=bulk))
        client.create_topic(_topic("o", bulk=bulk))
        producer = BlockingBulkProducer(client, encoder=BulkEncoder(max_rows=250), fallback=not bulk)
        producer.send_batch("t", pa.record_batch({"body": _BODIES}))
        collected = bounded_run(
            spark,
            Topic(servers.nameserver, directory),
            "CREATE TABLE t (id INT, word STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '1' MINUTE)"
            " WITH ('connector' = 'rocketmq', 'topic' = 't',"
            " 'scan.max-rows-per-trigger' = '700');"
            "CREATE TABLE o (word STRING, n BIGINT, s BIGINT) WITH ('connector' = 'rocketmq', 'topic' = 'o', 'sink.key-column' = 'word');"
            "INSERT INTO o SELECT word, COUNT(*), SUM(id) FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '10' MINUTE))"
            " GROUP BY word, window_start, window_end",
            name="windows",
        )
        messages = [
            message
            for item in client.queue_ranges("o")
            for batch in client.read(item.queue, 0, item.range.max_offset)
            for message in batch.messages(verify=True)
        ]
        found = sorted((message.body, message.keys) for message in messages)
        return found, collected.progress.rows_out, collected.progress.rows_in


def test_the_same_job_ends_the_same_by_both_lanes(spark: SparkSession, tmp_path: Path) -> None:
    by_bulk = _job(spark, tmp_path / "bulk", bulk=True)
    assert len(by_bulk[0]) == 35
    assert by_bulk[2] == 3000
    assert by_bulk == _job(spark, tmp_path / "ordinary", bulk=False)
