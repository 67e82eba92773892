"""Bounded jobs that run again and again on their checkpoint, each time over the messages that have come since."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

import pytest
from pyspark.sql import SparkSession
from running_jobs import Collected, Topic, bounded_run, compiled

from millstream.client.blocking import BlockingClient
from millstream.model.message import OutgoingMessage
from millstream.streams.jobs.runner import JobRunner

pytestmark = pytest.mark.spark

Filled = Callable[..., AbstractContextManager[Topic]]
Event = tuple[str, str]

TABLE = """
CREATE TABLE t (word STRING, at STRING, ts AS TO_TIMESTAMP(at), WATERMARK FOR ts AS ts)
  WITH ('connector' = 'rocketmq', 'topic' = 't');
"""
COUNTS = "SELECT word, COUNT(*) FROM t GROUP BY word"
WINDOWS = "SELECT DATE_FORMAT(window_start, 'mm:ss'), COUNT(*) FROM TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '10' SECOND) GROUP BY window_start, window_end"
RANKED = """
SELECT word, n FROM (
  SELECT word, n, ROW_NUMBER() OVER (PARTITION BY window_start, window_end ORDER BY n DESC, word) AS place FROM (
    SELECT word, window_start, window_end, COUNT(*) AS n
    FROM TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '10' SECOND) GROUP BY word, window_start, window_end
  )
) WHERE place = 1
"""  # fmt: skip
LEFT_OPEN = "SET 'millstream.bounded.close-windows' = 'false';"

FIRST: Sequence[Event] = [("a", "00:01"), ("b", "00:12"), ("a", "00:14")]
SECOND: Sequence[Event] = [("a", "00:13"), ("a", "00:16"), ("c", "00:18"), ("b", "00:25")]


def body(event: Event) -> bytes:
    word, at = event
    return json.dumps({"word": word, "at": f"2026-03-01 12:{at}"}).encode()


def send(running: Topic, events: Sequence[Event]) -> None:
    with BlockingClient(running.nameserver) as client:
        client.send_many([OutgoingMessage("t", body(event), {}) for event in events])


def twice(spark: SparkSession, running: Topic, script: str, *, name: str) -> tuple[Collected, Collected]:
    """A run over the first events, and one over the second."""
    first = bounded_run(spark, running, TABLE + script, name=name)
    send(running, SECOND)
    return first, bounded_run(spark, running, TABLE + script, name=name)


def test_counts_go_on_in_the_next_run(spark: SparkSession, topic: Filled) -> None:
    with topic([(0, body(event)) for event in FIRST]) as running:
        first, second = twice(spark, running, COUNTS, name="counts")
        third = bounded_run(spark, running, TABLE + COUNTS, name="counts")
    assert first.table("result") == {("a", 2): 1, ("b", 1): 1}
    assert second.progress.rows_in == len(SECOND)
    after = first.rows["result"] + second.rows["result"], first.kinds["result"] + second.kinds["result"]
    assert Collected({"result": after[0]}, kinds={"result": after[1]}).table("result") == {
        ("a", 4): 1, ("b", 2): 1, ("c", 1): 1,
    }  # fmt: skip
    assert (third.rows, third.progress.rows_in, third.progress.state) == ({}, 0, "ended")


def test_windows_that_the_end_of_a_run_closed_open_again_for_new_rows_alone(spark: SparkSession, topic: Filled) -> None:
    with topic([(0, body(event)) for event in FIRST]) as running:
        first, second = twice(spark, running, WINDOWS, name="closed")
    assert first.sorted("result") == [("00:00", 1), ("00:10", 2)]
    assert second.sorted("result") == [("00:10", 3), ("00:20", 1)]
    assert (second.progress.rows_in, second.progress.late) == (len(SECOND), 0)


def test_operators_behind_operators_go_on_too(spark: SparkSession, topic: Filled) -> None:
    with topic([(0, body(event)) for event in FIRST]) as running:
        first, second = twice(spark, running, RANKED, name="ranked")
    assert first.sorted("result") == [("a", 1), ("a", 1)]
    assert second.sorted("result") == [("a", 2), ("b", 1)]


def test_windows_that_are_left_open_are_whole_in_the_next_run(spark: SparkSession, topic: Filled) -> None:
    with topic([(0, body(event)) for event in FIRST]) as running:
        first, second = twice(spark, running, LEFT_OPEN + WINDOWS, name="left-open")
        third = bounded_run(spark, running, TABLE + WINDOWS, name="left-open")
    assert first.sorted("result") == [("00:00", 1)]
    assert second.sorted("result") == [("00:10", 5)]
    assert third.sorted("result") == [("00:20", 1)]


def test_a_job_without_an_end_goes_on_behind_a_bounded_run(spark: SparkSession, topic: Filled) -> None:
    with topic([(0, body(event)) for event in FIRST]) as running:
        bounded_run(spark, running, TABLE + WINDOWS, name="endless")
        seen = Collected()
        runner = JobRunner(spark, nameserver=running.nameserver, checkpoint_root=running.directory / "checkpoints")
        job = runner.start(compiled(TABLE + WINDOWS, running.nameserver), name="endless", on_rows=seen.take)
        send(running, [*SECOND, ("d", "00:31")])
        while len(seen.rows.get("result", ())) < 2:
            assert not job.wait(0.05)
        job.stop()
    assert seen.sorted("result") == [("00:10", 3), ("00:20", 1)]
