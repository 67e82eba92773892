"""Times of another zone have Flink's values on Spark, all of them in one query."""

from __future__ import annotations

import datetime

import pytest
from pyspark.sql import SparkSession

from millstream.streams.plan.nodes import QueryPlan, Values
from millstream.streams.spark.translation.expressions import column_of
from millstream.streams.sql.session.compiler import SqlSession

pytestmark = pytest.mark.spark

NOON = "TO_TIMESTAMP_LTZ(1719835200000, 3)"
"""2024-07-01 12:00:00 in UTC."""

SUMMER: list[tuple[str, object]] = [
    (f"CAST({NOON} AS STRING)", "2024-07-01 14:00:00.000"),
    (f"HOUR({NOON})", 14),
    (f"DATE_FORMAT({NOON}, 'yyyy-MM-dd HH:mm')", "2024-07-01 14:00"),
    (f"CAST(FLOOR({NOON} TO DAY) AS STRING)", "2024-07-01 00:00:00.000"),
    (f"EXTRACT(EPOCH FROM FLOOR({NOON} TO DAY))", 1719784800),
    ("EXTRACT(EPOCH FROM CAST(TIMESTAMP '2024-07-01 14:00:00' AS TIMESTAMP_LTZ(3)))", 1719835200),
    ("EXTRACT(EPOCH FROM CAST('2024-01-01 00:00:00' AS TIMESTAMP_LTZ(3)))", 1704063600),
    ("FROM_UNIXTIME(0)", "1970-01-01 01:00:00"),
    ("UNIX_TIMESTAMP('1970-01-01 01:00:44')", 44),
    ("UNIX_TIMESTAMP('no time')", -(2**63)),
    ("CAST(TIMESTAMP '2024-07-01 14:00:00' AS STRING)", "2024-07-01 14:00:00"),
    (f"CAST({NOON} AS DATE)", datetime.date(2024, 7, 1)),
]


def values(spark: SparkSession, zone: str, expressions: list[str]) -> list[object]:
    listed = ", ".join(expressions)
    (_, plan) = SqlSession().compile(f"SET 'table.local-time-zone' = '{zone}'; SELECT {listed}")
    assert isinstance(plan, QueryPlan)
    assert isinstance(plan.query, Values)
    columns = [column_of(value, {}) for value in plan.query.rows[0]]
    (row,) = spark.range(1).select(*columns).collect()
    return list(row)


def test_times_of_a_zone_with_summer_time(spark: SparkSession) -> None:
    assert values(spark, "Europe/Berlin", [expression for expression, _ in SUMMER]) == [wanted for _, wanted in SUMMER]


def test_times_at_a_fixed_distance_from_utc(spark: SparkSession) -> None:
    for zone in ("GMT+8", "UTC+08:00", "+08:00"):
        assert values(spark, zone, [f"HOUR({NOON})", "FROM_UNIXTIME(0)"]) == [20, "1970-01-01 08:00:00"]
