"""All aggregates of one group: rows added and retracted, results, and distinct values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Protocol

from millstream.streams.operators.aggregates.accumulator import Accumulator, Sum, ValueCount
from millstream.streams.operators.aggregates.catalogue import AggregateSpec, accumulator_of, retractable_of
from millstream.streams.operators.aggregates.collected import hashable
from millstream.streams.operators.operator import Row

__all__ = ["Counts", "Group", "GroupMachine", "Seen"]

Group = list[Any]
"""State of a group: how many rows it has, then one state per call; that of a distinct call is (values, inner state)."""


class Counts(Protocol):
    """Different values with their numbers: a dict, or what keeps each of them by itself."""

    def get(self, key: Any) -> list[Any] | None: ...

    def __setitem__(self, key: Any, entry: list[Any]) -> None: ...

    def __delitem__(self, key: Any) -> None: ...


Seen = Callable[[Iterable[Any]], list[Any]]
"""Takes values into a set that only grows; gives those that are new, each once. Raises TypeError for a list or dict."""


class GroupMachine:
    """Works on groups; `changing` where rows may be taken back."""

    def __init__(self, specs: Sequence[AggregateSpec], *, changing: bool) -> None:
        self._specs = tuple(specs)
        self._changing = changing
        self._machines = [accumulator_of(spec, changing=changing) for spec in specs]
        # Place in the group, what reads the values, the machine, whether only different values count.
        self._calls = [
            (place, _reader(spec), machine, spec.distinct)
            for place, (spec, machine) in enumerate(zip(self._specs, self._machines, strict=True), start=1)
        ]
        self._retracts = [
            (place, _reader(spec), retractable_of(spec), spec.distinct)
            for place, spec in enumerate(self._specs if changing else (), start=1)
        ]
        self._runs = [_shortcut_of(spec, machine) for spec, machine in zip(self._specs, self._machines, strict=True)]
        self.distinct = tuple(place for place, spec in enumerate(self._specs, start=1) if spec.distinct)

    def new(self) -> Group:
        """A group without rows."""
        if not self.distinct:
            return [0, *[machine.new() for machine in self._machines]]
        return [0, *(self._fresh(place) for place in range(len(self._specs)))]

    def add(self, group: Group, rows: Sequence[Row]) -> None:
        """Take rows into the group."""
        group[0] += len(rows)
        for place, read, machine, distinct in self._calls:
            values = read(rows)
            if distinct:
                counts, inner = group[place]
                if come := self._first_seen(counts, values):
                    group[place] = (counts, machine.add(inner, come))
            elif values:
                group[place] = machine.add(group[place], values)

    def running(self, group: Group, rows: Sequence[Row]) -> list[Sequence[Any]]:
        """Take rows into the group one after the other; for each call its values behind each of them."""
        group[0] += len(rows)
        columns: list[Sequence[Any]] = []
        for place, read, machine, distinct in self._calls:
            run = self._runs[place - 1]
            if run is not None:
                group[place], values = run(group[place], rows)
            else:
                values = [self._after(group, place, read((row,)), machine, distinct) for row in rows]
            columns.append(values)
        return columns

    def _after(self, group: Group, place: int, values: Sequence[Any], machine: Accumulator, distinct: bool) -> Any:
        """The value of one call behind one row more."""
        if distinct:
            counts, inner = group[place]
            group[place] = (counts, machine.add(inner, self._first_seen(counts, values)))
            return machine.result(group[place][1])
        if values:
            group[place] = machine.add(group[place], values)
        return machine.result(group[place])

    def retract(self, group: Group, rows: Sequence[Row]) -> None:
        """Take rows back that were in the group."""
        assert self._changing
        group[0] -= len(rows)
        for place, read, machine, distinct in self._retracts:
            values = read(rows)
            if distinct:
                counts, inner = group[place]
                group[place] = (counts, machine.retract(inner, _last_gone(counts, values)))
            elif values:
                group[place] = machine.retract(group[place], values)

    def merge(self, groups: Sequence[Group]) -> Group:
        """One group of several, which stay as they are."""
        if len(groups) == 1:
            return groups[0]
        whole = self.new()
        for group in groups:
            whole[0] += group[0]
            for place, (spec, machine) in enumerate(zip(self._specs, self._machines, strict=True), start=1):
                if spec.distinct:
                    counts, inner = whole[place]
                    come = [value for value in group[place][0] if value not in counts]
                    for value, (plain, number) in group[place][0].items():
                        entry = counts.setdefault(value, [plain, 0])
                        entry[1] += number
                    plains = [group[place][0][value][0] for value in come]
                    whole[place] = (counts, machine.add(inner, plains))
                else:
                    whole[place] = machine.merge(whole[place], group[place])
        return whole

    def results(self, group: Group) -> Row:
        """The value of each call."""
        return tuple(
            [
                machine.result(group[place][1] if distinct else group[place])
                for place, _, machine, distinct in self._calls
            ]
        )

    def _fresh(self, place: int) -> Any:
        state = self._machines[place].new()
        return ({}, state) if self._specs[place].distinct else state

    def _first_seen(self, counts: Counts | Seen, values: Sequence[Any]) -> list[Any]:
        """The values that were not there before; where values may go again, all are counted."""
        if callable(counts):
            try:
                return counts(values)
            except TypeError:
                plain = {hashable(value): value for value in reversed(values)}
                return [plain[key] for key in counts(map(hashable, values))]
        come = []
        for value in values:
            key = hashable(value) if isinstance(value, list | dict | tuple) else value
            entry = counts.get(key)
            if entry is None:
                counts[key] = [value, 1]
                come.append(value)
            elif self._changing:
                entry[1] += 1
                counts[key] = entry
        return come


_Run = Callable[[Any, Sequence[Row]], tuple[Any, Sequence[Any]]]
"""From a state and rows to the state behind them, and the results behind each."""


def _shortcut_of(spec: AggregateSpec, machine: Accumulator) -> _Run | None:
    """A shorter way through rows one by one, for counts and sums of whole numbers; None where there is none."""
    if spec.distinct or spec.filter is not None:
        return None
    if isinstance(machine, ValueCount) and not spec.arguments:
        return lambda state, rows: (state + len(rows), range(state + 1, state + len(rows) + 1))
    if isinstance(machine, Sum) and spec.argument_type is not None and spec.argument_type.is_integer:
        return partial(_run_of_sums, machine, spec.arguments[0])
    return None


def _run_of_sums(machine: Sum, place: int, state: tuple[int, int], rows: Sequence[Row]) -> tuple[Any, Sequence[Any]]:
    count, total = state
    result, results = machine.result, []
    for row in rows:
        value = row[place]
        if value is not None:
            count += 1
            total += value
        results.append(result((count, total)))
    return (count, total), results


def _reader(spec: AggregateSpec) -> Callable[[Sequence[Row]], Sequence[Any]]:
    """What a call counts of rows: values that are not NULL of rows that its filter lets through."""
    condition = spec.filter

    def filter_rows(rows: Sequence[Row]) -> Sequence[Row]:
        return rows if condition is None else [row for row in rows if row[condition]]

    if spec.user is not None:
        places = spec.arguments
        return lambda rows: [tuple([row[one] for one in places]) for row in filter_rows(rows)]
    match spec.arguments:
        case ():
            return filter_rows
        case (place,) if spec.takes_nulls:
            return lambda rows: [row[place] for row in filter_rows(rows)]
        case (place,) if condition is None:
            return lambda rows: [value for row in rows if (value := row[place]) is not None]
        case (place,):
            return lambda rows: [value for row in filter_rows(rows) if (value := row[place]) is not None]
        case (key, value) if spec.leaves_null_values:
            return lambda rows: [
                (row[key], row[value]) for row in filter_rows(rows) if row[key] is not None and row[value] is not None
            ]
        case places:
            return lambda rows: [
                values for row in filter_rows(rows) if (values := tuple(row[one] for one in places))[0] is not None
            ]


def _last_gone(counts: Counts, values: Sequence[Any]) -> list[Any]:
    """The values of which none is left; all are counted."""
    gone = []
    for value in values:
        key = hashable(value)
        entry = counts.get(key)
        if entry is not None:
            entry[1] -= 1
            if entry[1]:
                counts[key] = entry
            else:
                del counts[key]
                gone.append(value)
    return gone
