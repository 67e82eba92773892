"""Aggregate functions: what is kept of rows that only come is enough for what all of them say."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.streams.operators.aggregates.accumulator import Retractable
from millstream.streams.operators.aggregates.catalogue import AggregateSpec, accumulator_of, retractable_of
from millstream.streams.plan.types import BIGINT

PAIRS = st.lists(
    st.lists(st.tuples(st.integers(0, 9), st.one_of(st.none(), st.integers(-3, 3))), max_size=5), max_size=5
)
ONE_OF_MANY = ("MIN", "MAX", "FIRST_VALUE", "LAST_VALUE", "MIN_BY", "MAX_BY")


def spec(function: str) -> AggregateSpec:
    return AggregateSpec(function, (0, 1) if function.endswith("_BY") else (0,), BIGINT, BIGINT)


@pytest.mark.parametrize("function", ONE_OF_MANY)
@given(turns=PAIRS)
def test_one_kept_value_says_what_all_values_say(function: str, turns: list[list[tuple[int, int | None]]]) -> None:
    keeps_one, keeps_all = accumulator_of(spec(function), changing=False), retractable_of(spec(function))
    one, every, merged = keeps_one.new(), keeps_all.new(), keeps_one.new()
    for turn in turns:
        values = turn if function.endswith("_BY") else [pair[0] for pair in turn]
        one, every = keeps_one.add(one, values), keeps_all.add(every, values)
        merged = keeps_one.merge(merged, keeps_one.add(keeps_one.new(), values))
        assert keeps_one.result(one) == keeps_all.result(every) == keeps_one.result(merged)


@pytest.mark.parametrize("function", ONE_OF_MANY)
def test_what_keeps_one_value_cannot_be_asked_to_take_one_back(function: str) -> None:
    assert not isinstance(accumulator_of(spec(function), changing=False), Retractable)
