"""Joins and aggregations of batch jobs on Spark's own operators, beside the same of a stream in operators of ours."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from running_jobs import LIMIT_S, Collected, compiled

from millstream.streams.jobs.runner import JobRunner
from millstream.streams.plan.backends import needs_own_in_batch
from millstream.streams.plan.nodes import QueryPlan

pytestmark = pytest.mark.spark

ROWS = """
CREATE TABLE a (number BIGINT, k AS CASE WHEN MOD(number, 5) > 0 THEN MOD(number, 7) END,
  v AS CASE WHEN MOD(number, 3) > 0 THEN CAST(number AS DECIMAL(9, 2)) END, ts AS TO_TIMESTAMP_LTZ(number * 500, 3),
  WATERMARK FOR ts AS ts) WITH ('connector' = 'datagen', 'fields.number.kind' = 'sequence',
  'fields.number.start' = '0', 'fields.number.end' = '39');
CREATE TABLE b (number BIGINT, k AS CASE WHEN MOD(number, 4) > 0 THEN MOD(number, 11) END)
  WITH ('connector' = 'datagen', 'fields.number.kind' = 'sequence', 'fields.number.start' = '0',
  'fields.number.end' = '24');
"""
ON_SPARK = {
    "inner": "SELECT a.number, b.number FROM a JOIN b ON a.k = b.k",
    "left": "SELECT a.number, b.number FROM a LEFT JOIN b ON a.k = b.k AND a.number < b.number",
    "right": "SELECT a.number, b.number FROM a RIGHT JOIN b ON a.k = b.k AND a.number + b.number > 40",
    "full": "SELECT a.number, b.number FROM a FULL JOIN b ON a.k = b.k AND a.number > b.number",
    "semi": "SELECT number FROM a WHERE EXISTS (SELECT * FROM b WHERE b.k = a.k AND b.number <> a.number)",
    "anti": "SELECT number FROM a WHERE NOT EXISTS (SELECT * FROM b WHERE b.k = a.k)",
    "crossed": "SELECT a.number, b.number FROM a, b WHERE a.number + b.number = 60",
    "with itself": "SELECT x.number, y.number FROM a x JOIN a y ON x.k = y.k AND x.number < y.number",
    "outer twice": "SELECT a.number, b.number, c.v FROM a LEFT JOIN b ON a.number = b.number LEFT JOIN a c ON b.k = c.k",
    "grouped": "SELECT k, COUNT(*), SUM(v), AVG(v), MIN(number), MAX(v) FILTER (WHERE number < 9) FROM a GROUP BY k",
    "in all": "SELECT COUNT(*), SUM(v), COUNT(v) FROM a WHERE number > 30",
    "distinct": "SELECT DISTINCT k FROM a",
    "sets": "SELECT k, MOD(number, 2), COUNT(*) FROM a GROUP BY CUBE (k, MOD(number, 2))",
    "grouped join": "SELECT b.k, COUNT(*), SUM(a.v) FROM a JOIN b ON a.k = b.k GROUP BY b.k HAVING COUNT(*) > 3",
}
MIXED = {
    "distinct values above": "SELECT b.k, COUNT(DISTINCT a.v) FROM a JOIN b ON a.k = b.k GROUP BY b.k",
    "top of sums": "SELECT k, total FROM (SELECT k, SUM(number) AS total FROM a GROUP BY k) ORDER BY total DESC LIMIT 3",
    "over above": "SELECT number, SUM(number) OVER (PARTITION BY k ORDER BY ts) FROM (SELECT * FROM a WHERE EXISTS (SELECT * FROM b WHERE b.k = a.k))",
    "united": "SELECT COUNT(DISTINCT n) FROM (SELECT a.number AS n FROM a JOIN b ON a.k = b.k UNION ALL SELECT number FROM b)",
}  # fmt: skip


def rows_of(select: str, mode: str, spark: SparkSession, directory: Path) -> Counter[tuple[object, ...]]:
    plan = compiled(f"SET 'execution.runtime-mode' = '{mode}'; {ROWS} {select};", "")
    found = Collected()
    job = JobRunner(spark, nameserver="127.0.0.1:9", checkpoint_root=directory).start(
        plan, name="relations", bounded=True, on_rows=found.take
    )
    assert job.wait(LIMIT_S), job.progress()
    return found.table("result")


@pytest.mark.parametrize("name", ON_SPARK)
def test_what_spark_joins_or_groups_in_a_batch_is_what_a_stream_gives(
    name: str, spark: SparkSession, tmp_path: Path
) -> None:
    plan = compiled(f"{ROWS} {ON_SPARK[name]};", "")
    assert isinstance(plan, QueryPlan)
    assert not needs_own_in_batch(plan.query)
    of_batch = rows_of(ON_SPARK[name], "batch", spark, tmp_path / "batch")
    assert of_batch == rows_of(ON_SPARK[name], "streaming", spark, tmp_path / "streaming")
    assert of_batch


@pytest.mark.parametrize("name", MIXED)
def test_operators_of_ours_stand_above_what_spark_joins_or_groups(
    name: str, spark: SparkSession, tmp_path: Path
) -> None:
    plan = compiled(f"{ROWS} {MIXED[name]};", "")
    assert isinstance(plan, QueryPlan)
    assert needs_own_in_batch(plan.query)
    of_batch = rows_of(MIXED[name], "batch", spark, tmp_path / "batch")
    assert of_batch == rows_of(MIXED[name], "streaming", spark, tmp_path / "streaming")
    assert of_batch
