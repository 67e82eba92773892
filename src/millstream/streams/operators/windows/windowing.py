"""GROUP BY with a window: partial aggregates per slice, combined when the watermark passes the window end."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NamedTuple

import numpy as np

from millstream.streams.operators.aggregates.catalogue import AggregateSpec
from millstream.streams.operators.aggregates.group import Group, GroupMachine
from millstream.streams.operators.column_calls import ColumnCalls, column_calls
from millstream.streams.operators.columns import (
    ColumnRows,
    KeyedColumns,
    Longs,
    Numbers,
    SelectedRows,
    SortedColumns,
    sort_columns,
)
from millstream.streams.operators.grouping import by_key
from millstream.streams.operators.operator import BatchTimes, Changes, OperatorOutput, Row
from millstream.streams.operators.state import GroupedTable, KeyedTable, KeyTimers, OperatorState
from millstream.streams.operators.windows.window_times import Hopping, Slicing, Span, last_moment

__all__ = ["ClosedWindows", "ColumnWindows", "EmitStrategy", "Windower"]


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
        results = self._compute_calls(sheet, [one.at(places[sheet.order]) for one in extremes if one is not None])
        first = sheet.times[sheet.starts]
        end = first + self._slicing.size_us
        bounds = (Numbers(first), Numbers(end), Numbers(end - (end[0] - last_moment(end[0]))))
        selected = SelectedRows(rows, (), places[sheet.order[sheet.starts]], self._keys, (*results, *bounds))
        return ClosedWindows(selected, np.flatnonzero(has_time & ~is_over))

    def _compute_calls(self, sheet: SortedColumns, extremes: Sequence[Numbers]) -> list[Numbers]:
        """The results of all calls, in their order."""
        results = [call.results(*call.count_values(sheet, sheet.starts, sheet.ends)) for call in self._calls.calls]
        for (number, (function, _)), column in zip(self._extremes.items(), extremes, strict=True):
            results.insert(number, _extreme(function, column, sheet))
        return results


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


@dataclass(frozen=True, slots=True)
class EmitStrategy:
    """When windows speak beside their end, in microseconds; None: never. `lateness_us` is how long late rows count."""

    early_us: int | None = None
    late_us: int | None = None
    lateness_us: int = 0

    @property
    def updates(self) -> bool:
        """Whether a window may say more than one row."""
        return self.early_us is not None or self.late_us is not None or self.lateness_us > 0


_Place = Any
"""A slice: its start; or start and end of a window where rows carry theirs."""

_Window = tuple[Row, Span]
"""One key's window."""


class Windower:
    """Keys, aggregates and bounds of each window. The first `keys` columns of a row are the key.

    `slicing` None: the rows carry their windows, at the places `time` (start) and `time` + 1 (end). Else `time` is the
    place of the event time; with `on_arrival` the turn's processing time counts in its stead.
    """

    def __init__(
        self,
        keys: int,
        specs: Sequence[AggregateSpec],
        time: int,
        slicing: Slicing | None,
        *,
        speaking: EmitStrategy = EmitStrategy(),
        on_arrival: bool = False,
        changing: bool = False,
    ) -> None:
        self._keys = keys
        self._time = time
        self._slicing = slicing
        self._speaking = speaking
        self._on_arrival = on_arrival
        self._machine = GroupMachine(specs, changing=changing)
        self._columns: ColumnWindows | None = None
        if not (speaking.updates or on_arrival or changing):
            with suppress(ValueError):
                self._columns = ColumnWindows(keys, specs, time, slicing)
        self._slices: GroupedTable[Row, tuple[Row, Group]] = GroupedTable()
        self._ends: KeyTimers[Span] = KeyTimers()
        self._shown: KeyedTable[_Window, Row] = KeyedTable()
        self._speaks: KeyTimers[_Window] = KeyTimers()

    def open(self, state: OperatorState) -> None:
        """Slices by start and key; the times at which windows end; what windows have said and when they speak next."""
        self._slices = state.grouped_table("slices")
        self._ends = state.timers("ends", self._slices.table)
        self._shown = state.table("said")
        self._speaks = state.timers("speaks")

    def process(self, number: int, changes: Changes, turn: BatchTimes, out: OperatorOutput) -> None:
        """Take rows; those of windows that are over are late."""
        passed_us = self._final_until_us(turn, before=True)
        changes = self._emit_by_column(changes, turn, out)
        for place, part in self._by_slice(changes, turn).items():
            every = list(self._windows(place))
            windows = [one for one in every if self._is_open(one, passed_us)]
            if not windows:
                # Between windows that hop over a part of time lie moments of none.
                for come, _ in by_key(part, self._keys).values() if every else ():
                    out.late += [(number, row) for row in come]
                continue
            self._wake(windows, passed_us)
            known = self._slices.group(place)
            for key, (come, gone) in by_key(part, self._keys).items():
                values, group = known.get(key) or ((come or gone)[0][: self._keys], self._machine.new())
                self._machine.add(group, come)
                if gone:
                    self._machine.retract(group, gone)
                self._slices.put(place, key, (values, group))
                if self._speaking.updates:
                    self._note(key, windows, passed_us, turn)

    def advance(self, turn: BatchTimes, out: OperatorOutput) -> None:
        """Say the windows that are over, and those that speak early or late now."""
        for _, (key, window) in self._speaks.due(turn.now_us):
            places = list(self._slices_of(window))
            parts = [part for place in places if (part := self._slices.group(place).get(key)) is not None]
            self._emit(key, window, parts, out)
        passed_us = self._final_until_us(turn, before=False)
        for time_us, window in self._ends.due(passed_us):
            parts_by_key = self._parts_of(window)
            for key, parts in parts_by_key.items():
                self._emit(key, window, parts, out)
            gone_us = last_moment(window[1]) + self._speaking.lateness_us
            if time_us < gone_us and gone_us > passed_us:
                self._ends.set(window, gone_us)
                continue
            if self._speaking.updates:
                for key in parts_by_key:
                    self._speaks.clear((key, window))
                    self._shown.delete((key, window))
            for place in self._last_needed(window):
                self._slices.drop(place)

    def _emit_by_column(self, changes: Changes, turn: BatchTimes, out: OperatorOutput) -> Changes:
        """Say the windows that begin and end in this turn, where that can be done by column; the other rows."""
        rows = changes.rows
        if self._columns is None or changes.kinds is not None or not isinstance(rows, ColumnRows) or not rows.are_many:
            return changes
        whole = self._columns.close(rows, partial(self._begins_and_ends, turn))
        if whole is None:
            return changes
        out.by_column.append(whole.rows)
        return Changes(rows.at(whole.left))

    def _begins_and_ends(self, turn: BatchTimes, start_us: int) -> bool:
        """Whether nothing is there yet of a tumbling window that is over behind this turn, and was not before it."""
        (window,) = self._windows(start_us)
        is_over = last_moment(window[1]) <= turn.watermark_us
        return is_over and self._is_open(window, turn.watermark_before_us) and not self._slices.group(start_us)

    def _final_until_us(self, turn: BatchTimes, *, before: bool) -> int:
        if self._on_arrival:
            # Processing time says itself what is over; no row is ever late by it, also where all come in the last turn.
            return turn.watermark_us if turn.is_last and not before else turn.now_us - 1000
        return turn.watermark_before_us if before else turn.watermark_us

    def _by_slice(self, changes: Changes, turn: BatchTimes) -> dict[_Place, Changes]:
        """The rows of each slice in their order; those without a time are in none."""
        if self._on_arrival:
            assert self._slicing is not None
            (place,) = self._slicing.starts([turn.now_us])
            return {place: changes}
        time = self._time
        times = [row[time] for row in changes.rows]
        if None in times:
            kept = [number for number, time_us in enumerate(times) if time_us is not None]
            kinds = None if changes.kinds is None else [changes.kinds[number] for number in kept]
            return self._by_slice(Changes([changes.rows[number] for number in kept], kinds), turn)
        if self._slicing is None:
            places: list[_Place] = [(row[time], row[time + 1]) for row in changes.rows]
        else:
            places = self._slicing.starts(times)
        found = list(dict.fromkeys(places))
        if len(found) == 1:
            return {found[0]: changes}
        rows: dict[_Place, list[Row]] = {place: [] for place in found}
        for place, row in zip(places, changes.rows, strict=True):
            rows[place].append(row)
        if changes.kinds is None:
            return {place: Changes(members) for place, members in rows.items()}
        shown: dict[_Place, list[int]] = {place: [] for place in found}
        for place, kind in zip(places, changes.kinds, strict=True):
            shown[place].append(kind)
        return {place: Changes(members, shown[place]) for place, members in rows.items()}

    def _windows(self, place: _Place) -> Iterator[Span]:
        return iter((place,)) if self._slicing is None else self._slicing.windows_of(place)

    def _slices_of(self, window: Span) -> Iterator[_Place]:
        return iter((window,)) if self._slicing is None else self._slicing.slices_of(window)

    def _last_needed(self, window: Span) -> Iterator[_Place]:
        return iter((window,)) if self._slicing is None else self._slicing.last_needed(window)

    def _is_open(self, window: Span, passed_us: int) -> bool:
        return last_moment(window[1]) + self._speaking.lateness_us > passed_us

    def _wake(self, windows: Sequence[Span], passed_us: int) -> None:
        """Rows have come to windows: wake at their ends, or where those are over, at the end of the lateness."""
        for window in windows:
            over_us = last_moment(window[1])
            self._ends.set(window, over_us if over_us > passed_us else over_us + self._speaking.lateness_us)

    def _note(self, key: Row, windows: Sequence[Span], passed_us: int, turn: BatchTimes) -> None:
        """Rows of a key have come to windows that also speak before their end, or behind it."""
        for window in windows:
            is_over = last_moment(window[1]) <= passed_us
            delay_us = (self._speaking.late_us or 0) if is_over else self._speaking.early_us
            if delay_us is not None and self._speaks.time_of((key, window)) is None:
                self._speaks.set((key, window), turn.now_us + delay_us)

    def _parts_of(self, window: Span) -> dict[Row, list[tuple[Row, Group]]]:
        """What there is of a window by key: the parts in its slices, in their order."""
        found: dict[Row, list[tuple[Row, Group]]] = {}
        for place in self._slices_of(window):
            for key, part in self._slices.group(place).items():
                found.setdefault(key, []).append(part)
        return found

    def _emit(self, key: Row, window: Span, parts: Sequence[tuple[Row, Group]], out: OperatorOutput) -> None:
        row: Row | None = None
        if parts:
            whole = self._machine.merge([group for _, group in parts])
            if whole[0] > 0:
                row = (*parts[0][0], *self._machine.results(whole), *window, last_moment(window[1]))
        if not self._speaking.updates:
            if row is not None:
                out.insert(row)
            return
        before = self._shown.get((key, window))
        out.update(before, row)
        if row is not None:
            self._shown.put((key, window), row)
        elif before is not None:
            self._shown.delete((key, window))
