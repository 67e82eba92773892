"""Shared parts of expression evaluators: flipped comparisons, plain constants, and three-valued logic.

The package's docstring says which evaluators there are.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

from millstream.streams.plan.expressions import Call, Expression, Literal

__all__ = ["COMPARISONS", "FLIPPED", "junction", "literal_last", "membership", "plain_literal"]

FLIPPED: Final[Mapping[str, str]] = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "=", "<>": "<>"}
"""The comparisons by their operators: which one says the same with its sides exchanged."""

COMPARISONS: Final = frozenset(FLIPPED)

_EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_MICROSECOND: Final = datetime.timedelta(microseconds=1)

_Row = TypeVar("_Row")


def literal_last(condition: Expression) -> Expression:
    """The condition, where it compares a constant with something else, with the constant on the right."""
    match condition:
        case Call(operator, (Literal() as left, right)) if operator in FLIPPED and not isinstance(right, Literal):
            return Call(FLIPPED[operator], (right, left), condition.type)
        case _:
            return condition


def plain_literal(literal: Literal) -> Any:
    """A constant in the form that rows of operators have: times are microseconds since 1970, dates days.

    A time without a zone is one of UTC.
    """
    value = literal.value
    if isinstance(value, datetime.datetime):
        moment = value if value.tzinfo is not None else value.replace(tzinfo=datetime.UTC)
        return (moment - _EPOCH) // _MICROSECOND
    if isinstance(value, datetime.date):
        return (value - _EPOCH.date()).days
    if isinstance(value, datetime.timedelta):
        return value // _MICROSECOND
    return value


def junction(conditions: Sequence[Callable[[_Row], Any]], *, stops: bool) -> Callable[[_Row], bool | None]:
    """AND, which False decides, or OR, which True decides; NULL where none decides and one is NULL."""

    def decide(row: _Row) -> bool | None:
        unknown = False
        for one in conditions:
            value = one(row)
            if value is stops:
                return bool(value)
            unknown = unknown or value is None
        return None if unknown else not stops

    return decide


def membership(
    operand: Callable[[_Row], Any], options: Sequence[Callable[[_Row], Any]]
) -> Callable[[_Row], bool | None]:
    """IN: NULL where the operand is NULL, and where it equals no option and one of them is NULL."""

    def evaluate_in(row: _Row) -> bool | None:
        value = operand(row)
        if value is None:
            return None
        values = [option(row) for option in options]
        if any(bool(value == one) for one in values):
            return True
        return None if None in values else False

    return evaluate_in
