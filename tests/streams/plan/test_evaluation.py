"""What evaluators share says what SQL says: of NULL, of comparisons turned round, and of constants."""

from __future__ import annotations

import datetime
import operator
from collections.abc import Callable
from itertools import product
from typing import Any

import pytest

from millstream.streams.plan.evaluation import FLIPPED, junction, literal_last, membership, plain_literal
from millstream.streams.plan.expressions import (
    Call,
    Column,
    Expression,
    Literal,
    conjunction,
    conjuncts_of,
    operands_of_and,
)
from millstream.streams.plan.types import BOOLEAN, INT, STRING, DataType, TypeKind

COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "=": operator.eq,
    "<>": operator.ne,
}


def place(number: int) -> Callable[[tuple[Any, ...]], Any]:
    return lambda row: row[number]


def test_and_is_false_where_one_is_and_null_where_one_is_unknown() -> None:
    both = junction([place(0), place(1)], stops=False)
    for row in product((True, False, None), repeat=2):
        assert both(row) is (False if False in row else None if None in row else True)


def test_or_is_true_where_one_is_and_null_where_one_is_unknown() -> None:
    either = junction([place(0), place(1)], stops=True)
    for row in product((True, False, None), repeat=2):
        assert either(row) is (True if True in row else None if None in row else False)


@pytest.mark.parametrize(
    ("row", "wanted"),
    [((1, 1, 2), True), ((3, 1, 2), False), ((3, None, 2), None), ((2, None, 2), True), ((None, 1, 2), None)],
)
def test_in_is_null_where_an_unknown_option_might_be_it(row: tuple[int | None, ...], wanted: bool | None) -> None:
    assert membership(place(0), [place(1), place(2)])(row) is wanted


@pytest.mark.parametrize("name", sorted(FLIPPED))
def test_a_comparison_with_its_sides_exchanged_says_the_same(name: str) -> None:
    for left, right in product(range(3), repeat=2):
        assert COMPARE[name](left, right) == COMPARE[FLIPPED[name]](right, left)


def test_a_constant_moves_to_the_right_and_all_else_stays() -> None:
    column, one = Column("a", INT), Literal(1, INT)
    assert literal_last(Call("<", (one, column), BOOLEAN)) == Call(">", (column, one), BOOLEAN)
    stays: list[Expression] = [
        column,
        Call("<", (column, one), BOOLEAN),
        Call("<", (one, one), BOOLEAN),
        Call("-", (one, column), INT),
    ]
    assert [literal_last(each) for each in stays] == stays


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (datetime.datetime(1970, 1, 1, 0, 0, 1), 1_000_000),
        (datetime.datetime(1970, 1, 1, 1, tzinfo=datetime.timezone(datetime.timedelta(hours=1))), 0),
        (datetime.date(1970, 1, 3), 2),
        (datetime.timedelta(milliseconds=2), 2_000),
        ("text", "text"),
        (None, None),
    ],
)
def test_times_are_microseconds_and_days_since_1970(value: Any, plain: Any) -> None:
    assert plain_literal(Literal(value, DataType(TypeKind.NULL))) == plain


def test_what_and_joins_comes_apart_and_together() -> None:
    parts = [Call("=", (Column("a", STRING), Literal(str(number), STRING)), BOOLEAN) for number in range(5)]
    whole = conjunction(parts)
    assert whole is not None
    assert operands_of_and(whole) == conjuncts_of(whole) == parts
    assert conjunction([]) is None
    assert conjuncts_of(None) == []


def test_what_always_holds_is_no_conjunct() -> None:
    always = Literal(True, BOOLEAN.as_nullable(False))
    column = Column("a", BOOLEAN)
    assert conjuncts_of(Call("AND", (always, Call("AND", (column, always), BOOLEAN)), BOOLEAN)) == [column]
