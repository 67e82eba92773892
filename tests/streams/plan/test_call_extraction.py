"""Calls of users' functions taken out of expressions: under which names, for which rows, in which order."""

from __future__ import annotations

from itertools import count

import pytest

from millstream.streams.plan.expressions import Call, Case, Column, Expression, Literal
from millstream.streams.plan.types import BIGINT, BOOLEAN
from millstream.streams.plan.user_calls import CallExtractor, has_user_call

X, Y = Column("x", BIGINT), Column("y", BIGINT)
ONE = Literal(1, BIGINT)


def f(*arguments: Expression) -> Call:
    return Call("python:m.f", arguments, BIGINT)


def greater(one: Expression, other: Expression) -> Call:
    return Call(">", (one, other), BOOLEAN)


def apart(*expressions: Expression) -> tuple[list[str], list[tuple[str, str, str | None, int]]]:
    """The expressions without calls; the calls as name, call, for which rows, level."""
    names = count()
    found = CallExtractor(lambda: f"c{next(names)}")
    plain = [str(found.extract(one)) for one in expressions]
    return plain, [
        (one.name, str(one.call), None if one.condition is None else str(one.condition), one.level)
        for one in found.calls
    ]


def test_calls_become_columns_and_equal_ones_one() -> None:
    plain, calls = apart(Call("+", (f(X), ONE), BIGINT), f(X), f(Y))
    assert plain == ["+(c0, 1)", "c0", "c1"]
    assert calls == [("c0", "python:m.f(x)", None, 0), ("c1", "python:m.f(y)", None, 0)]


def test_an_inner_call_comes_before_the_one_that_needs_it() -> None:
    plain, calls = apart(f(Call("+", (f(X), ONE), BIGINT)))
    assert plain == ["c1"]
    assert [(name, level) for name, *_, level in calls] == [("c0", 0), ("c1", 1)]


def test_a_branch_of_case_is_asked_only_where_it_is_taken() -> None:
    plain, calls = apart(Case(((greater(X, ONE), f(X)),), f(Y), BIGINT))
    assert plain == [str(Case(((greater(X, ONE), Column("c0", BIGINT)),), Column("c1", BIGINT), BIGINT))]
    assert [asked for *_, asked, _ in calls] == ["COALESCE(>(x, 1), False)", "NOT(COALESCE(>(x, 1), False))"]


def test_if_is_case() -> None:
    assert apart(Call("IF", (greater(X, ONE), f(X), ONE), BIGINT))[1][0][2] == "COALESCE(>(x, 1), False)"


@pytest.mark.parametrize(
    ("junction", "asked"), [("AND", "COALESCE(>(x, 1), True)"), ("OR", "NOT(COALESCE(>(x, 1), False))")]
)
def test_operands_without_calls_decide_for_which_rows_the_others_are_asked(junction: str, asked: str) -> None:
    _, calls = apart(Call(junction, (greater(f(X), ONE), greater(X, ONE)), BOOLEAN))
    assert [one[2] for one in calls] == [asked]


def test_a_call_that_guards_another_is_made_before_it() -> None:
    _, calls = apart(Case(((greater(f(X), ONE), f(Y)),), None, BIGINT))
    assert [(name, level) for name, *_, level in calls] == [("c0", 0), ("c1", 1)]


def test_expressions_without_calls_stay() -> None:
    assert not has_user_call(greater(X, ONE))
    assert apart(greater(X, ONE)) == ([">(x, 1)"], [])
