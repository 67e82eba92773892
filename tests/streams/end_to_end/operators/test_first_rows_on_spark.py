"""Deduplication by the first row of each key on a real Spark, into sinks that take new rows alone."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from running_jobs import Topic, bounded_run, filled_topic

from millstream.client.blocking import BlockingClient
from millstream.model.topic import TopicConfig

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1800)]

TABLES = """
CREATE TABLE events (id STRING, number BIGINT, at BIGINT, ts AS TO_TIMESTAMP_LTZ(at, 3),
    WATERMARK FOR ts AS ts - INTERVAL '20' SECOND) WITH ('connector' = 'rocketmq', 'topic' = 't');
CREATE TABLE files (id STRING, number BIGINT) WITH ('connector' = 'filesystem', 'path' = '{directory}/{name}');
CREATE TABLE messages (id STRING, number BIGINT) WITH ('connector' = 'rocketmq', 'topic' = '{name}');
"""
FIRSTS = "SELECT id, number FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY id ORDER BY ts) AS place FROM events) WHERE place = 1"
# Each key comes up to four times; of two neighbours the later one comes first, which the watermark's delay covers.
EVENTS = [(f"k{number % 37}", number, 1_000_000 + (number ^ 1) * 1000) for number in range(150)]
CUTS = [("once", "150"), ("five", "30"), ("fifty", "3")]


@pytest.fixture(scope="module")
def events(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Topic]:
    bodies = [(0, json.dumps({"id": key, "number": number, "at": at}).encode()) for key, number, at in EVENTS]
    with filled_topic(tmp_path_factory.mktemp("firsts"), bodies, 1) as topic:
        yield topic


def first_rows() -> list[tuple[str, int]]:
    """Of each key the row with the least time."""
    found: dict[str, tuple[int, int]] = {}
    for key, number, at in EVENTS:
        if key not in found or at < found[key][0]:
            found[key] = (at, number)
    return sorted((key, number) for key, (_, number) in found.items())


def written(directory: Path) -> list[tuple[str, int]]:
    lines = [json.loads(line) for path in directory.glob("part-*.json") for line in path.read_text().splitlines()]
    return sorted((line["id"], line["number"]) for line in lines)


@pytest.mark.parametrize(("name", "rows"), CUTS)
def test_the_first_rows_are_written_once_however_the_stream_is_cut(
    name: str, rows: str, spark: SparkSession, events: Topic
) -> None:
    tables = TABLES.format(directory=events.directory, name=name)
    with BlockingClient(events.nameserver) as client:
        client.create_topic(TopicConfig(name, read_queues=1, write_queues=1))
        result = bounded_run(
            spark,
            events,
            f"SET 'millstream.max-rows-per-trigger' = '{rows}'; {tables}"
            f"EXECUTE STATEMENT SET BEGIN INSERT INTO files {FIRSTS}; INSERT INTO messages {FIRSTS}; END;",
            name=f"firsts-{name}",
            limit_s=1500.0,
        )
        sent = [
            json.loads(message.body)
            for item in client.queue_ranges(name)
            for batch in client.read(item.queue, 0, item.range.max_offset)
            for message in batch.messages()
        ]
    assert result.progress.batches >= len(EVENTS) // int(rows)
    assert written(events.directory / name) == first_rows()
    assert sorted((message["id"], message["number"]) for message in sent) == first_rows()
    assert result.progress.late == 0


def test_batch_writes_the_same_first_rows(spark: SparkSession, events: Topic) -> None:
    tables = TABLES.format(directory=events.directory, name="batch")
    script = f"SET 'execution.runtime-mode' = 'batch'; {tables} INSERT INTO files {FIRSTS}"
    bounded_run(spark, events, script, name="firsts-batch")
    assert written(events.directory / "batch") == first_rows()
