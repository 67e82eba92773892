"""The accumulator interface of aggregate functions, and counts, sums, averages and extremes."""

from __future__ import annotations

import decimal
import math
from collections.abc import Iterable, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np

from millstream.streams.operators.columns import LARGEST, Longs, Numbers

__all__ = [
    "Accumulator",
    "Average",
    "ExactSum",
    "Extreme",
    "Retractable",
    "RetractableExtreme",
    "Sum",
    "ValueCount",
    "WholeAverage",
]

CONTEXT = decimal.Context(prec=76, rounding=decimal.ROUND_HALF_UP)
"""Twice the digits of the largest DECIMAL, so that sums stay exact."""


class Accumulator(Protocol):
    """One aggregate function. A state is a plain value that pickle keeps; an operator holds one per group.

    Values are never NULL: operators leave those out. Each value is a tuple where the function has several arguments.
    """

    def new(self) -> Any:
        """The state of a group without values."""
        ...

    def add(self, state: Any, values: Sequence[Any]) -> Any:
        """The state with `values` in their order; `state` may be changed in place."""
        ...

    def merge(self, state: Any, other: Any) -> Any:
        """The state of two groups together; `state` may be changed in place, `other` stays as it is."""
        ...

    def result(self, state: Any) -> Any:
        """The aggregate's value; None for NULL."""
        ...


@runtime_checkable
class Retractable(Accumulator, Protocol):
    """One aggregate function over rows that may be taken back."""

    def retract(self, state: Any, values: Sequence[Any]) -> Any:
        """The state without `values`, each of which was added before."""
        ...


class ValueCount:
    """How many values there are."""

    def new(self) -> int:
        return 0

    def add(self, state: int, values: Sequence[Any]) -> int:
        return state + len(values)

    def retract(self, state: int, values: Sequence[Any]) -> int:
        return state - len(values)

    def merge(self, state: int, other: int) -> int:
        return state + other

    def result(self, state: int) -> int:
        return state


class Sum:
    """The sum of whole numbers or decimals; integers wrap at `bits` as in Flink. `empty` is that of no values.

    A state is (how many values, their sum).
    """

    def __init__(self, bits: int | None, empty: int | None = None) -> None:
        self._half = None if bits is None else 1 << bits - 1
        self._empty = empty

    def new(self) -> tuple[int, Any]:
        return 0, 0

    def add(self, state: tuple[int, Any], values: Sequence[Any]) -> tuple[int, Any]:
        return state[0] + len(values), _total(state[1], values)

    def retract(self, state: tuple[int, Any], values: Sequence[Any]) -> tuple[int, Any]:
        gone = _total(0, values)
        # Python's own arithmetic of decimals keeps 28 digits.
        left = CONTEXT.subtract(state[1], gone) if isinstance(gone, decimal.Decimal) else state[1] - gone
        return state[0] - len(values), left

    def merge(self, state: tuple[int, Any], other: tuple[int, Any]) -> tuple[int, Any]:
        return state[0] + other[0], _total(state[1], (other[1],))

    def result(self, state: tuple[int, Any]) -> Any:
        count, total = state
        if not count:
            return self._empty
        return total if self._half is None else (total + self._half) % (2 * self._half) - self._half

    def results(self, counts: Longs, totals: Longs) -> Numbers:
        """`result` of many states of whole numbers below `LARGEST`."""
        known = counts > 0
        if self._half is not None and self._half < LARGEST:
            totals = (totals + self._half) % (2 * self._half) - self._half
        if self._empty is not None:
            return Numbers(np.where(known, totals, self._empty))
        return Numbers(totals, None if known.all() else known)


class WholeAverage(Sum):
    """The average of whole numbers, cut towards zero; of decimals, rounded to `scale` digits."""

    def __init__(self, scale: int | None = None) -> None:
        super().__init__(None)
        self._unit = None if scale is None else decimal.Decimal(1).scaleb(-scale)

    def result(self, state: tuple[int, Any]) -> Any:
        count, total = state
        if not count:
            return None
        if self._unit is None:
            return abs(total) // count * (1 if total >= 0 else -1)
        return CONTEXT.divide(decimal.Decimal(total), decimal.Decimal(count)).quantize(self._unit, context=CONTEXT)

    def results(self, counts: Longs, totals: Longs) -> Numbers:
        assert self._unit is None
        averages = np.sign(totals) * (np.abs(totals) // np.maximum(counts, 1))
        known = counts > 0
        return Numbers(averages, None if known.all() else known)


class ExactSum:
    """The sum of floating-point numbers, the same in whatever order they come and go.

    A state is (how many, partial sums that do not overlap, how many are infinite or no number by kind): Shewchuk's
    exact addition, of which Python's `math.fsum` keeps no state.
    """

    def new(self) -> tuple[int, list[float], tuple[int, int, int]]:
        return 0, [], (0, 0, 0)

    def add(
        self, state: tuple[int, list[float], tuple[int, int, int]], values: Sequence[float]
    ) -> tuple[int, list[float], tuple[int, int, int]]:
        return self._change(state, values, 1)

    def retract(
        self, state: tuple[int, list[float], tuple[int, int, int]], values: Sequence[float]
    ) -> tuple[int, list[float], tuple[int, int, int]]:
        return self._change(state, values, -1)

    def merge(
        self, state: tuple[int, list[float], tuple[int, int, int]], other: tuple[int, list[float], tuple[int, int, int]]
    ) -> tuple[int, list[float], tuple[int, int, int]]:
        _, partials, _ = self._change((0, state[1], (0, 0, 0)), other[1], 1)
        odd = tuple(ours + theirs for ours, theirs in zip(state[2], other[2], strict=True))
        return state[0] + other[0], partials, (odd[0], odd[1], odd[2])

    def result(self, state: tuple[int, list[float], tuple[int, int, int]]) -> float | None:
        count, partials, (up, down, nan) = state
        if not count:
            return None
        if nan or (up and down):
            return float("nan")
        if up or down:
            return float("inf") if up else float("-inf")
        return math.fsum(partials)

    def _change(
        self, state: tuple[int, list[float], tuple[int, int, int]], values: Iterable[float], sign: int
    ) -> tuple[int, list[float], tuple[int, int, int]]:
        count, partials, (up, down, nan) = state
        for value in values:
            count += sign
            if value - value != 0:
                up, down, nan = up + sign * (value > 0), down + sign * (value < 0), nan + sign * (value != value)
                continue
            _exactly(partials, sign * value)
        return count, partials, (up, down, nan)


class Average(ExactSum):
    """The average of floating-point numbers."""

    def result(self, state: tuple[int, list[float], tuple[int, int, int]]) -> float | None:
        total = super().result(state)
        return None if total is None else total / state[0]


class Extreme:
    """The smallest or largest value of rows that are never taken back."""

    def __init__(self, *, largest: bool) -> None:
        self._choose = max if largest else min

    def new(self) -> Any:
        return None

    def add(self, state: Any, values: Sequence[Any]) -> Any:
        if not values:
            return state
        best = self._choose(values)
        return best if state is None else self._choose(state, best)

    def merge(self, state: Any, other: Any) -> Any:
        if state is None or other is None:
            return other if state is None else state
        return self._choose(state, other)

    def result(self, state: Any) -> Any:
        return state


class RetractableExtreme:
    """The smallest or largest value of rows that may be taken back: every value is kept with its number.

    A state is (values with their numbers, the extreme or None if it has to be looked for).
    """

    def __init__(self, *, largest: bool) -> None:
        self._choose = max if largest else min

    def new(self) -> list[Any]:
        return [{}, None]

    def add(self, state: list[Any], values: Sequence[Any]) -> list[Any]:
        counts, best = state
        known = best is not None or not counts
        for value in values:
            counts[value] = counts.get(value, 0) + 1
        if known and values:
            newest = self._choose(values)
            state[1] = newest if best is None else self._choose(best, newest)
        return state

    def retract(self, state: list[Any], values: Sequence[Any]) -> list[Any]:
        counts = state[0]
        for value in values:
            left = counts.get(value, 0) - 1
            if left:
                counts[value] = left
            else:
                counts.pop(value, None)
                if value == state[1]:
                    state[1] = None
        return state

    def merge(self, state: list[Any], other: list[Any]) -> list[Any]:
        for value, count in other[0].items():
            state[0][value] = state[0].get(value, 0) + count
        state[1] = None
        return state

    def result(self, state: list[Any]) -> Any:
        if state[1] is None and state[0]:
            state[1] = self._choose(state[0])
        return state[1]


def _total(start: Any, values: Sequence[Any]) -> Any:
    """The exact sum of values of one type, beside the 0 of no values; decimals are added with enough digits."""
    if not any(isinstance(value, decimal.Decimal) for value in (start, *values[:1])):
        return start + sum(values)
    total = start
    for value in values:
        total = CONTEXT.add(value, total)
    return total


def _exactly(partials: list[float], value: float) -> None:
    """Add to parts that do not overlap, keeping every bit."""
    kept = 0
    for part in partials:
        if abs(value) < abs(part):
            value, part = part, value
        high = value + part
        low = part - (high - value)
        if low:
            partials[kept] = low
            kept += 1
        value = high
    partials[kept:] = [value]
