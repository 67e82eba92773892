"""Queues that a topic is given while a job reads it."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest
from pyspark.sql import SparkSession
from running_jobs import Collected, Topic, compiled

from millstream.client.blocking import BlockingClient
from millstream.model.message import Message
from millstream.streams.jobs.handle import JobHandle
from millstream.streams.jobs.runner import JobRunner
from patience import eventually_blocking

pytestmark = pytest.mark.spark

Filled = Callable[..., AbstractContextManager[Topic]]

SCRIPT = """
CREATE TABLE t (n INT, ts AS TO_TIMESTAMP_LTZ(n * 1000, 3), WATERMARK FOR ts AS ts)
  WITH ('connector' = 'rocketmq', 'topic' = 't');
CREATE TABLE o (n INT) WITH ('connector' = 'print');
CREATE TABLE windows (began INT, n BIGINT) WITH ('connector' = 'print');
EXECUTE STATEMENT SET BEGIN
INSERT INTO o SELECT n FROM t;
INSERT INTO windows SELECT MIN(n), COUNT(*)
  FROM TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '10' SECOND) GROUP BY window_start, window_end;
END;
"""
PATIENCE_S = 240.0


def shown(job: JobHandle) -> set[str]:
    """The numbers of the queues that the job's progress names, as `millstream job describe` shows them."""
    return {queue.queue.rpartition("/")[2] for queue in job.progress().queues}


def test_queues_that_a_topic_gets_while_a_job_runs_are_read_and_shown_and_hold_event_time(
    spark: SparkSession, topic: Filled
) -> None:
    collected = Collected()
    with topic([], 2) as running, BlockingClient(running.nameserver) as client:
        runner = JobRunner(spark, nameserver=running.nameserver, checkpoint_root=running.directory / "checkpoints")
        job = runner.start(compiled(SCRIPT, running.nameserver), name="grown", on_rows=collected.take)

        def read(numbers: range) -> None:
            for number in numbers:
                client.send(Message("t", json.dumps({"n": number}).encode()))
            eventually_blocking(lambda: len(collected.rows.get("o", [])) == numbers.stop, patience_s=PATIENCE_S)

        try:
            read(range(20))
            client.add_queues("t", 4)
            read(range(20, 60))
            added = [queue for queue in client.queues("t") if queue.queue_id >= 2]
            # Rows are told before the micro-batch is noted.
            eventually_blocking(lambda: shown(job) == {"0", "1", "2", "3"}, patience_s=PATIENCE_S)
            # One of the added queues has nothing new: event time waits for it.
            for queue in client.queues("t"):
                if queue != added[0]:
                    client.send_many([Message("t", b'{"n": 90}')], queue=queue)
            eventually_blocking(lambda: len(collected.rows["o"]) == 63, patience_s=PATIENCE_S)
            held = collected.sorted("windows")
            client.send_many([Message("t", b'{"n": 90}')], queue=added[0])
            eventually_blocking(lambda: len(collected.rows["windows"]) == 6, patience_s=PATIENCE_S)
        finally:
            job.stop()
    assert len(held) == 5
    assert collected.sorted("o") == sorted([(n,) for n in (*range(60), *[90] * 4)], key=repr)
    assert collected.sorted("windows") == sorted([(began, 10) for began in range(0, 60, 10)], key=repr)
