"""Functions of users in Spark's Python workers."""

from __future__ import annotations

import datetime
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from millstream.streams.functions.user_functions.user import load_user_function
from millstream.streams.plan.expressions import Call, Column, Literal
from millstream.streams.plan.nodes import Values
from millstream.streams.plan.types import BIGINT, DOUBLE, NULL, STRING, DataType, Field, Schema, TypeKind
from millstream.streams.spark.columns.rows import Rows
from millstream.streams.spark.translation.expressions import column_of
from millstream.streams.spark.translation.user_calls import UserCalls

pytestmark = pytest.mark.spark

_TYPES = {str: STRING, int: BIGINT, float: DOUBLE, type(None): NULL}
_TIMESTAMP = DataType(TypeKind.TIMESTAMP, precision=3)
_NOON = datetime.datetime(2026, 1, 2, 12)


def _call(name: str, *values: str | float | datetime.datetime | None) -> Call:
    function = load_user_function(name, f"sample_functions.{name}")
    given = tuple(Literal(value, _TYPES.get(type(value), _TIMESTAMP)) for value in values)
    return Call(function.call_name, given, function.type_rule([argument.type for argument in given]))


def test_all_calls_of_one_projection_run_in_one_stage_of_python(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "functions"))
    frame = spark.range(3)
    rows = Rows(frame, {"id": frame["id"]})
    schema = Schema((Field("id", BIGINT),))
    number = Column("id", BIGINT)
    asked = [Call(f"python:sample_functions.{name}", (number,), BIGINT) for name in ("tripled", "Doubler")]
    calls = UserCalls(str(tmp_path), "null", None, lambda _table: False)
    apart, plain = calls.apart(rows, asked, Values(schema, ()), schema)
    found = apart.frame.select(*(column_of(one, apart.columns).alias(str(place)) for place, one in enumerate(plain)))
    assert found.collect() == [(0, 0), (3, 2), (6, 4)]
    shown = found._jdf.queryExecution().executedPlan().toString()
    assert shown.count("ArrowEvalPython") == 1


def test_a_call_has_the_value_that_the_function_gives_and_null_where_it_raises(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "functions"))
    cases = [
        (_call("tripled", 7), 21),
        (_call("Doubler", 7), 14),
        (_call("greeted", None), "Hello, you"),
        (_call("joined", "a", "b", "c"), "a+b+c"),
        (_call("joined"), ""),
        (_call("failing", "12"), 12),
        (_call("failing", "x"), None),
        (_call("lying", "x"), None),
        (_call("day_later", _NOON), _NOON + datetime.timedelta(days=1)),
        (_call("point", 1.5, 2.0), (1.5, 2.0)),
        (_call("counted", "aab"), {"a": 2, "b": 1}),
        (_call("words", "to be"), [("to",), ("be",)]),
        (_call("numbered", "to be"), [(1, "to"), (2, "be")]),
        (_call("words", ""), []),
    ]
    row = spark.range(1).select(*(column_of(call, {}).alias(f"c{place}") for place, (call, _) in enumerate(cases)))
    got = list(row.collect()[0])
    assert got == [wanted for _, wanted in cases]
