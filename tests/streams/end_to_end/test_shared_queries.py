"""Jobs that share a query on Spark: each gets its rows, and one that goes its own way misses and doubles none."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pyspark.sql import SparkSession
from running_jobs import LIMIT_S, Collected, compiled

from millstream.streams.jobs.runner import JobRunner

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
