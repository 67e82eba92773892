"""Scores before OVER: what is bound, and which constants are refused where."""

from __future__ import annotations

import pytest

from millstream.streams.errors import SqlError
from millstream.streams.plan.nodes import QueryPlan
from millstream.streams.plan.types import DOUBLE
from millstream.streams.sql.session.compiler import SqlSession

TABLE = """CREATE TABLE t (host STRING, bytes BIGINT, seconds DOUBLE, ts TIMESTAMP(3), WATERMARK FOR ts AS ts)
WITH ('connector' = 'rocketmq', 'topic' = 't');
"""
OVER = "OVER (PARTITION BY host ORDER BY ts)"


def planned(call: str) -> QueryPlan:
    plan = SqlSession().compile(f"{TABLE} SELECT {call} {OVER} AS score FROM t;")[-1]
    assert isinstance(plan, QueryPlan)
    return plan


@pytest.mark.parametrize(
    "call",
    [
        *("ZSCORE(bytes)", "ZSCORE(seconds, 30)", "EWMA(bytes, 0.2)", "EWMA(bytes, 1)", "EWMA_SCORE(bytes, 0.2, 5)"),
        *("HST(bytes)", "HST(ARRAY[bytes, seconds], 100)"),
    ],
)
def test_a_score_is_a_double_that_may_be_null(call: str) -> None:
    (field,) = planned(call).query.schema.fields
    assert (field.name, field.type) == ("score", DOUBLE)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        ("ZSCORE(host)", "ZSCORE wants a number as argument 1"),
        ("ZSCORE(bytes, 1)", "ZSCORE wants a constant of 2 or more as argument 2"),
        ("ZSCORE(bytes, bytes)", "ZSCORE wants a constant of 2 or more as argument 2"),
        ("EWMA(bytes, 0)", "EWMA wants a constant above 0 and up to 1 as argument 2"),
        ("EWMA(bytes, seconds)", "EWMA wants a constant above 0 and up to 1 as argument 2"),
        ("EWMA(bytes)", "EWMA does not take 1 arguments"),
        ("HST(host)", "HST wants a number or an array of numbers as argument 1"),
        ("HST(bytes, 65536)", "HST wants a constant from 2 to 65535 as argument 2"),
    ],
)
def test_what_a_score_cannot_take_is_refused_at_its_place(call: str, words: str) -> None:
    with pytest.raises(SqlError) as refused:
        planned(call)
    assert words in refused.value.message
    assert refused.value.position is not None
    assert refused.value.position.column == 9


def test_scores_need_over_and_ascending_time() -> None:
    with pytest.raises(SqlError, match="ZSCORE"):
        SqlSession().compile(f"{TABLE} SELECT ZSCORE(bytes) FROM t;")
    with pytest.raises(SqlError, match="ordered by ascending time"):
        SqlSession().compile(f"{TABLE} SELECT ZSCORE(bytes) OVER (PARTITION BY host ORDER BY bytes) FROM t;")
