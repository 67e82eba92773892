"""The function registry: every example can be called, and the engine can build every function."""

from __future__ import annotations

import pytest

from millstream.streams.functions.registry import AGGREGATES, FUNCTIONS
from millstream.streams.plan.nodes import QueryPlan
from millstream.streams.sql.compiler import SqlSession

_TABLE = "CREATE TABLE t (bytes BIGINT, celsius DOUBLE) WITH ('connector' = 'rocketmq', 'topic' = 't');"


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_example_of_a_scalar_function_is_legal_and_calls_it(name: str) -> None:
    plan = SqlSession().compile(f"{_TABLE} SELECT {FUNCTIONS[name].example} AS x FROM t")[-1]
    assert isinstance(plan, QueryPlan)
    assert name in str(plan.query)


def test_the_engine_builds_every_scalar_function() -> None:
    builders = pytest.importorskip("millstream.streams.spark.functions", reason="needs pyspark")
    assert set(FUNCTIONS) <= set(builders.FUNCTIONS)


def test_the_aggregates_are_the_first_set() -> None:
    assert set(AGGREGATES) == {"COUNT", "SUM", "AVG", "MIN", "MAX"}
