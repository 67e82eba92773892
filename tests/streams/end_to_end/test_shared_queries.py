"""Jobs that share a query on Spark: each gets its rows, and one that goes its own way misses and doubles none."""

from __future__ import annotations

import json
import threading
from collections import Counter
from typing import Any

import pytest
from pyspark.sql import SparkSession
from running_jobs import LIMIT_S, Collected, compiled

from millstream.client.blocking import BlockingClient
from millstream.model.topic import TopicConfig
from millstream.streams.jobs.runner import JobRunner
from millstream.streams.spark.sinks.router import Delivered, WriteStage

pytestmark = pytest.mark.spark


SCRIPT = """
CREATE TABLE t (id INT, host STRING) WITH ('connector' = 'rocketmq', 'topic' = 't', 'format' = 'json',
  'scan.max-rows-per-trigger' = '40');
CREATE TABLE alerts (rule STRING, id INT) WITH ('connector' = 'print');
CREATE TABLE hosts (host STRING) WITH ('connector' = 'print');
"""
INSERTS = (
    "INSERT INTO alerts SELECT 'even', id FROM t WHERE MOD(id, 2) = 0",
    "INSERT INTO alerts SELECT 'large', id FROM t WHERE id >= 100",
    "INSERT INTO hosts SELECT host FROM t WHERE host LIKE '%7'",
)
COUNT = 200


def of_rule(run: Collected, rule: str) -> set[tuple[Any, ...]]:
    return {row for row in run.rows.get("alerts", ()) if row[0] == rule}


def test_jobs_share_a_query_until_one_goes_on_by_itself(spark: SparkSession, topic: Any) -> None:
    rows = [(0, json.dumps({"id": number, "host": f"h{number % 10}"}).encode()) for number in range(COUNT)]
    even = {("even", number) for number in range(0, COUNT, 2)}
    large = {("large", number) for number in range(100, COUNT)}
    sevens = [("h7",)] * (COUNT // 10)
    with topic(rows) as filled:
        runner = JobRunner(spark, nameserver=filled.nameserver, checkpoint_root=filled.directory / "checkpoints")
        plans = [compiled(SCRIPT + one, filled.nameserver) for one in INSERTS]
        together, alone = Collected(), Collected()
        jobs = runner.start_merged(plans, names=["even", "large", "hosts"], on_rows=together.take)
        assert len({job.query for job in jobs}) == 1
        while not together.rows.get("alerts"):
            assert not jobs[0].wait(0.05)
        jobs[0].stop()
        before = of_rule(together, "even")
        while len(together.rows.get("hosts", ())) < len(sevens) or of_rule(together, "large") < large:
            assert not jobs[1].wait(0.05)
        assert jobs[0].progress().state == "ended"
        assert jobs[1].progress().state == "running"
        for job in jobs[1:]:
            job.stop()
        left = runner.start(plans[0], name="even", bounded=True, on_rows=alone.take)
        assert left.wait(LIMIT_S)
    assert of_rule(together, "even") == before, "nothing comes after a stop"
    # A print sink may show the rows of the batch in which a job left twice, but loses none.
    assert before | of_rule(alone, "even") == even
    assert of_rule(together, "large") == large
    assert set(together.rows["hosts"]) == set(sevens)


TOPICS = """
CREATE TABLE t (id INT) WITH ('connector' = 'rocketmq', 'topic' = 't', 'format' = 'json');
CREATE TABLE found (rule STRING, id INT) WITH ('connector' = 'rocketmq', 'topic' = 'found', 'format' = 'json');
CREATE TABLE others (rule STRING, id INT) WITH ('connector' = 'rocketmq', 'topic' = 'others', 'format' = 'json');
SET 'restart-strategy.type' = 'none';
"""
INTO_TOPICS = (
    "INSERT INTO found SELECT 'even', id FROM t WHERE MOD(id, 2) = 0",
    "INSERT INTO found SELECT 'odd', id FROM t WHERE MOD(id, 2) = 1",
    "INSERT INTO others SELECT 'all', id FROM t",
)


@pytest.mark.parametrize("leaving", [0, 2])
def test_a_job_that_leaves_after_a_driver_died_within_a_micro_batch_has_each_row_once(
    spark: SparkSession, topic: Any, monkeypatch: pytest.MonkeyPatch, leaving: int
) -> None:
    names = ["even", "odd", "all"]
    rows = [(0, json.dumps({"id": number}).encode()) for number in range(COUNT)]
    deliver, has_died = WriteStage.deliver, threading.Event()

    def deliver_and_die(stage: WriteStage, batch: Any, batch_id: int) -> list[Delivered]:
        delivered = deliver(stage, batch, batch_id)
        if not has_died.is_set():
            has_died.set()
            raise RuntimeError("the driver dies with all rows in the sinks, and no note of it")
        return delivered

    with topic(rows) as filled, BlockingClient(filled.nameserver) as client:
        for name in ("found", "others"):
            client.create_topic(TopicConfig(name))
        runner = JobRunner(spark, nameserver=filled.nameserver, checkpoint_root=filled.directory / "checkpoints")
        plans = [compiled(TOPICS + one, filled.nameserver) for one in INTO_TOPICS]
        monkeypatch.setattr(WriteStage, "deliver", deliver_and_die)
        jobs = runner.start_merged(plans, names=names)
        while not jobs[0].wait(0.05) and not has_died.is_set():
            pass
        for job in jobs:
            job.stop()
        staying = [place for place in range(len(names)) if place != leaving]
        left = runner.start_merged([plans[place] for place in staying], names=[names[place] for place in staying])
        alone = runner.start(plans[leaving], name=names[leaving], bounded=True)
        assert alone.wait(LIMIT_S)
        for job in left:
            job.stop()
        got = Counter(
            (row["rule"], row["id"])
            for name in ("found", "others")
            for held in client.queue_ranges(name)
            for batch in client.read(held.queue, 0, held.range.max_offset)
            for row in (json.loads(message.body) for message in batch.messages())
        )
    wanted = {("even" if number % 2 == 0 else "odd", number) for number in range(COUNT)}
    wanted |= {("all", number) for number in range(COUNT)}
    assert got == Counter(wanted)
