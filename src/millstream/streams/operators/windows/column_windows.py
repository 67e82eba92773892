"""Windows that begin and end within one turn, by column: they are said at once, and nothing is kept of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import numpy as np

from millstream.streams.operators.aggregates.catalogue import AggregateSpec
from millstream.streams.operators.column_calls import ColumnCalls, column_calls
from millstream.streams.operators.columns import ColumnRows, Longs, Numbers, SelectedRows
from millstream.streams.operators.sorted_columns import KeyedColumns, SortedColumns, sort_columns
from millstream.streams.operators.windows.window_times import Hopping, Slicing, last_moment

__all__ = ["ClosedWindows", "ColumnWindows"]

_EXTREMES: Final = {"MIN": np.minimum, "MAX": np.maximum}


class ClosedWindows(NamedTuple):
    """What is said of windows that are over, and the places of the rows that are in others."""

    rows: SelectedRows
    left: Longs


class ColumnWindows:
    """Tumbling windows whose calls columns can answer: COUNT, SUM and AVG of whole numbers, MIN and MAX of times too.

    Arguments as of `Windower`. Raises ValueError for other windows and calls.
    """

    def __init__(self, keys: int, specs: Sequence[AggregateSpec], time: int, slicing: Slicing | None) -> None:
        if not isinstance(slicing, Hopping) or slicing.size_us != slicing.slide_us:
            raise ValueError(f"{slicing} does not tumble")
        extremes = {number for number, spec in enumerate(specs) if _is_extreme(spec)}
        calls = column_calls([spec for number, spec in enumerate(specs) if number not in extremes])
        if calls is None:
            raise ValueError("columns do not answer all calls")
        self._keys = keys
        self._time = time
        self._slicing = slicing
        self._calls: ColumnCalls = calls
        self._extremes = {number: (specs[number].function, specs[number].arguments[0]) for number in sorted(extremes)}

    def close(self, rows: ColumnRows, is_whole: Callable[[int], bool]) -> ClosedWindows | None:
        """What is said of the windows whose starts `is_whole` takes; None where only rows tell it."""
        keys, times = rows.keys(range(self._keys)), rows.numbers(self._time)
        columns = self._calls.columns(rows)
        extremes = [rows.numbers(place) for _, place in self._extremes.values()]
        if keys is None or times is None or columns is None or None in extremes:
            return None
        starts = times.values - (times.values - self._slicing.offset_us) % self._slicing.size_us
        has_time = np.ones(len(rows), np.bool_) if times.known is None else times.known
        found = np.unique(starts[has_time])
        over = found[np.array([is_whole(start) for start in found.tolist()], np.bool_)]
        is_over = has_time & np.isin(starts, over)
        places = np.flatnonzero(is_over)
        if not len(places):
            return None
        # Each window of each key has a number of its own.
        numbers = np.searchsorted(over, starts[places]) * len(keys.keys) + keys.places[places]
        part = KeyedColumns(numbers, starts[places], {place: one.at(places) for place, one in columns.items()})
        sheet = sort_columns(range(len(over) * len(keys.keys)), [part])
        if sheet is None:
            return None
        told = self._compute_calls(sheet, [one.at(places[sheet.order]) for one in extremes if one is not None])
        first = sheet.times[sheet.starts]
        end = first + self._slicing.size_us
        bounds = (Numbers(first), Numbers(end), Numbers(end - (end[0] - last_moment(end[0]))))
        said = SelectedRows(rows, (), places[sheet.order[sheet.starts]], self._keys, (*told, *bounds))
        return ClosedWindows(said, np.flatnonzero(has_time & ~is_over))

    def _compute_calls(self, sheet: SortedColumns, extremes: Sequence[Numbers]) -> list[Numbers]:
        """The results of all calls, in their order."""
        told = [call.results(*call.count_values(sheet, sheet.starts, sheet.ends)) for call in self._calls.calls]
        for (number, (function, _)), column in zip(self._extremes.items(), extremes, strict=True):
            told.insert(number, _extreme(function, column, sheet))
        return told


def _is_extreme(spec: AggregateSpec) -> bool:
    return spec.function in _EXTREMES and spec.filter is None and spec.user is None


def _extreme(function: str, column: Numbers, sheet: SortedColumns) -> Numbers:
    choose = _EXTREMES[function]
    if column.known is None:
        return Numbers(choose.reduceat(column.values, sheet.starts))
    least, largest = np.iinfo(np.int64).min, np.iinfo(np.int64).max
    values = np.where(column.known, column.values, largest if function == "MIN" else least)
    known = np.logical_or.reduceat(column.known, sheet.starts)
    found = choose.reduceat(values, sheet.starts)
    return Numbers(np.where(known, found, 0), None if known.all() else known)
