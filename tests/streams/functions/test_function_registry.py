"""The function registry: every example can be called, and the engine can build every function."""

from __future__ import annotations

import pytest

from millstream.streams.functions.registry import AGGREGATES, FUNCTIONS, WINDOW_FUNCTIONS
from millstream.streams.functions.scalars.times import WITHOUT_BRACKETS
from millstream.streams.functions.spec import array_of, map_of
from millstream.streams.functions.unsupported import FLINK_ONLY
from millstream.streams.plan.nodes import QueryPlan
from millstream.streams.plan.types import BIGINT, DOUBLE, INT, STRING, DataType, TypeKind
from millstream.streams.sql.session.compiler import SqlSession

_TABLE = "CREATE TABLE t (bytes BIGINT, celsius DOUBLE) WITH ('connector' = 'rocketmq', 'topic' = 't');"
PRICE = DataType(TypeKind.DECIMAL, precision=10, scale=2)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_example_of_a_scalar_function_is_legal_and_calls_it(name: str) -> None:
    plan = SqlSession().compile(f"{_TABLE} SELECT {FUNCTIONS[name].example} AS x FROM t")[-1]
    assert isinstance(plan, QueryPlan)
    assert f"'{name}'" in repr(plan.query)


def test_the_engine_builds_every_scalar_function() -> None:
    builders = pytest.importorskip("millstream.streams.spark.functions", reason="needs pyspark")
    assert set(FUNCTIONS) <= set(builders.FUNCTIONS)


def test_every_name_without_brackets_is_a_function() -> None:
    assert set(FUNCTIONS) >= WITHOUT_BRACKETS


def test_no_function_is_both_here_and_elsewhere() -> None:
    assert not set(FLINK_ONLY) & {*FUNCTIONS, *AGGREGATES, *WINDOW_FUNCTIONS}


@pytest.mark.parametrize(
    ("name", "types", "result"),
    [
        ("COUNT", [], BIGINT.as_nullable(False)),
        ("SUM", [INT], INT),
        ("SUM", [PRICE], DataType(TypeKind.DECIMAL, precision=38, scale=2)),
        ("AVG", [BIGINT], BIGINT),
        ("AVG", [PRICE], DataType(TypeKind.DECIMAL, precision=38, scale=6)),
        ("STDDEV_POP", [INT], INT),
        ("MAX", [STRING], STRING),
        ("ARRAY_AGG", [INT], array_of(INT)),
        ("LISTAGG", [STRING, STRING], STRING),
        ("PERCENTILE", [INT, DOUBLE], DOUBLE),
        ("PERCENTILE", [INT, array_of(DOUBLE)], array_of(DOUBLE)),
        ("HISTOGRAM", [INT, INT], map_of(DOUBLE, BIGINT)),
        ("MAX_BY", [STRING, INT], STRING),
        ("BIT_AND", [INT], INT),
    ],
)
def test_an_aggregate_has_the_type_that_flink_gives_it(name: str, types: list[DataType], result: DataType) -> None:
    assert AGGREGATES[name].type_rule(types) == result


@pytest.mark.parametrize(
    ("name", "types", "wanted"),
    [
        ("SUM", [STRING], "a number"),
        ("MAX", [array_of(INT)], "a value that can be compared"),
        ("BIT_OR", [DOUBLE], "a whole number"),
        ("PERCENTILE", [INT, STRING], "from 0 to 1"),
    ],
)
def test_an_aggregate_says_what_it_wants(name: str, types: list[DataType], wanted: str) -> None:
    with pytest.raises(TypeError, match=wanted):
        AGGREGATES[name].type_rule(types)


def test_a_ranking_function_gives_a_number_and_a_navigation_what_it_is_given() -> None:
    assert WINDOW_FUNCTIONS["ROW_NUMBER"].type_rule([]) == BIGINT.as_nullable(False)
    assert WINDOW_FUNCTIONS["LAG"].type_rule([STRING.as_nullable(False), INT], (None, 2)) == STRING
    assert WINDOW_FUNCTIONS["LAG"].wanted_types([INT, INT, BIGINT]) == [BIGINT, None, BIGINT]
