"""OVER frames: aggregates over a moving frame, and positions in the partition."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

from millstream.streams.learning.scoring import SCORES, score_of
from millstream.streams.operators.aggregates.accumulator import Accumulator, Retractable, Sum
from millstream.streams.operators.aggregates.catalogue import AggregateSpec, accumulator_of
from millstream.streams.operators.aggregates.group import GroupMachine
from millstream.streams.operators.operator import Row

__all__ = ["OF_THE_PLACE", "Placed", "Sliding", "placed_of", "rank_rows", "sliding_of"]

OF_THE_PLACE: Final = ("ROW_NUMBER", "RANK", "DENSE_RANK", "LAG", *SCORES)
"""Functions that no frame changes."""

_IN_ORDER: Final = ("LISTAGG", "ARRAY_AGG", "JSON_ARRAYAGG", "JSON_OBJECTAGG", "MIN_BY", "MAX_BY", "PERCENTILE")
"""Aggregates that are rebuilt of a frame's rows: what leaves first has to be the oldest of equal values."""


class Sliding(Protocol):
    """One aggregate over a frame that rows enter at its end and leave at its start."""

    def enter(self, row: Row) -> None: ...

    def leave(self, row: Row) -> None:
        """The oldest row goes."""
        ...

    def result(self) -> Any: ...


class _Sums:
    """What can be taken back by itself: counts, sums, variances, distinct values."""

    def __init__(self, spec: AggregateSpec) -> None:
        self._machine = GroupMachine((spec,), changing=True)
        self._group = self._machine.new()

    def enter(self, row: Row) -> None:
        self._machine.add(self._group, (row,))

    def leave(self, row: Row) -> None:
        self._machine.retract(self._group, (row,))

    def result(self) -> Any:
        return self._machine.results(self._group)[0]


class _FilteredCount:
    """COUNT(*) and COUNT of a column."""

    def __init__(self, place: int | None) -> None:
        self._place = place
        self._count = 0

    def enter(self, row: Row) -> None:
        if self._place is None or row[self._place] is not None:
            self._count += 1

    def leave(self, row: Row) -> None:
        if self._place is None or row[self._place] is not None:
            self._count -= 1

    def result(self) -> int:
        return self._count


class _Total:
    """SUM and AVG of whole numbers, whose state is how many and how much."""

    def __init__(self, spec: AggregateSpec, machine: Sum) -> None:
        self._place = spec.arguments[0]
        self._machine = machine
        self._count = 0
        self._total: Any = 0

    def enter(self, row: Row) -> None:
        value = row[self._place]
        if value is not None:
            self._count += 1
            self._total += value

    def leave(self, row: Row) -> None:
        value = row[self._place]
        if value is not None:
            self._count -= 1
            self._total -= value

    def result(self) -> Any:
        return self._machine.result((self._count, self._total))


class _Values:
    """Everything else: the values of the frame, of which the result is made."""

    def __init__(self, spec: AggregateSpec) -> None:
        self._spec = spec
        self._values: deque[Any] = deque()
        self._finish = _finish(spec)

    def enter(self, row: Row) -> None:
        value = _value(self._spec, row)
        if self._is_one(value, row):
            self._values.append(value)

    def leave(self, row: Row) -> None:
        if self._is_one(_value(self._spec, row), row):
            self._values.popleft()

    def _is_one(self, value: Any, row: Row) -> bool:
        """Whether a value counts: NULL does where the aggregate takes it and its filter lets the row through."""
        if value is not None:
            return not (self._spec.leaves_null_values and value[1] is None)
        return self._spec.takes_nulls and (self._spec.filter is None or bool(row[self._spec.filter]))

    def result(self) -> Any:
        return self._finish(self._values) if self._values else None


class _Extreme:
    """MIN and MAX: the values of which none that came later is better, so that the best stands first."""

    def __init__(self, spec: AggregateSpec) -> None:
        self._spec = spec
        self._largest = spec.function == "MAX"
        self._best: deque[Any] = deque()

    def enter(self, row: Row) -> None:
        value = _value(self._spec, row)
        if value is None:
            return
        best = self._best
        if self._largest:
            while best and best[-1] < value:
                best.pop()
        else:
            while best and best[-1] > value:
                best.pop()
        best.append(value)

    def leave(self, row: Row) -> None:
        if self._best and self._best[0] == _value(self._spec, row):
            self._best.popleft()

    def result(self) -> Any:
        return self._best[0] if self._best else None


class _UserValues:
    """A user's aggregate that cannot take a row back: it is rebuilt of the frame's rows."""

    def __init__(self, spec: AggregateSpec) -> None:
        self._machine = GroupMachine((spec,), changing=False)
        self._rows: deque[Row] = deque()

    def enter(self, row: Row) -> None:
        self._rows.append(row)

    def leave(self, row: Row) -> None:
        self._rows.popleft()

    def result(self) -> Any:
        group = self._machine.new()
        self._machine.add(group, self._rows)
        return self._machine.results(group)[0]


def sliding_of(spec: AggregateSpec) -> Sliding:
    """The aggregate over a frame without rows."""
    if spec.user is not None and not isinstance(accumulator_of(spec, changing=True), Retractable):
        return _UserValues(spec)
    if spec.function == "COUNT" and not spec.distinct and spec.filter is None and len(spec.arguments) < 2:
        return _FilteredCount(spec.arguments[0] if spec.arguments else None)
    if spec.function in ("MIN", "MAX"):
        return _Extreme(spec)
    if spec.function in ("FIRST_VALUE", "LAST_VALUE") or (spec.function in _IN_ORDER and not spec.distinct):
        return _Values(spec)
    machine = accumulator_of(spec, changing=True)
    whole = spec.argument_type is not None and spec.argument_type.is_integer
    if whole and isinstance(machine, Sum) and not spec.distinct and spec.filter is None:
        return _Total(spec, machine)
    return _Sums(spec)


def _value(spec: AggregateSpec, row: Row) -> Any:
    """What a call reads of a row; None where it reads nothing."""
    if spec.filter is not None and not row[spec.filter]:
        return None
    first = row[spec.arguments[0]]
    if first is None or len(spec.arguments) == 1:
        return first
    return tuple(row[place] for place in spec.arguments)


def _finish(spec: AggregateSpec) -> Callable[[deque[Any]], Any]:
    if spec.function == "FIRST_VALUE":
        return lambda values: values[0]
    if spec.function == "LAST_VALUE":
        return lambda values: values[-1]
    machine: Accumulator = accumulator_of(spec, changing=True)
    return lambda values: machine.result(machine.add(machine.new(), list(values)))


class Placed(Protocol):
    """A function of the place. A state is a plain value that is never changed in place."""

    def new(self) -> Any: ...

    def next(self, state: Any, row: Row, key: Any) -> tuple[Any, Any]:
        """The state with a row behind the others, sorted by `key`; and the row's result."""
        ...


class _Number:
    """ROW_NUMBER; a state is the number of rows."""

    def new(self) -> int:
        return 0

    def next(self, state: int, row: Row, key: Any) -> tuple[int, int]:
        return state + 1, state + 1


class _Rank:
    """RANK and DENSE_RANK; a state is (rows, rank, key of the last row)."""

    def __init__(self, *, dense: bool) -> None:
        self._dense = dense

    def new(self) -> tuple[int, int, Any]:
        return 0, 0, None

    def next(self, state: tuple[int, int, Any], row: Row, key: Any) -> tuple[tuple[int, int, Any], int]:
        count, rank, last = state
        if count == 0 or key != last:
            rank = rank + 1 if self._dense else count + 1
        return (count + 1, rank, key), rank


class _Lag:
    """LAG; a state is the values of the last rows, the oldest first."""

    def __init__(self, spec: AggregateSpec) -> None:
        self._value = spec.arguments[0]
        self._offset = int(spec.literals[0]) if spec.literals else 1
        self._otherwise = spec.literals[1] if len(spec.literals) > 1 else None
        self._otherwise_place = spec.arguments[1] if len(spec.arguments) > 1 else None

    def new(self) -> tuple[Any, ...]:
        return ()

    def next(self, state: tuple[Any, ...], row: Row, key: Any) -> tuple[tuple[Any, ...], Any]:
        state = (*state, row[self._value])
        if len(state) > self._offset:
            return state[1:] if self._offset else (), state[0]
        place = self._otherwise_place
        return state, self._otherwise if place is None else row[place]


def placed_of(spec: AggregateSpec) -> Placed:
    """The machine of a function of the place."""
    match spec.function:
        case "ROW_NUMBER":
            return _Number()
        case "LAG":
            return _Lag(spec)
        case score if score in SCORES:
            return score_of(spec)
        case _:
            return _Rank(dense=spec.function == "DENSE_RANK")


def rank_rows(spec: AggregateSpec, rows: Sequence[Row], order: Callable[[Row], Any]) -> list[Any]:
    """The results of a function of the place for all rows of a partition, which stand in that order."""
    machine = placed_of(spec)
    state, values = machine.new(), []
    for row in rows:
        state, value = machine.next(state, row, order(row))
        values.append(value)
    return values
