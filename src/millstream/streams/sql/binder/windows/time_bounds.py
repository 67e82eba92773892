"""Conditions between the times of two inputs that bound how far apart they are, as interval joins need them."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from millstream.streams.plan.expressions import Call, Column, Expression, Literal
from millstream.streams.plan.nodes import Node
from millstream.streams.sql.binder.windows.window_columns import window_columns

__all__ = ["TimeBounds", "bounds_among", "times_of"]

_TURNED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "="}


@dataclass(frozen=True)
class _Time:
    """A column that moves with time: a time attribute, or a window's end, which is 1 ms behind the window's time."""

    column: str
    proctime: bool
    is_window_end: bool = False


@dataclass(frozen=True)
class TimeBounds:
    """`left` less `right` is from `lower_ms` to `upper_ms`. A window's end stands for the window's time."""

    left: _Time
    right: _Time
    lower_ms: int
    upper_ms: int


@dataclass(frozen=True)
class _Limit:
    """`left` less `right` is at least (`lower`) or at most (`upper`) so many milliseconds."""

    left: _Time
    right: _Time
    lower: int | None
    upper: int | None


_Sides = tuple[Mapping[str, _Time], Mapping[str, _Time]]


def times_of(node: Node, *, with_window_ends: bool) -> dict[str, _Time]:
    """The time attributes of a node by name, with the ends of its windows if they are wanted."""
    times = {of.name: _Time(of.name, of.proctime) for of in node.schema.fields if of.is_time_attribute}
    if with_window_ends:
        windows = window_columns(node)
        clocked = any(times[name].proctime for name in windows.times if name in times)
        times |= {name: _Time(name, clocked, is_window_end=True) for name in windows.ends if name not in times}
    return times


def bounds_among(conjuncts: list[Expression], sides: _Sides) -> tuple[TimeBounds | None, list[Expression]]:
    """The bounds that the conditions set between two times, and the conditions that are left.

    There are none unless both directions are bounded: then all conditions are left.
    """
    limits = {number: found for number, of in enumerate(conjuncts) if (found := list(_limits(of, sides)))}
    for left, right in dict.fromkeys((found[0].left, found[0].right) for found in limits.values()):
        used = {number: found for number, found in limits.items() if (found[0].left, found[0].right) == (left, right)}
        lowers = [limit.lower for found in used.values() for limit in found if limit.lower is not None]
        uppers = [limit.upper for found in used.values() for limit in found if limit.upper is not None]
        if lowers and uppers:
            rest = [of for number, of in enumerate(conjuncts) if number not in used]
            moved = right.is_window_end - left.is_window_end
            return TimeBounds(left, right, max(lowers) + moved, min(uppers) + moved), rest
    return None, conjuncts


def _limits(condition: Expression, sides: _Sides) -> Iterator[_Limit]:
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


def _limit(operator: str, first: Expression, second: Expression, sides: _Sides) -> _Limit | None:
    left, right = sides
    one, two = _shift_of(first), _shift_of(second)
    if one is None or two is None:
        return None
    if one[0] not in left:
        one, two, operator = two, one, _TURNED[operator]
    ours, theirs = left.get(one[0]), right.get(two[0])
    if ours is None or theirs is None or ours.proctime != theirs.proctime:
        return None
    distance = two[1] - one[1]
    lower = {">": distance + 1, ">=": distance, "=": distance}.get(operator)
    upper = {"<": distance - 1, "<=": distance, "=": distance}.get(operator)
    return _Limit(ours, theirs, lower, upper)


def _shift_of(value: Expression) -> tuple[str, int] | None:
    """A column and the milliseconds that are added to it; None for anything else."""
    if isinstance(value, Column):
        return value.name, 0
    if not isinstance(value, Call) or value.function not in ("+", "-"):
        return None
    inside, amount = _shift_of(value.arguments[0]), value.arguments[1]
    if inside is None or not isinstance(amount, Literal) or not isinstance(amount.value, datetime.timedelta):
        return None
    moved = amount.value // datetime.timedelta(milliseconds=1)
    if datetime.timedelta(milliseconds=moved) != amount.value:
        return None
    return inside[0], inside[1] + (moved if value.function == "+" else -moved)
