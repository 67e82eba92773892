"""What the condition of a correlation asks of a measure: comparisons with numbers, all of which must hold."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from millstream.streams.rule_formats.sigma.fault import Fault
from millstream.streams.rule_formats.yaml.statistics import MAX_AT_LEAST

__all__ = ["Bounds", "bounds_of"]

Number = int | float


class Bounds(NamedTuple):
    """The bounds of a measure, named as those of `Statistics`; None where there is none."""

    at_least: Number | None = None
    above: Number | None = None
    at_most: Number | None = None
    below: Number | None = None
    other_than: Number | None = None


def bounds_of(condition: Any, line: int | None, *, whole: bool) -> Bounds:
    """The bounds of a condition such as `{gte: 5, lt: 10}`; `whole` ones are of counts, which are 1 or more.

    Raises Fault where something else is written, or where no window with an event could fulfil it.
    """
    if not isinstance(condition, Mapping) or not condition:
        raise Fault("the condition must be a map such as gte: 10", line)
    least, above, most, below = -math.inf, -math.inf, math.inf, math.inf
    other_than: Number | None = None
    for key, number in condition.items():
        _check(key, number, line, whole=whole)
        match key:
            case "gte":
                least = max(least, number)
            case "gt":
                above = max(above, number)
            case "lte":
                most = min(most, number)
            case "lt":
                below = min(below, number)
            case "eq":
                least, most = max(least, number), min(most, number)
            case "neq":
                other_than = number
            case _:
                raise Fault(f"{key!r} is no comparison that is taken; gt, gte, lt, lte, eq and neq are", line)
    if whole:
        least, most = max(1, least, above + 1), min(most, below - 1)
        above, below = -math.inf, math.inf
    if most < least or min(most, below) <= above or below <= least or least == most == other_than:
        raise Fault("no window with an event can fulfil the condition", line)
    return Bounds(_given(least), _given(above), _given(most), _given(below), other_than)


def _given(bound: Number) -> Number | None:
    return None if math.isinf(bound) else bound


def _check(key: Any, number: Any, line: int | None, *, whole: bool) -> None:
    if isinstance(number, bool) or not isinstance(number, int if whole else (int, float)):
        raise Fault(f"{key}: {number!r} is no {'whole ' if whole else ''}number", line)
    if whole and number > MAX_AT_LEAST:
        raise Fault(f"{key}: {number} is more than {MAX_AT_LEAST:,}", line)
    try:
        finite = math.isfinite(float(number))
    except OverflowError:
        finite = False
    if not finite:
        raise Fault(f"{key}: {str(number)[:20]} is no number of 64 bits", line)
