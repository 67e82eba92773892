"""Tables of changes as sinks of one job and sources of the next."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest
from pyspark.sql import SparkSession
from running_jobs import LIMIT_S, Topic, bounded_run, compiled

from millstream.client.blocking import BlockingClient
from millstream.model.topic import TopicConfig
from millstream.streams.jobs.progress import ResultRows
from millstream.streams.jobs.runner import JobRunner
from millstream.streams.plan.changelog import RowKind

pytestmark = pytest.mark.spark

Filled = Callable[..., AbstractContextManager[Topic]]

TABLES = """
CREATE TABLE t (k INT, v INT) WITH ('connector' = 'rocketmq', 'topic' = 't', 'scan.max-rows-per-trigger' = '40');
CREATE TABLE u (k INT, n BIGINT, total INT, PRIMARY KEY (k) NOT ENFORCED)
  WITH ('connector' = 'upsert-rocketmq', 'topic' = 'u');
CREATE TABLE c (k INT, n BIGINT, total INT)
  WITH ('connector' = 'rocketmq', 'topic' = 'c', 'format' = 'changelog-json');
"""
COUNTS = "SELECT k, COUNT(*) AS n, SUM(v) AS total FROM t GROUP BY k"
ROWS = [(number % 2, {"k": number % 7, "v": number}) for number in range(100)]


def changes_of(spark: SparkSession, running: Topic, query: str, name: str) -> Counter[tuple[object, ...]]:
    """The table that the changes of a query add up to."""
    found: Counter[tuple[object, ...]] = Counter()

    def take(result: ResultRows) -> None:
        kinds = result.kinds or [RowKind.INSERT] * len(result.rows)
        for row, kind in zip(result.rows, kinds, strict=True):
            found[row] += 1 if kind in (RowKind.INSERT, RowKind.UPDATE_AFTER) else -1

    runner = JobRunner(spark, nameserver=running.nameserver, checkpoint_root=running.directory / "checkpoints")
    job = runner.start(compiled(TABLES + query, running.nameserver), name=name, bounded=True, on_rows=take)
    assert job.wait(LIMIT_S), job.progress()
    assert job.progress().malformed == 0
    return +found


def test_what_one_job_counts_another_one_reads_as_a_table(spark: SparkSession, topic: Filled) -> None:
    expected: dict[int, tuple[int, int, int]] = {}
    for _, row in ROWS:
        _, count, total = expected.get(row["k"], (row["k"], 0, 0))
        expected[row["k"]] = (row["k"], count + 1, total + row["v"])
    with topic([(queue, json.dumps(row).encode()) for queue, row in ROWS], 2) as running:
        with BlockingClient(running.nameserver) as client:
            for name in ("u", "c"):
                client.create_topic(TopicConfig(name, read_queues=2, write_queues=2))
        inserts = "".join(f"INSERT INTO {name} {COUNTS};" for name in ("u", "c"))
        bounded_run(spark, running, f"{TABLES} EXECUTE STATEMENT SET BEGIN {inserts} END;", name="counts")
        both = "SELECT 'u', k, n, total FROM u WHERE total > 640 UNION ALL SELECT 'c', k, n, total FROM c"
        found = changes_of(spark, running, both, "both")
    large = [("u", *row) for row in expected.values() if row[2] > 640]
    assert found == Counter(large + [("c", *row) for row in expected.values()])
