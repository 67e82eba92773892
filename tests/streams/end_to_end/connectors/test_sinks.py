"""What the sinks hold after a job."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import AbstractContextManager

import pyarrow.parquet
import pytest
from pyspark.sql import SparkSession
from running_jobs import Topic, bounded_run

from millstream.client.blocking import BlockingClient
from millstream.model.topic import TopicConfig

pytestmark = pytest.mark.spark

SOURCE = "CREATE TABLE t (id INT, word STRING) WITH ('connector' = 'rocketmq', 'topic' = 't');"
ROWS = [(0, json.dumps({"id": number, "word": f"w,{number}"}).encode()) for number in range(20)]
Filled = Callable[..., AbstractContextManager[Topic]]


def test_several_inserts_into_one_directory_keep_all_their_rows(spark: SparkSession, topic: Filled) -> None:
    with topic(ROWS) as running:
        target = running.directory / "out"
        result = bounded_run(
            spark,
            running,
            f"{SOURCE} CREATE TABLE f (id INT) WITH ('connector' = 'filesystem', 'path' = '{target}');"
            "EXECUTE STATEMENT SET BEGIN INSERT INTO f SELECT id FROM t WHERE id < 5;"
            "INSERT INTO f SELECT id FROM t WHERE id >= 5; INSERT INTO f SELECT id + 100 FROM t WHERE id = 7; END;",
            name="shared",
        )
    lines = [json.loads(line)["id"] for path in target.glob("part-*.json") for line in path.read_text().splitlines()]
    assert sorted(lines) == [*range(20), 107]
    assert result.progress.rows_out == {"f": 21}
    assert not list(target.glob(".*"))


def test_csv_and_parquet_hold_the_same_rows(spark: SparkSession, topic: Filled) -> None:
    with topic(ROWS[:3]) as running:
        bounded_run(
            spark,
            running,
            f"{SOURCE}"
            f"CREATE TABLE c (id INT, word STRING) WITH ('connector' = 'filesystem', 'path' = '{running.directory}/c', 'format' = 'csv');"
            f"CREATE TABLE p (id INT, word STRING) WITH ('connector' = 'filesystem', 'path' = '{running.directory}/p', 'format' = 'parquet');"
            "EXECUTE STATEMENT SET BEGIN INSERT INTO c SELECT * FROM t; INSERT INTO p SELECT * FROM t; END;",
            name="formats",
        )
        text = "".join(path.read_text() for path in (running.directory / "c").glob("part-*.csv"))
        table = pyarrow.parquet.read_table(running.directory / "p")
    assert text == '0,"w,0"\n1,"w,1"\n2,"w,2"\n'
    assert table.to_pylist() == [{"id": number, "word": f"w,{number}"} for number in range(3)]


def test_rows_become_messages_with_key_and_tag(spark: SparkSession, topic: Filled) -> None:
    with topic(ROWS[:4]) as running, BlockingClient(running.nameserver) as client:
        client.create_topic(TopicConfig("out", read_queues=2, write_queues=2))
        bounded_run(
            spark,
            running,
            f"{SOURCE} CREATE TABLE o (id INT, word STRING) WITH ('connector' = 'rocketmq', 'topic' = 'out',"
            " 'sink.tag' = 'made', 'sink.key-column' = 'word');"
            "INSERT INTO o SELECT id, UPPER(word) FROM t WHERE id > 1",
            name="messages",
        )
        messages = [
            message
            for item in client.queue_ranges("out")
            for batch in client.read(item.queue, 0, item.range.max_offset)
            for message in batch.messages()
        ]
    assert sorted(json.loads(message.body)["word"] for message in messages) == ["W,2", "W,3"]
    assert {message.tag for message in messages} == {"made"}
    assert sorted(message.keys for message in messages) == [("W,2",), ("W,3",)]
