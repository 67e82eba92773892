"""OVER by column: counts, sums and averages of whole numbers of all partitions of a turn at once."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from millstream.streams.operators.aggregates.accumulator import Count, Sum
from millstream.streams.operators.aggregates.catalogue import AggregateSpec, accumulator_of
from millstream.streams.operators.changes import Row
from millstream.streams.operators.columns import (
    LARGEST,
    ColumnRows,
    Flags,
    Longs,
    Numbers,
    TakenRows,
    joined,
    marks_of,
    numbers_of,
    starts_of,
)
from millstream.streams.operators.row_keys import RowKey

__all__ = ["Arrived", "ColumnCall", "ColumnCalls", "Part", "Parts", "Sheet", "column_calls", "sheet_of"]


class ColumnCall(NamedTuple):
    """A call that columns can answer: the place of its argument, None for COUNT(*), and the machine of a sum."""

    argument: int | None
    machine: Sum | None

    def counted(self, sheet: Sheet, first: Longs, stop: Longs) -> tuple[Longs, Longs]:
        """How many values the rows from `first` up to `stop` have, and their sum; 0 where none is asked for."""
        counts = sheet.counts(self.argument, first, stop)
        if self.machine is None or self.argument is None:
            return counts, np.zeros_like(counts)
        return counts, sheet.totals(self.argument, first, stop)

    def results(self, counts: Longs, totals: Longs) -> Numbers:
        """What is told of so many values with that sum."""
        return Numbers(counts) if self.machine is None else self.machine.results(counts, totals)


class ColumnCalls(NamedTuple):
    """All calls of an OVER, and the columns that they read: those that are summed, and those of which NULLs count."""

    calls: tuple[ColumnCall, ...]
    summed: tuple[int, ...]
    counted: tuple[int, ...]

    def columns(self, rows: ColumnRows) -> dict[int, Numbers] | None:
        """What is read of rows; None where their types are others."""
        found = {place: Numbers(np.zeros(len(rows), np.int64), rows.known(place)) for place in self.counted}
        for place in self.summed:
            numbers = rows.numbers(place)
            if numbers is None:
                return None
            found[place] = numbers
        return found

    def of_rows(self, rows: Sequence[Row]) -> dict[int, Numbers]:
        """What is read of rows that are tuples."""
        found = {place: marks_of(rows, place) for place in self.counted}
        return found | {place: numbers_of(rows, place) for place in self.summed}


def column_calls(specs: Sequence[AggregateSpec]) -> ColumnCalls | None:
    """The calls where columns can answer all of them: COUNT, and SUM and AVG of whole numbers; else None."""
    calls = []
    for spec in specs:
        machine = accumulator_of(spec, changing=False) if spec.user is None else None
        whole = spec.argument_type is not None and spec.argument_type.is_integer and spec.type.is_integer
        if spec.distinct or spec.filter is not None or len(spec.arguments) > 1:
            return None
        if isinstance(machine, Count):
            calls.append(ColumnCall(spec.arguments[0] if spec.arguments else None, None))
        elif isinstance(machine, Sum) and whole:
            calls.append(ColumnCall(spec.arguments[0], machine))
        else:
            return None
    summed = {one.argument for one in calls if one.argument is not None and one.machine is not None}
    counted = {one.argument for one in calls if one.argument is not None} - summed
    return ColumnCalls(tuple(calls), tuple(sorted(summed)), tuple(sorted(counted)))


@dataclass(frozen=True, slots=True)
class Arrived:
    """Rows whose time has come: those that have waited, and those at `places` of a turn's."""

    waited: list[Row]
    rows: ColumnRows
    places: Longs

    def listed(self) -> list[Row]:
        """All of them as tuples."""
        return [*self.waited, *self.rows.at(self.places)]

    def taken(self, order: Longs, width: int, columns: tuple[Numbers, ...]) -> TakenRows:
        """Those that stand at the places of `order`, where the ones that have waited come first."""
        places = np.concatenate((np.arange(len(self.waited)) + len(self.rows), self.places))
        return TakenRows(self.rows, self.waited, places[order], width, columns)

    def parts(self, key: RowKey, partition: Sequence[int], time: int, calls: ColumnCalls) -> Parts | None:
        """What an OVER reads of them; None where their types are others."""
        found, columns, times = self.rows.keys(partition), calls.columns(self.rows), self.rows.numbers(time)
        if found is None or columns is None or times is None:
            return None
        at = self.places
        come = Part(found.places[at], times.values[at], {place: one.at(at) for place, one in columns.items()})
        numbers = {one: number for number, one in enumerate(found.keys)}
        of_waited = [numbers.setdefault(key(row), len(numbers)) for row in self.waited]
        waited = Part(np.array(of_waited, np.int64), numbers_of(self.waited, time).values, calls.of_rows(self.waited))
        return Parts(list(numbers), [waited, come])


class Parts(NamedTuple):
    """Keys, and rows that have them: first those that have waited."""

    keys: list[Hashable]
    parts: list[Part]


class Part(NamedTuple):
    """Some rows by column: the place of each row's key, its time, and columns by their place in rows."""

    keys: Longs
    times: Longs
    columns: dict[int, Numbers]


@dataclass(frozen=True, slots=True)
class Sheet:
    """Rows in the order of their keys and times: those of `keys[n]` from `starts[n]` up to `ends[n]`.

    `order` says where each of them stood before; `groups` is the number of its key.
    """

    keys: list[Hashable]
    starts: Longs
    ends: Longs
    groups: Longs
    order: Longs
    times: Longs
    columns: dict[int, Numbers]
    _sums: dict[tuple[str, int], Longs] = field(default_factory=dict)

    def counts(self, place: int | None, first: Longs, stop: Longs) -> Longs:
        """How many rows from one up to another are not NULL in a column, or are there."""
        known = None if place is None else self.columns[place].known
        if place is None or known is None:
            return stop - first
        return self._between("known", place, known, first, stop)

    def totals(self, place: int, first: Longs, stop: Longs) -> Longs:
        """The sums of a column over the rows from one up to another."""
        return self._between("values", place, self.columns[place].values, first, stop)

    def _between(self, what: str, place: int, values: Longs | Flags, first: Longs, stop: Longs) -> Longs:
        sums = self._sums.get((what, place))
        if sums is None:
            sums = self._sums[what, place] = np.concatenate(([0], np.cumsum(values, dtype=np.int64)))
        total: Longs = sums[stop] - sums[first]
        return total

    def peer_ends(self) -> Longs:
        """Behind which row those end that have the same key and time."""
        runs = np.concatenate(([True], (self.groups[1:] != self.groups[:-1]) | (self.times[1:] != self.times[:-1])))
        ends = np.append(np.flatnonzero(runs)[1:], len(runs))
        behind: Longs = ends[np.cumsum(runs) - 1]
        return behind

    def range_starts(self, preceding_us: int) -> Longs | None:
        """The first row of each row's key whose time is not more than that before; None for times too far apart."""
        earliest = int(self.times.min())
        span = int(self.times.max()) - earliest + preceding_us + 1
        if span * len(self.keys) >= LARGEST:
            return None
        places = self.groups * span + (self.times - earliest)
        first: Longs = np.searchsorted(places, places - preceding_us).astype(np.int64)
        return first

    def row_starts(self, preceding: int) -> Longs:
        """The row so many before each row, or the first of its key."""
        return np.maximum(np.arange(len(self.order)) - preceding, self.starts[self.groups])


def sheet_of(keys: Sequence[Hashable], parts: Sequence[Part]) -> Sheet | None:
    """The rows of all parts, equal ones in this order; None where a sum might leave 64 bits."""
    places = np.concatenate([part.keys for part in parts])
    times = np.concatenate([part.times for part in parts])
    columns = {place: joined([part.columns[place] for part in parts]) for place in parts[0].columns}
    if any(_largest(one.values) * len(places) >= LARGEST for one in columns.values()):
        return None
    order = np.lexsort((times, places))
    places = places[order]
    starts = starts_of(places)
    ends = np.append(starts[1:], len(places))
    sorted_columns = {place: one.at(order) for place, one in columns.items()}
    found = [keys[place] for place in places[starts].tolist()]
    groups = np.repeat(np.arange(len(starts)), ends - starts)
    return Sheet(found, starts, ends, groups, order, times[order], sorted_columns)


def _largest(values: Longs) -> int:
    """The greatest distance from 0, and one more for that below it."""
    return max(int(values.max(initial=0)), -int(values.min(initial=0)))
