"""Aggregates that collect values: lists, texts, multisets, first and last, percentiles, histograms."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

from millstream.streams.operators.aggregates.accumulator import CONTEXT

__all__ = [
    "BinCounts",
    "Bits",
    "Chosen",
    "Collected",
    "DistinctEstimate",
    "KeptValues",
    "OneChosen",
    "OneValue",
    "Variance",
    "hashable",
    "json_array",
]


def hashable(value: Any) -> Any:
    """A value of a row as a key: lists and ROWs become tuples."""
    if isinstance(value, list | tuple):
        return tuple(hashable(item) for item in value)
    if isinstance(value, dict):
        return tuple((name, hashable(item)) for name, item in value.items())
    return value


_LONG_BITS = 64
_LARGEST_DECIMAL = 1e38
"""Beyond all numbers of 38 digits."""


class KeptValues:
    """All values in their order; `finish` makes the result of them. A value taken back is its latest equal.

    No values are NULL, unless `also_none`.
    """

    def __init__(self, finish: Callable[[list[Any]], Any], *, also_none: bool = False) -> None:
        self._finish = finish
        self._also_none = also_none

    def new(self) -> list[Any]:
        return []

    def add(self, state: list[Any], values: Sequence[Any]) -> list[Any]:
        state.extend(values)
        return state

    def retract(self, state: list[Any], values: Sequence[Any]) -> list[Any]:
        for value in values:
            for place in range(len(state) - 1, -1, -1):
                if state[place] == value:
                    del state[place]
                    break
        return state

    def merge(self, state: list[Any], other: list[Any]) -> list[Any]:
        state.extend(other)
        return state

    def result(self, state: list[Any]) -> Any:
        return self._finish(state) if state or self._also_none else None


class OneValue:
    """The first or the last value of rows that are never taken back. A state is the value in a tuple, or blank."""

    def __init__(self, *, last: bool) -> None:
        self._last = last

    def new(self) -> tuple[Any, ...]:
        return ()

    def add(self, state: tuple[Any, ...], values: Sequence[Any]) -> tuple[Any, ...]:
        if not values or (state and not self._last):
            return state
        return (values[-1] if self._last else values[0],)

    def merge(self, state: tuple[Any, ...], other: tuple[Any, ...]) -> tuple[Any, ...]:
        return self.add(state, other)

    def result(self, state: tuple[Any, ...]) -> Any:
        return state[0] if state else None


class Collected:
    """The multiset of all values: pairs of a value and its number."""

    def new(self) -> dict[Any, list[Any]]:
        return {}

    def add(self, state: dict[Any, list[Any]], values: Sequence[Any]) -> dict[Any, list[Any]]:
        for value in values:
            entry = state.setdefault(hashable(value), [value, 0])
            entry[1] += 1
        return state

    def retract(self, state: dict[Any, list[Any]], values: Sequence[Any]) -> dict[Any, list[Any]]:
        for value in values:
            key = hashable(value)
            entry = state.get(key)
            if entry is not None:
                entry[1] -= 1
                if not entry[1]:
                    del state[key]
        return state

    def merge(self, state: dict[Any, list[Any]], other: dict[Any, list[Any]]) -> dict[Any, list[Any]]:
        for key, (value, count) in other.items():
            entry = state.setdefault(key, [value, 0])
            entry[1] += count
        return state

    def result(self, state: dict[Any, list[Any]]) -> Any:
        return [(value, count) for value, count in state.values()]


class OneChosen:
    """As `Chosen` over rows that are never taken back: a state is the one pair, or None."""

    def __init__(self, *, largest: bool) -> None:
        self._largest = largest

    def new(self) -> tuple[Any, Any] | None:
        return None

    def add(self, state: tuple[Any, Any] | None, values: Sequence[tuple[Any, Any]]) -> tuple[Any, Any] | None:
        for pair in values:
            if pair[1] is not None and (state is None or self._is_better(pair[1], state[1])):
                state = pair
        return state

    def merge(self, state: tuple[Any, Any] | None, other: tuple[Any, Any] | None) -> tuple[Any, Any] | None:
        return state if other is None else self.add(state, (other,))

    def result(self, state: tuple[Any, Any] | None) -> Any:
        return None if state is None else state[0]

    def _is_better(self, key: Any, best: Any) -> bool:
        return bool(key > best if self._largest else key < best)


class Chosen:
    """The value beside the smallest or largest key (MIN_BY, MAX_BY): each value is a pair of value and key.

    Equal keys: the earlier row stays.
    """

    def __init__(self, *, largest: bool) -> None:
        self._largest = largest

    def new(self) -> list[tuple[Any, Any]]:
        return []

    def add(self, state: list[tuple[Any, Any]], values: Sequence[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
        state.extend(values)
        return state

    def retract(self, state: list[tuple[Any, Any]], values: Sequence[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
        for value in values:
            if value in state:
                state.remove(value)
        return state

    def merge(self, state: list[tuple[Any, Any]], other: list[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
        state.extend(other)
        return state

    def result(self, state: list[tuple[Any, Any]]) -> Any:
        keyed = [pair for pair in state if pair[1] is not None]
        if not keyed:
            return None
        return (max if self._largest else min)(keyed, key=lambda pair: pair[1])[0]


class Variance:
    """Variance or standard deviation, of a `sample` or of all. A state is (count, sum, sum of squares) of exact parts.

    Values are scaled to fractions of whole numbers, so that order does not matter. With a `scale` the result is a
    decimal number of so many digits behind the point; with `bits` a whole one that wraps there.
    """

    def __init__(self, *, sample: bool, root: bool, scale: int | None = None, bits: int | None = None) -> None:
        self._sample = sample
        self._root = root
        self._half = None if bits is None else 1 << bits - 1
        # As Java makes whole numbers of a double.
        self._largest = (1 << (63 if bits == _LONG_BITS else 31)) - 1
        self._unit = None if scale is None else Decimal(1).scaleb(-scale)

    def new(self) -> list[Any]:
        return [0, 0, 0, 1, 0]

    def add(self, state: list[Any], values: Sequence[Any]) -> list[Any]:
        return self._change(state, values, 1)

    def retract(self, state: list[Any], values: Sequence[Any]) -> list[Any]:
        return self._change(state, values, -1)

    def merge(self, state: list[Any], other: list[Any]) -> list[Any]:
        self._scale(state, other[3])
        factor = state[3] // other[3]
        return [
            state[0] + other[0],
            state[1] + other[1] * factor,
            state[2] + other[2] * factor * factor,
            state[3],
            state[4] + other[4],
        ]

    def result(self, state: list[Any]) -> float | Decimal | None:
        count, total, squares, unit, odd = state
        if count == 0 or (self._sample and count == 1):
            return None
        if odd:
            return float("nan")
        spread = (squares * count - total * total) / (unit * unit)
        found = spread / (count * (count - 1 if self._sample else count))
        number = math.sqrt(found) if self._root else float(found)
        if self._half is not None:
            return (int(min(number, self._largest)) + self._half) % (2 * self._half) - self._half
        if self._unit is None:
            return number
        return Decimal(number).quantize(self._unit, context=CONTEXT) if number < _LARGEST_DECIMAL else None

    def _change(self, state: list[Any], values: Sequence[Any], sign: int) -> list[Any]:
        for value in values:
            number = float(value)
            state[0] += sign
            if number - number != 0:
                state[4] += sign
                continue
            top, bottom = number.as_integer_ratio()
            self._scale(state, bottom)
            whole = top * (state[3] // bottom)
            state[1] += sign * whole
            state[2] += sign * whole * whole
        return state

    @staticmethod
    def _scale(state: list[Any], unit: int) -> None:
        """Make sure that the state counts in parts of `unit` or finer; both are powers of two."""
        if unit > state[3]:
            factor = unit // state[3]
            state[1], state[2], state[3] = state[1] * factor, state[2] * factor * factor, unit


class Bits:
    """BIT_AND, BIT_OR, BIT_XOR: how many values have each bit, so that values can be taken back."""

    def __init__(self, operator: str) -> None:
        self._operator = operator

    def new(self) -> list[Any]:
        return [0, [0] * 64]

    def add(self, state: list[Any], values: Sequence[int]) -> list[Any]:
        return self._change(state, values, 1)

    def retract(self, state: list[Any], values: Sequence[int]) -> list[Any]:
        return self._change(state, values, -1)

    def merge(self, state: list[Any], other: list[Any]) -> list[Any]:
        return [state[0] + other[0], [ours + theirs for ours, theirs in zip(state[1], other[1], strict=True)]]

    def result(self, state: list[Any]) -> int | None:
        count, having = state
        if not count:
            return None
        found = 0
        for bit, number in enumerate(having):
            if self._has(number, count):
                found |= 1 << bit
        return found - (1 << 64) if found >> 63 else found

    def _has(self, number: int, count: int) -> bool:
        match self._operator:
            case "BIT_AND":
                return number == count
            case "BIT_OR":
                return number > 0
            case _:
                return number % 2 == 1

    def _change(self, state: list[Any], values: Sequence[int], sign: int) -> list[Any]:
        for value in values:
            state[0] += sign
            for bit in range(64):
                if value >> bit & 1:
                    state[1][bit] += sign
        return state


class DistinctEstimate:
    """About how many different values there are; exact as long as there are few, since each is kept by its hash.

    Up to `EXACT` different values are counted exactly; behind it only every second, fourth, ... hash is kept, so that
    a group needs about 64 KiB at most and the relative error stays near 1 %.
    """

    EXACT = 4096

    def new(self) -> list[Any]:
        return [0, {}]

    def add(self, state: list[Any], values: Sequence[Any]) -> list[Any]:
        shift, kept = state
        for value in values:
            number = _hash_of(value)
            if number & (1 << shift) - 1 == 0:
                kept[number] = kept.get(number, 0) + 1
                while len(kept) > self.EXACT:
                    shift += 1
                    kept = {known: count for known, count in kept.items() if known & (1 << shift) - 1 == 0}
        return [shift, kept]

    def retract(self, state: list[Any], values: Sequence[Any]) -> list[Any]:
        kept = state[1]
        for value in values:
            number = _hash_of(value)
            if number in kept:
                kept[number] -= 1
                if not kept[number]:
                    del kept[number]
        return state

    def merge(self, state: list[Any], other: list[Any]) -> list[Any]:
        shift = max(state[0], other[0])
        kept: dict[int, int] = {}
        for part in (state[1], other[1]):
            for number, count in part.items():
                if number & (1 << shift) - 1 == 0:
                    kept[number] = kept.get(number, 0) + count
        return [shift, kept]

    def result(self, state: list[Any]) -> int:
        shift, kept = state
        return int(len(kept) << shift)


class BinCounts:
    """How many values fall into each of `bins` bins of one width between `low` and `high`; the ends take what is
    beyond them."""

    def __init__(self, low: float, high: float, bins: int) -> None:
        self._low = low
        self._width = (high - low) / bins
        self._bins = bins

    def new(self) -> list[int]:
        return [0] * self._bins

    def add(self, state: list[int], values: Sequence[Any]) -> list[int]:
        return self._change(state, values, 1)

    def retract(self, state: list[int], values: Sequence[Any]) -> list[int]:
        return self._change(state, values, -1)

    def merge(self, state: list[int], other: list[int]) -> list[int]:
        return [ours + theirs for ours, theirs in zip(state, other, strict=True)]

    def result(self, state: list[int]) -> list[int] | None:
        return list(state) if any(state) else None

    def _change(self, state: list[int], values: Sequence[Any], sign: int) -> list[int]:
        for value in values:
            place = math.floor((float(value) - self._low) / self._width)
            state[min(max(place, 0), self._bins - 1)] += sign
        return state


def _hash_of(value: Any) -> int:
    """64 bits that are the same in every process, whatever Python's hash seed."""
    text = value if isinstance(value, bytes) else repr(value).encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")


def json_array(values: list[Any]) -> str:
    """The values as a JSON array."""
    return json.dumps(values, ensure_ascii=False, separators=(",", ":"), default=str)
