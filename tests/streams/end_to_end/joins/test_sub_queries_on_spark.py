"""Sub-queries beside rows that come later, and OVER at whole partitions, as jobs on Spark."""

from __future__ import annotations

from collections import Counter

import pytest
from pyspark.sql import SparkSession

from millstream.testing import StreamTest

pytestmark = pytest.mark.spark

TABLES = """
CREATE TABLE orders (id INT, customer INT) WITH ('connector' = 'rocketmq', 'topic' = 'orders');
CREATE TABLE blocked (customer INT, score INT, at STRING) WITH ('connector' = 'rocketmq', 'topic' = 'blocked');
CREATE TABLE allowed (id INT) WITH ('connector' = 'print');
CREATE TABLE worst (id INT, score INT) WITH ('connector' = 'print');
"""
JOB = """
EXECUTE STATEMENT SET BEGIN
  INSERT INTO allowed SELECT id FROM orders WHERE customer NOT IN (SELECT customer FROM blocked);
  INSERT INTO worst SELECT o.id, b.score FROM orders AS o,
    LATERAL (SELECT score FROM blocked WHERE customer = o.customer ORDER BY score DESC LIMIT 2) AS b;
END;
"""
WHOLE = """
SET 'execution.runtime-mode' = 'batch';
INSERT INTO worst SELECT customer, score - FIRST_VALUE(score) OVER (PARTITION BY customer ORDER BY score DESC)
  + CAST(COUNT(*) OVER (PARTITION BY customer) AS INT) FROM blocked
  WHERE EXTRACT(DAY FROM (TO_TIMESTAMP(at) - TIMESTAMP '2026-01-01 00:00:00') DAY TO SECOND) < 10;
"""


def _blocked(customer: int | None, score: int, day: int = 1) -> dict[str, object]:
    return {"customer": customer, "score": score, "at": f"2026-01-{day:02} 12:00:00"}


def test_rows_that_come_later_change_what_sub_queries_answer(spark: SparkSession) -> None:
    job = StreamTest(TABLES + JOB, spark=spark)
    job.feed("orders", {"id": 1, "customer": 7}, {"id": 2, "customer": None}, {"id": 3, "customer": 9})
    job.feed("blocked", _blocked(9, 5), _blocked(9, 1), _blocked(9, 3))
    found = job.run(end=False)
    assert found.table("allowed") == Counter([(1,)])
    assert found.table("worst") == Counter([(3, 5), (3, 3)])
    found = job.feed("blocked", _blocked(None, 8), _blocked(9, 4)).run()
    # Customer 7 may be the one that is not known.
    assert found.table("allowed") == Counter()
    assert found.table("worst") == Counter([(3, 5), (3, 4)])


def test_intervals_of_months_are_keys_and_are_moved_by(spark: SparkSession) -> None:
    months = "SELECT score, at, (TO_TIMESTAMP(at) - TIMESTAMP '2025-12-01 00:00:00') MONTH AS m FROM blocked"
    moved = "DATE_FORMAT(MIN(TIMESTAMP '2026-01-31 00:00:00' + m), 'MMdd')"
    script = f"""{TABLES} CREATE TABLE told (m STRING, n BIGINT, most STRING, moved STRING) WITH ('connector' = 'print');
    INSERT INTO told SELECT CAST(m AS STRING), COUNT(m), CAST(MAX(m) AS STRING), {moved} FROM ({months}) GROUP BY m"""
    job = StreamTest(script, spark=spark)
    job.feed("blocked", _blocked(1, 1), _blocked(2, 1, day=20), {**_blocked(3, 1), "at": "2027-02-01 12:00:00"})
    assert job.run().table() == Counter([("+0-01", 2, "+0-01", "0228"), ("+1-02", 1, "+1-02", "0331")])


def test_a_batch_looks_at_whole_partitions(spark: SparkSession) -> None:
    job = StreamTest(TABLES + WHOLE, spark=spark)
    job.feed("blocked", _blocked(1, 5), _blocked(1, 2), _blocked(2, 4), _blocked(2, 4, day=20), _blocked(1, 3))
    assert job.as_batch().table() == Counter([(1, 3), (1, 0), (1, 1), (2, 1)])
