"""Classes of accumulators in aggregates of the SDK are those that CREATE FUNCTION makes known to SQL."""

from __future__ import annotations

import pytest

from millstream.streams.errors import SqlError
from millstream.streams.sdk import Stream, StreamBuilder, tumbling
from millstream.streams.sdk.builder import plain
from millstream.streams.sql.session.compiler import SqlSession

TABLE = """
CREATE TABLE events (host STRING, price DOUBLE, amount DOUBLE, ts TIMESTAMP(3), WATERMARK FOR ts AS ts)
WITH ('connector' = 'datagen');
"""
FUNCTION = f"CREATE TEMPORARY FUNCTION Mean AS '{__name__}.Mean' LANGUAGE PYTHON;"


class Mean:
    """A mean by weights."""

    def __init__(self) -> None:
        self.total = self.weight = 0.0

    def add(self, value: float, weight: float) -> None:
        self.total += value * weight
        self.weight += weight

    def merge(self, other: Mean) -> None:
        self.total += other.total
        self.weight += other.weight

    def result(self) -> float | None:
        return self.total / self.weight if self.weight else None


def events() -> Stream:
    return StreamBuilder("job").sql(TABLE).table("events")


def test_by_key_and_in_windows_the_plan_is_that_of_sql() -> None:
    session = SqlSession()
    session.compile(TABLE + FUNCTION)
    by_key = "SELECT host, Mean(price, amount) AS mean, COUNT(*) AS n FROM events GROUP BY host"
    keyed = events().key_by("host")
    assert keyed.aggregate(mean=(Mean, "price", "amount"), n="COUNT(*)").node == plain(session.rows(by_key, {}))
    in_windows = (
        "SELECT window_start, window_end, host, Mean(price * 2, amount) AS mean FROM TABLE(TUMBLE(TABLE events,"
        " DESCRIPTOR(ts), INTERVAL '10' SECOND)) GROUP BY window_start, window_end, host"
    )
    windowed = keyed.window(tumbling("10 s")).aggregate(mean=(Mean, "price * 2", "amount"))
    assert windowed.node == plain(session.rows(in_windows, {}))


def test_two_uses_of_a_class_are_one_function() -> None:
    keyed = events().key_by("host")
    both = keyed.aggregate(a=(Mean, "price", "amount"), b=(Mean, "amount", "price"))
    assert both.columns == ("host", "a", "b")


def test_what_is_no_class_is_refused() -> None:
    with pytest.raises(SqlError, match="is no class of accumulators"):
        events().key_by("host").aggregate(mean=("AVG", "price"))


def test_a_class_within_a_function_is_refused() -> None:
    class Inner(Mean):
        pass

    with pytest.raises(SqlError, match="not found by a module and a name"):
        events().key_by("host").aggregate(mean=(Inner, "price", "amount"))


def test_two_functions_of_one_name_are_refused() -> None:
    builder = events().builder
    builder.function(Mean, "f")
    with pytest.raises(SqlError, match='another function "f"'):
        builder.function(len, "f")
