"""Online anomaly scores that learn from earlier rows. Pure and deterministic.

Each machine is a `Placed` of `streams.operators.over_frames`: a state is never changed in place. A value is scored by
what came before it, then learned. NULL and what is no finite number are not learned and have no score.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from millstream.streams.operators.operator import Row

__all__ = ["DEFAULT_WARM_UP", "Ewma", "EwmaScore", "Value", "ZScore", "value_of"]

DEFAULT_WARM_UP: Final = 10
"""Values that ZSCORE and EWMA_SCORE learn before they score one."""

Value = Callable[[Row], float | None]
"""What a score reads of a row; None where there is nothing to learn."""


def value_of(place: int) -> Value:
    """The finite number at a place of a row."""

    def value(row: Row) -> float | None:
        return finite(row[place])

    return value


def finite(given: Any) -> float | None:
    """The number as a float; None for NULL, NaN and infinities."""
    if given is None:
        return None
    number = float(given)
    return number if math.isfinite(number) else None


class Moments(NamedTuple):
    """How many values there were, their mean, and their spread: a sum of squares, or a weighted variance."""

    seen: int = 0
    mean: float = 0.0
    spread: float = 0.0


class ZScore:
    """How many standard deviations (of the sample) a value is from the mean of those before it: Welford's sums.

    NULL until there were `warm_up` values. Where all were equal, an equal value has 0 and any other one is infinitely
    far.
    """

    def __init__(self, value: Value, warm_up: int = DEFAULT_WARM_UP) -> None:
        self._value = value
        self._warm_up = warm_up

    def new(self) -> Moments:
        return Moments()

    def next(self, state: Moments, row: Row, key: Any) -> tuple[Moments, float | None]:
        value = self._value(row)
        if value is None:
            return state, None
        count, mean, squares = state
        off = value - mean
        score = _in_deviations(off, squares / (count - 1)) if count >= self._warm_up else None
        mean += off / (count + 1)
        return Moments(count + 1, mean, squares + off * (value - mean)), score


class Ewma:
    """The exponentially weighted mean up to the row: `weight` of the value and the rest of the mean before it."""

    def __init__(self, value: Value, weight: float) -> None:
        self._value = value
        self._weight = weight

    def new(self) -> float | None:
        return None

    def next(self, state: float | None, row: Row, key: Any) -> tuple[float | None, float | None]:
        value = self._value(row)
        if value is None:
            return state, state
        mean = value if state is None else state + self._weight * (value - state)
        return mean, mean


class EwmaScore:
    """As ZSCORE with mean and variance that forget: each value counts `weight`, what came before it the rest.

    The variance is West's: v' = (1 - weight) * (v + weight * off^2), which begins with 0.
    """

    def __init__(self, value: Value, weight: float, warm_up: int = DEFAULT_WARM_UP) -> None:
        self._value = value
        self._weight = weight
        self._warm_up = warm_up

    def new(self) -> Moments:
        return Moments()

    def next(self, state: Moments, row: Row, key: Any) -> tuple[Moments, float | None]:
        value = self._value(row)
        if value is None:
            return state, None
        count, mean, variance = state
        if not count:
            return Moments(1, value, 0.0), None
        off, weight = value - mean, self._weight
        score = _in_deviations(off, variance) if count >= self._warm_up else None
        return Moments(count + 1, mean + weight * off, (1 - weight) * (variance + weight * off * off)), score


def _in_deviations(off: float, variance: float) -> float:
    if variance > 0:
        return off / math.sqrt(variance)
    return 0.0 if off == 0 else math.copysign(math.inf, off)
