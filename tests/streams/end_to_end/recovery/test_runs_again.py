"""Bounded jobs that run again and again on their checkpoint, each time over the messages that have come since."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

import pytest
from pyspark.sql import SparkSession
from running_jobs import LIMIT_S, Collected, Topic, bounded_run, compiled

from millstream.client.blocking import BlockingClient
from millstream.model.errors import Unreachable
from millstream.model.message import Message
from millstream.streams.errors import JobError
from millstream.streams.jobs.runner import JobRunner
from servers import running_servers_in_thread

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
        client.send_many([Message("t", body(event)) for event in events])


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
    assert (first.progress.notices, len(second.progress.notices)) == ((), 1)
    assert "closed all windows at its end" in second.progress.notices[0]


def test_rows_behind_the_watermark_of_the_last_run_are_late_in_the_next_one(spark: SparkSession, topic: Filled) -> None:
    with topic([(0, body(event)) for event in FIRST]) as running:
        bounded_run(spark, running, TABLE + WINDOWS, name="late")
        send(running, [("late", "00:05"), ("timely", "00:15")])
        second = bounded_run(spark, running, TABLE + WINDOWS, name="late")
    assert second.sorted("result") == [("00:10", 1)]
    assert (second.progress.rows_in, second.progress.late) == (2, 1)


GROUP = TABLE.replace(
    "'topic' = 't'", "'topic' = 't', 'consumer.group' = 'nightly', 'scan.startup.mode' = 'group-offsets'"
)


def committed(running: Topic) -> int | None:
    with BlockingClient(running.nameserver) as client:
        (queue,) = client.queues("t")
        return client.query_offset("nightly", queue)


def test_a_group_stands_behind_what_is_done_and_a_job_with_no_checkpoint_begins_there(
    spark: SparkSession, topic: Filled
) -> None:
    with topic([(0, body(event)) for event in FIRST]) as running:
        first = bounded_run(spark, running, GROUP + "SELECT word FROM t", name="one-micro-batch")
        after_first = committed(running)
        send(running, SECOND)
        second = bounded_run(spark, running, GROUP + "SELECT word FROM t", name="another-job")
        after_second = committed(running)
        batch = "SET 'execution.runtime-mode' = 'batch';"
        send(running, FIRST[:1])
        third = bounded_run(spark, running, batch + GROUP + "SELECT word FROM t", name="batch")
        after_third = committed(running)
    assert [run.progress.rows_in for run in (first, second, third)] == [3, 4, 1]
    assert (after_first, after_second, after_third) == (3, 7, 8)
    assert "The group nightly has no offsets in the topic t" in first.progress.notices[0]
    assert (second.progress.notices, third.progress.notices) == ((), ())


def test_a_job_goes_on_from_its_checkpoint_when_its_group_is_gone(spark: SparkSession, topic: Filled) -> None:
    strict = GROUP.replace("'group-offsets'", "'group-offsets', 'scan.startup.group-offsets.reset' = 'none'")
    with topic([(0, body(event)) for event in FIRST]) as running:
        with BlockingClient(running.nameserver) as client:
            (queue,) = client.queues("t")
            client.commit_offset("nightly", queue, 1)
        first = bounded_run(spark, running, strict + "SELECT word FROM t", name="strict")
        with BlockingClient(running.nameserver) as client:
            client.delete_group("nightly")
        send(running, SECOND)
        second = bounded_run(spark, running, strict + "SELECT word FROM t", name="strict")
    assert [run.progress.rows_in for run in (first, second)] == [len(FIRST) - 1, len(SECOND)]


def test_the_last_micro_batch_of_a_job_that_is_stopped_is_committed(spark: SparkSession, topic: Filled) -> None:
    with topic([(0, body(event)) for event in FIRST]) as running:
        seen = Collected()
        runner = JobRunner(spark, nameserver=running.nameserver, checkpoint_root=running.directory / "checkpoints")
        plan = compiled(GROUP + "SELECT word FROM t", running.nameserver)
        job = runner.start(plan, name="stopped", on_rows=seen.take)
        while len(seen.rows.get("result", ())) < len(FIRST):
            assert not job.wait(0.05)
        job.stop()
        assert committed(running) == len(FIRST)


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


def test_a_job_that_is_started_while_its_cluster_is_away_waits_for_it(spark: SparkSession, topic: Filled) -> None:
    with topic([(0, body(event)) for event in FIRST]) as running:
        pass
    seen = Collected()
    runner = JobRunner(spark, nameserver=running.nameserver, checkpoint_root=running.directory / "checkpoints")
    # Longer than any start of servers takes, on however busy a machine.
    plan = compiled("SET 'millstream.start-timeout' = '10 min';" + TABLE + COUNTS, running.nameserver)
    job = runner.start(plan, name="early", bounded=True, on_rows=seen.take)
    waiting = job.progress()
    assert (waiting.state, waiting.rows_in) == ("running", 0)
    assert running.nameserver in str(waiting.trouble)
    port = int(running.nameserver.rpartition(":")[2])
    with running_servers_in_thread(running.directory / "data", nameserver_port=port):
        assert job.wait(LIMIT_S)
    assert (job.progress().state, job.progress().rows_in, job.progress().trouble) == ("ended", len(FIRST), None)
    assert seen.table("result") == {("a", 2): 1, ("b", 1): 1}


def test_a_job_that_waits_for_nothing_is_refused_while_its_cluster_is_away(spark: SparkSession, topic: Filled) -> None:
    with topic([(0, body(event)) for event in FIRST]) as running:
        pass
    runner = JobRunner(spark, nameserver=running.nameserver, checkpoint_root=running.directory / "checkpoints")
    never, soon = (f"SET 'millstream.start-timeout' = '{limit}';" + TABLE + COUNTS for limit in ("0 s", "10 ms"))
    with pytest.raises(Unreachable):
        runner.start(compiled(never, running.nameserver), name="never", bounded=True)
    job = runner.start(compiled(soon, running.nameserver), name="soon", bounded=True)
    with pytest.raises(JobError, match="waited 0") as failure:
        job.wait(LIMIT_S)
    assert failure.value.name == "START_TIMED_OUT"
