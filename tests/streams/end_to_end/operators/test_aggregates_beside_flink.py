"""Aggregates of batch jobs, also of no rows: the values beside them are what Flink 2.3 answered to the same queries."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from running_jobs import Topic, bounded_run

pytestmark = pytest.mark.spark

ROWS = """CREATE VIEW t AS SELECT * FROM (VALUES
  (1, 'a', 10, CAST(1.50 AS DECIMAL(10, 2)), 1.5e0),
  (2, 'b', 20, CAST(2.25 AS DECIMAL(10, 2)), 2.5e0),
  (3, 'a', 30, CAST(NULL AS DECIMAL(10, 2)), CAST(NULL AS DOUBLE)),
  (4, CAST(NULL AS STRING), CAST(NULL AS INT), CAST(4.75 AS DECIMAL(10, 2)), -4e0),
  (5, 'a', 10, CAST(-5.00 AS DECIMAL(10, 2)), 1e10),
  (6, 'c', 5, CAST(0.01 AS DECIMAL(10, 2)), 0e0)) AS v(id, k, n, d, x);
SET 'execution.runtime-mode' = 'batch';
"""

ALL = {
    "VAR_SAMP(d)": "13.102770",
    "VAR_POP(d)": "10.482216",
    "STDDEV_SAMP(d)": "3.619775",
    "STDDEV_POP(n)": "8",
    "PERCENTILE(x, ARRAY[0.1, 0.9])": "[-2.4000000000000004, 6.000000000999996E9]",
    "PERCENTILE(n, 0.5)": "10.0",
    "AVG(d)": "0.702000",
    "SUM(n) / COUNT(n)": "15",
}
NONE = {
    "COUNT(*)": "0",
    "COUNT(DISTINCT k)": "0",
    "SUM(n)": None,
    "AVG(d)": None,
    "MAX(k)": None,
    "VAR_SAMP(d)": None,
    "COLLECT(n)": "{}",
    "JSON_ARRAYAGG(k)": "[]",
    "JSON_OBJECTAGG(KEY k VALUE n)": "{}",
    "COUNT(*) + COALESCE(SUM(n), 7)": "7",
}
OF_NULLS = {"COLLECT(n)": "{}", "JSON_ARRAYAGG(k)": "[]", "SUM(n)": None, "COUNT(n)": "0", "VAR_SAMP(d)": None}


@pytest.mark.parametrize(
    ("expected", "rest"),
    [
        (ALL, ""),
        (NONE, "WHERE id > 100"),
        (OF_NULLS, "WHERE k IS NULL GROUP BY k"),
        (NONE, "WHERE id > 100 HAVING TRUE"),
    ],
    ids=["all", "none", "nulls", "none having"],
)
def test_an_aggregate_of_a_batch_is_what_flink_says(
    expected: dict[str, str | None], rest: str, spark: SparkSession, tmp_path: Path
) -> None:
    named = ", ".join(f"CAST({call} AS STRING) AS c{place}" for place, call in enumerate(expected))
    told = bounded_run(spark, Topic("", tmp_path), f"{ROWS} SELECT {named} FROM t {rest}", name="told")
    (rows,) = told.rows.values()
    assert rows == [tuple(expected.values())]


@pytest.mark.parametrize("rest", ["WHERE id > 100 GROUP BY k", "WHERE id > 100 HAVING COUNT(*) > 0"])
def test_no_group_is_no_row(rest: str, spark: SparkSession, tmp_path: Path) -> None:
    told = bounded_run(spark, Topic("", tmp_path), f"{ROWS} SELECT COUNT(*) FROM t {rest}", name="told")
    assert [row for rows in told.rows.values() for row in rows] == []


def test_a_stream_says_nothing_of_no_rows(spark: SparkSession, tmp_path: Path) -> None:
    script = f"{ROWS} SET 'execution.runtime-mode' = 'streaming'; SELECT COUNT(*) FROM t WHERE id > 100"
    told = bounded_run(spark, Topic("", tmp_path), script, name="told")
    assert [row for rows in told.rows.values() for row in rows] == []


LARGE = """SET 'execution.runtime-mode' = 'batch';
CREATE VIEW t AS SELECT * FROM (VALUES
  (CAST(127 AS TINYINT), CAST('99999999999999999999999999999999999999' AS DECIMAL(38, 0)), 2147483647),
  (CAST(-128 AS TINYINT), CAST('99999999999999999999999999999999999999' AS DECIMAL(38, 0)), -2147483648),
  (CAST(-1 AS TINYINT), CAST('1' AS DECIMAL(38, 0)), 7)) AS v(y, d, n);"""
OF_LARGE = {
    "VAR_POP(y)": "85",
    "VAR_SAMP(y)": "-128",
    "STDDEV_SAMP(y)": "127",
    "STDDEV_POP(y)": "104",
    "VAR_POP(n)": "2147483647",
    "SUM(y)": "-2",
    "AVG(d)": None,
}


def test_results_that_are_too_large_end_no_job(spark: SparkSession, tmp_path: Path) -> None:
    named = ", ".join(f"CAST({call} AS STRING) AS c{place}" for place, call in enumerate(OF_LARGE))
    told = bounded_run(spark, Topic("", tmp_path), f"{LARGE} SELECT {named} FROM t", name="told")
    (rows,) = told.rows.values()
    assert rows == [tuple(OF_LARGE.values())]


def test_a_percentile_counts_each_value_as_often_as_it_is_said(spark: SparkSession, tmp_path: Path) -> None:
    calls = "PERCENTILE(n, 0.3, id), PERCENTILE(n, ARRAY[0.3, 0.7], id)"
    told = bounded_run(spark, Topic("", tmp_path), f"{ROWS} SELECT {calls} FROM t", name="told")
    (rows,) = told.rows.values()
    # Five six times, ten six times, twenty twice, thirty three times.
    assert rows == [(5.0, [5.0, 11.999999999999993])]
