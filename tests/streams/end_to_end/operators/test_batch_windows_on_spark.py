"""Windows of batch jobs on Spark's own grouping, beside the same windows of a stream in operators of ours."""

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
CREATE TABLE events (number BIGINT, k AS MOD(number, 3), v AS CASE WHEN MOD(number, 7) > 0 THEN number END,
  ts AS TO_TIMESTAMP_LTZ(number * 500, 3), WATERMARK FOR ts AS ts - INTERVAL '1' SECOND) WITH ('connector' = 'datagen',
  'fields.number.kind' = 'sequence', 'fields.number.start' = '0', 'fields.number.end' = '99');
"""
HOPS = """SELECT k, COUNT(*), SUM(v), AVG(v), MIN(v), MAX(v) FILTER (WHERE v < 50), DATE_FORMAT(window_start, 'mm:ss')
  FROM TABLE(HOP(TABLE events, DESCRIPTOR(ts), INTERVAL '5' SECOND, INTERVAL '10' SECOND))
  WHERE number > 4 GROUP BY k, window_start, window_end"""
Row = tuple[int | str | None, ...]


def by_hand() -> Counter[Row]:
    windows: dict[tuple[int, int], list[int]] = {}
    for number in range(5, 100):
        for start_s in range(-5, 50, 5):
            if start_s * 2 <= number < start_s * 2 + 20:
                windows.setdefault((number % 3, start_s), []).append(number)
    rows: Counter[Row] = Counter()
    for (key, start_s), numbers in windows.items():
        known = [number for number in numbers if number % 7]
        few = [number for number in known if number < 50]
        average = sum(known) // len(known) if known else None
        total = sum(known) if known else None
        start = f"{start_s // 60 % 60:02}:{start_s % 60:02}"
        rows[key, len(numbers), total, average, min(known, default=None), max(few, default=None), start] += 1
    return rows


@pytest.mark.parametrize("mode", ["batch", "streaming"])
def test_a_batch_job_gives_the_windows_of_a_stream(mode: str, spark: SparkSession, tmp_path: Path) -> None:
    plan = compiled(f"SET 'execution.runtime-mode' = '{mode}'; {ROWS} {HOPS};", "")
    assert isinstance(plan, QueryPlan)
    assert not needs_own_in_batch(plan.query)
    found = Collected()
    runner = JobRunner(spark, nameserver="127.0.0.1:9", checkpoint_root=tmp_path)
    job = runner.start(plan, name="windows", on_rows=found.take)
    assert job.wait(LIMIT_S), job.progress()
    assert Counter(found.sorted("result")) == by_hand()
