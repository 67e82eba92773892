"""Jobs over topics whose messages have a schema, and rows that leave by HTTP and for a search engine."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest
from pyspark.sql import SparkSession
from running_jobs import Topic, bounded_run

from http_servers import Asked, SearchEngine, Told, serving
from millstream.client.blocking import BlockingClient
from millstream.model.topic import TopicConfig

pytestmark = pytest.mark.spark

Filled = Callable[..., AbstractContextManager[Topic]]

WORD = "id BIGINT NOT NULL, word STRING NOT NULL"
# Avro's own example of a record, {27, "foo"}, then {1, "b"}, and something torn.
AVRO = [(0, bytes.fromhex("3606666f6f")), (0, bytes.fromhex("020262")), (0, b"\x02")]


def bodies(topic: Topic, name: str) -> list[bytes]:
    with BlockingClient(topic.nameserver) as client:
        return [
            message.body
            for item in client.queue_ranges(name)
            for batch in client.read(item.queue, 0, item.range.max_offset)
            for message in batch.messages()
        ]


def test_avro_is_read_and_written_and_what_is_torn_is_set_aside(spark: SparkSession, topic: Filled) -> None:
    pytest.importorskip("fastavro", reason="needs the extra formats")
    with topic(AVRO) as running:
        with BlockingClient(running.nameserver) as client:
            client.create_topic(TopicConfig("o", read_queues=1, write_queues=1))
        script = (
            f"CREATE TABLE t ({WORD}) WITH ('connector' = 'rocketmq', 'topic' = 't', 'format' = 'avro');"
            f"CREATE TABLE o ({WORD}) WITH ('connector' = 'rocketmq', 'topic' = 'o', 'format' = 'avro');"
            "INSERT INTO o SELECT id, word FROM t"
        )
        result = bounded_run(spark, running, script, name="avro")
        assert sorted(bodies(running, "o")) == sorted(body for _, body in AVRO[:2])
        assert bodies(running, "t_dead_letter") == [b"\x02"]
    assert result.progress.malformed == 1


def test_rows_leave_by_http_and_changing_ones_for_a_search_engine_that_is_read_again(
    spark: SparkSession, topic: Filled
) -> None:
    engine = SearchEngine(busy=frozenset({"w1"}))
    rows = [(0, json.dumps({"id": number, "word": f"w{number % 3}"}).encode()) for number in range(9)]

    def reply(asked: Asked) -> Told:
        return Told(204, b"") if asked.path == "/rows" else engine.reply(asked)

    with topic(rows) as running, serving(reply) as server:
        source = "CREATE TABLE t (id INT, word STRING) WITH ('connector' = 'rocketmq', 'topic' = 't');"
        index = (
            "CREATE TABLE words (word STRING, n BIGINT, PRIMARY KEY (word) NOT ENFORCED)"
            f" WITH ('connector' = 'elasticsearch-7', 'hosts' = '{server.address}', 'index' = 'words');"
        )
        script = (
            f"{source}{index} CREATE TABLE calls (id INT) WITH ('connector' = 'http', 'url' = '{server.address}/rows', 'body' = 'array');"
            "EXECUTE STATEMENT SET BEGIN INSERT INTO calls SELECT id FROM t WHERE id < 4;"
            "INSERT INTO words SELECT word, COUNT(*) FROM t GROUP BY word; END;"
        )
        bounded_run(spark, running, script, name="out")
        told = "CREATE TABLE told (word STRING, n BIGINT) WITH ('connector' = 'print');"
        found = bounded_run(
            spark, running, f"{index}{told} INSERT INTO told SELECT word, n FROM words WHERE n > 2", name="in"
        )
    sent = [row["id"] for asked in server.requests if asked.path == "/rows" for row in json.loads(asked.body)]
    assert sorted(sent) == [0, 1, 2, 3]
    assert engine.indices["words"] == {f"w{number}": {"word": f"w{number}", "n": 3} for number in range(3)}
    assert found.sorted("told") == [("w0", 3), ("w1", 3), ("w2", 3)]
