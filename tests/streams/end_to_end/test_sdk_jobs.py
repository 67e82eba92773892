"""Jobs of the SDK over a real topic: their Python functions, their rows beside SQL's, and how they are stopped."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import pytest
from pyspark.sql import SparkSession
from running_jobs import Collected, Topic

from millstream.client.blocking import BlockingClient
from millstream.streams.errors import JobError
from millstream.streams.sdk import Row, RunningJob, StreamBuilder, tumbling

pytestmark = pytest.mark.spark

Filled = Callable[..., AbstractContextManager[Topic]]

LINE = {"line": str, "size": int, "ts": "TIMESTAMP(3)"}


class Word(NamedTuple):
    word: str
    first: str | None


def words(row: Row) -> Iterator[Word]:
    for word in row.line.split():
        yield Word(word, word[0] if word[0].isupper() else None)


def lines(*of: tuple[str, int, int]) -> list[tuple[int, bytes]]:
    """Lines with a size, at a second of one minute."""
    return [
        (0, json.dumps({"line": line, "size": size, "ts": f"2026-05-01 12:00:{second:02d}"}).encode())
        for line, size, second in of
    ]


def builder_of(topic: Topic) -> StreamBuilder:
    builder = StreamBuilder("job", nameserver=topic.nameserver)
    builder.source("t", schema=LINE, timestamp="ts", watermark="5 s")
    return builder


def run(builder: StreamBuilder, spark: SparkSession, topic: Topic) -> Collected:
    collected = Collected()
    collected.progress = builder.run_bounded(
        spark=spark, checkpoint_dir=topic.directory / "checkpoints", on_rows=collected.take
    )
    return collected


def letters_of(topic: Topic) -> list[tuple[dict[str, Any], str, str]]:
    """The bodies, the reasons and the tracebacks of what is in the dead-letter topic."""
    with BlockingClient(topic.nameserver) as client:
        return [
            (
                json.loads(message.body),
                message.user_properties["reason"],
                message.user_properties["traceback"],
            )
            for item in client.queue_ranges("t_dead_letter")
            for batch in client.read(item.queue, 0, item.range.max_offset)
            for message in batch.messages()
        ]


def test_functions_windows_and_sql_run_in_one_query(spark: SparkSession, topic: Filled) -> None:
    sent = lines(("To be or", 1, 1), ("not to be", 2, 3), ("be", 3, 11), ("", 4, 30))
    with topic(sent) as server:
        builder = builder_of(server)
        found = builder.table("t").flat_map(words).to_table("words")
        found.key_by("word").window(tumbling("10 s")).aggregate(n="COUNT(*)", firsts="COUNT(`first`)").print("counts")
        found.filter(lambda row: row.first is not None).select("word").print("capital")
        builder.sql("CREATE TABLE sizes (total BIGINT) WITH ('connector' = 'print')")
        builder.sql("INSERT INTO sizes SELECT size FROM t WHERE size > 2")
        collected = run(builder, spark, server)
    windows = [(str(start)[17:19], word, n, firsts) for start, _, word, n, firsts in collected.rows["counts"]]
    assert sorted(windows) == [
        ("00", "To", 1, 1), ("00", "be", 2, 0), ("00", "not", 1, 0), ("00", "or", 1, 0), ("00", "to", 1, 0),
        ("10", "be", 1, 0),
    ]  # fmt: skip
    assert collected.rows["capital"] == [("To",)]
    assert collected.sorted("sizes") == [(3,), (4,)]
    assert collected.progress.rows_in == 4
    assert collected.progress.state == "ended"


def test_rows_that_a_function_refuses_are_dead_letters_with_their_traceback(spark: SparkSession, topic: Filled) -> None:
    def number(row: Row) -> int:
        return int(row.line)

    with topic(lines(("1", 1, 1), ("one", 1, 2), ("3", 1, 3))) as server:
        builder = builder_of(server)
        builder.table("t").drop("ts").map(number).print("numbers")
        collected = run(builder, spark, server)
        ((body, reason, trace),) = letters_of(server)
    assert collected.sorted("numbers") == [(1,), (3,)]
    assert collected.progress.failed_calls == {"number": 1}
    assert body["line"] == "one"
    assert "number: ValueError: invalid literal for int() with base 10: 'one'" in reason
    assert "return int(row.line)" in trace


def test_a_function_may_end_the_job(spark: SparkSession, topic: Filled) -> None:
    def number(row: Row) -> int:
        return int(row.line)

    with topic(lines(("one", 1, 2))) as server:
        builder = builder_of(server)
        builder.table("t").map(number, on_error="fail").print("numbers")
        with pytest.raises(JobError, match=r"(?s)number\(.*ValueError: invalid literal.*return int\(row.line\)"):
            run(builder, spark, server)


def test_records_of_extremes_and_pairs_of_the_latest(spark: SparkSession, topic: Filled) -> None:
    sent = lines(("a", 5, 1), ("a", 5, 2), ("a", 9, 3), ("b", 7, 4), ("b", 7, 5), ("a", 9, 6))
    with topic(sent) as server:
        builder = builder_of(server)
        events = builder.table("t").key_by("line")
        events.min("size").print("least")
        events.max("size").print("most")
        small, great = events.filter("size < 8"), events.filter("size > 8")
        small.join(great, latest=True).print("pairs")
        collected = run(builder, spark, server)

    def shown(sink: str) -> list[tuple[Any, ...]]:
        # The second of a row's event time says which one it is.
        return sorted((row[0], row[1], row[2].second) for row in collected.table(sink).elements())

    assert shown("least") == [("a", 5, 1), ("b", 7, 4)]
    assert shown("most") == [("a", 9, 3), ("b", 7, 4)]
    (pair,) = collected.table("pairs").elements()
    assert (pair[0], pair[1], pair[2].second, pair[3], pair[4].second) == ("a", 5, 2, 9, 6)


def test_a_started_job_tells_how_it_is_and_stops(spark: SparkSession, topic: Filled) -> None:
    async def ended(job: RunningJob) -> str:
        return (await job).state

    with topic(lines(("a", 1, 1))) as server:
        builder = builder_of(server)
        builder.table("t").print("rows")
        collected = Collected()
        with builder.start(spark=spark, on_rows=collected.take) as job:
            assert job.name == "job"
            assert not job.wait(0)
            assert job.status == "running"
        assert job.wait(60)
        bounded = builder.start(spark=spark, bounded=True, on_rows=collected.take)
        assert asyncio.run(ended(bounded)) == "ended"
        bounded.stop()
    assert ("a", 1) in [row[:2] for row in collected.rows["rows"]]
