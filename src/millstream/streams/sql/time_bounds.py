"""Conditions between the times of two inputs that bound how far apart they are, as interval joins need them."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from dataclasses import dataclass

from millstream.streams.plan.expressions import Call, Column, Expression, Literal
from millstream.streams.plan.joins import IntervalBounds
from millstream.streams.plan.types import Field, Schema

__all__ = ["bounds_among"]

_TURNED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "="}


@dataclass(frozen=True)
class _Limit:
    """`left` less `right` is at least (`lower`) or at most (`upper`) so many milliseconds."""

    left: str
    right: str
    lower: int | None
    upper: int | None


def bounds_among(
    conjuncts: list[Expression], left: Schema, right: Schema
) -> tuple[IntervalBounds | None, list[Expression]]:
    """The bounds that the conditions set between two time attributes, and the conditions that are left.

    There are none unless both sides are bounded: then all conditions are left.
    """
    limits = {number: found for number, of in enumerate(conjuncts) if (found := list(_limits(of, (left, right))))}
    for pair in dict.fromkeys((found[0].left, found[0].right) for found in limits.values()):
        used = {number: found for number, found in limits.items() if (found[0].left, found[0].right) == pair}
        lowers = [limit.lower for found in used.values() for limit in found if limit.lower is not None]
        uppers = [limit.upper for found in used.values() for limit in found if limit.upper is not None]
        if lowers and uppers:
            rest = [of for number, of in enumerate(conjuncts) if number not in used]
            return IntervalBounds(*pair, max(lowers), min(uppers)), rest
    return None, conjuncts


def _limits(condition: Expression, sides: tuple[Schema, Schema]) -> Iterator[_Limit]:
    """One or two limits, all between the same two columns; nothing for other conditions."""
    if not isinstance(condition, Call):
        return
    if condition.function == "BETWEEN":
        value, low, high = condition.arguments
        found = [_limit(">=", value, low, sides), _limit("<=", value, high, sides)]
    elif condition.function in _TURNED:
        found = [_limit(condition.function, condition.arguments[0], condition.arguments[1], sides)]
    else:
        return
    known = [limit for limit in found if limit is not None]
    if len(known) == len(found) and len({(limit.left, limit.right) for limit in known}) == 1:
        yield from known


def _limit(operator: str, first: Expression, second: Expression, sides: tuple[Schema, Schema]) -> _Limit | None:
    left, right = sides
    one, two = _shifted(first), _shifted(second)
    if one is None or two is None:
        return None
    if left.find(one[0]) is None:
        one, two, operator = two, one, _TURNED[operator]
    ours, theirs = left.find(one[0]), right.find(two[0])
    if ours is None or theirs is None or not _comparable(ours, theirs):
        return None
    distance = two[1] - one[1]
    lower = {">": distance + 1, ">=": distance, "=": distance}.get(operator)
    upper = {"<": distance - 1, "<=": distance, "=": distance}.get(operator)
    return _Limit(ours.name, theirs.name, lower, upper)


def _comparable(ours: Field, theirs: Field) -> bool:
    return (ours.rowtime and theirs.rowtime) or (ours.proctime and theirs.proctime)


def _shifted(value: Expression) -> tuple[str, int] | None:
    """A column and the milliseconds that are added to it; None for anything else."""
    if isinstance(value, Column):
        return value.name, 0
    if not isinstance(value, Call) or value.function not in ("+", "-"):
        return None
    inside, amount = _shifted(value.arguments[0]), value.arguments[1]
    if inside is None or not isinstance(amount, Literal) or not isinstance(amount.value, datetime.timedelta):
        return None
    moved = amount.value // datetime.timedelta(milliseconds=1)
    if datetime.timedelta(milliseconds=moved) != amount.value:
        return None
    return inside[0], inside[1] + (moved if value.function == "+" else -moved)
