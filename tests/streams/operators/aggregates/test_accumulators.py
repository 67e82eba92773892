"""Aggregate functions: what is kept of rows that only come is enough for what all of them say."""

from __future__ import annotations

import decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.streams.operators.aggregates.accumulator import Retractable, Sum
from millstream.streams.operators.aggregates.catalogue import AggregateSpec, accumulator_of, retractable_of
from millstream.streams.operators.aggregates.group import GroupMachine
from millstream.streams.operators.over.over_frames import sliding_of
from millstream.streams.plan.types import BIGINT, STRING

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


@pytest.mark.parametrize(
    ("function", "literals", "result"),
    [
        ("ARRAY_AGG", (), [1, None, 2]),
        ("JSON_ARRAYAGG", (), "[1,2]"),
        ("JSON_ARRAYAGG", ("ABSENT",), "[1,2]"),
        ("JSON_ARRAYAGG", ("NULL",), "[1,null,2]"),
        ("JSON_OBJECTAGG", ("NULL",), '{"a":1,"b":null,"c":2}'),
        ("JSON_OBJECTAGG", ("ABSENT",), '{"a":1,"c":2}'),
    ],
)
def test_a_null_is_a_value_where_the_call_says_so(function: str, literals: tuple[str, ...], result: object) -> None:
    arguments = (0, 1) if function == "JSON_OBJECTAGG" else (1,)
    call = AggregateSpec(function, arguments, BIGINT, STRING, literals=literals)
    rows = [("a", 1), ("b", None), ("c", 2)]
    machine = GroupMachine((call,), changing=True)
    group = machine.new()
    machine.add(group, rows)
    assert machine.results(group) == (result,)
    machine.retract(group, rows[:1])
    sliding = sliding_of(call)
    for row in rows:
        sliding.enter(row)
    assert sliding.result() == result
    sliding.leave(rows[0])
    assert machine.results(group) == (sliding.result(),)


@pytest.mark.parametrize("function", ONE_OF_MANY)
def test_what_keeps_one_value_cannot_be_asked_to_take_one_back(function: str) -> None:
    assert not isinstance(accumulator_of(spec(function), changing=False), Retractable)


def test_sums_of_long_decimals_keep_every_digit_when_groups_without_values_join_and_values_go() -> None:
    machine = Sum(None)
    long = decimal.Decimal("1234567890123456789012345678901.234567")
    one = machine.add(machine.new(), [long])
    assert machine.result(machine.merge(one, machine.new())) == long
    assert machine.result(machine.merge(machine.new(), one)) == long
    both = machine.add(one, [decimal.Decimal("0.000001")])
    assert machine.result(machine.retract(both, [decimal.Decimal("0.000001")])) == long
