"""Aggregates computed on whole columns: counts, and sums and averages of integers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from millstream.streams.operators.aggregates.accumulator import Sum, ValueCount
from millstream.streams.operators.aggregates.catalogue import AggregateSpec, accumulator_of
from millstream.streams.operators.columns import ColumnRows, Longs, Numbers, SortedColumns, marks_of, numbers_of
from millstream.streams.operators.operator import Row

__all__ = ["ColumnCall", "ColumnCalls", "column_calls"]


class ColumnCall(NamedTuple):
    """A call that columns can answer: the place of its argument, None for COUNT(*), and the machine of a sum."""

    argument: int | None
    machine: Sum | None

    def count_values(self, sheet: SortedColumns, first: Longs, stop: Longs) -> tuple[Longs, Longs]:
        """How many values the rows from `first` up to `stop` have, and their sum; 0 where none is asked for."""
        counts = sheet.counts(self.argument, first, stop)
        if self.machine is None or self.argument is None:
            return counts, np.zeros_like(counts)
        return counts, sheet.totals(self.argument, first, stop)

    def results(self, counts: Longs, totals: Longs) -> Numbers:
        """What is told of so many values with that sum."""
        return Numbers(counts) if self.machine is None else self.machine.results(counts, totals)


class ColumnCalls(NamedTuple):
    """All calls of an operator, and the columns that they read: of `summed` the values, of `counted` what is NULL."""

    calls: tuple[ColumnCall, ...]
    summed: tuple[int, ...]
    counted: tuple[int, ...]

    def columns(self, rows: ColumnRows) -> dict[int, Numbers] | None:
        """What is read of rows; None where their types are others."""
        found = {place: Numbers(np.zeros(len(rows), np.int64), rows.validity_of(place)) for place in self.counted}
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
        if isinstance(machine, ValueCount):
            calls.append(ColumnCall(spec.arguments[0] if spec.arguments else None, None))
        elif isinstance(machine, Sum) and whole:
            calls.append(ColumnCall(spec.arguments[0], machine))
        else:
            return None
    summed = {one.argument for one in calls if one.argument is not None and one.machine is not None}
    counted = {one.argument for one in calls if one.argument is not None} - summed
    return ColumnCalls(tuple(calls), tuple(sorted(summed)), tuple(sorted(counted)))
