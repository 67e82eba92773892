"""OVER vectorized over the rows of a turn."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple

import numpy as np

from millstream.streams.operators.aggregates.group import Group, GroupMachine
from millstream.streams.operators.column_calls import ColumnCalls
from millstream.streams.operators.columns import (
    LARGEST,
    ColumnRows,
    KeyedColumns,
    Longs,
    Numbers,
    SelectedRows,
    SortedColumns,
    numbers_of,
    sort_columns,
)
from millstream.streams.operators.keys import RowKey, row_key
from millstream.streams.operators.operator import Row
from millstream.streams.operators.over.over_state import FrameColumns, Frames, Held, Partition
from millstream.streams.operators.state import KeyedTable

__all__ = ["ColumnOver", "OverColumns", "ReadyRows"]

_MOST_HELD: Final = 4
"""Rows that frames hold for each that comes, up to which all are looked at: single rows only look at what changes."""

_Partitions = KeyedTable[Hashable, Partition]


@dataclass(frozen=True, slots=True)
class ReadyRows:
    """Rows whose time has come: those that have waited, and those at `places` of a turn's."""

    waited: list[Row]
    rows: ColumnRows
    places: Longs

    def to_rows(self) -> list[Row]:
        """All of them as tuples."""
        return [*self.waited, *self.rows.at(self.places)]

    def select(self, order: Longs, width: int, columns: tuple[Numbers, ...]) -> SelectedRows:
        """Those that stand at the places of `order`, where the ones that have waited come first."""
        places = np.concatenate((np.arange(len(self.waited)) + len(self.rows), self.places))
        return SelectedRows(self.rows, self.waited, places[order], width, columns)

    def parts(self, key: RowKey, partition: Sequence[int], time: int, calls: ColumnCalls) -> ReadyColumns | None:
        """What an OVER reads of them; None where their types are others."""
        found, columns, times = self.rows.keys(partition), calls.columns(self.rows), self.rows.numbers(time)
        if found is None or columns is None or times is None:
            return None
        at = self.places
        come = KeyedColumns(found.places[at], times.values[at], {place: one.at(at) for place, one in columns.items()})
        numbers = {one: number for number, one in enumerate(found.keys)}
        of_waited = [numbers.setdefault(key(row), len(numbers)) for row in self.waited]
        waited = KeyedColumns(
            np.array(of_waited, np.int64), numbers_of(self.waited, time).values, calls.of_rows(self.waited)
        )
        return ReadyColumns(list(numbers), [waited, come])


class ReadyColumns(NamedTuple):
    """Keys, and rows that have them: first those that have waited."""

    keys: list[Hashable]
    parts: list[KeyedColumns]


class OverColumns(NamedTuple):
    """The rows that are said, as in `ReadyRows.taken`, with a column per call.

    `last_us` are the times of the last rows of ranges, by key.
    """

    order: Longs
    columns: tuple[Numbers, ...]
    last_us: list[tuple[Hashable, int]]


class ColumnOver:
    """The calls of an OVER by column; arguments as of `Over`. `kept` are the columns of a frame's rows."""

    def __init__(
        self,
        calls: ColumnCalls,
        machine: GroupMachine,
        kept: Sequence[int],
        partition: tuple[int, ...],
        time: int,
        unit: Literal["rows", "range"],
        preceding: int | None,
    ) -> None:
        self._calls = calls
        self._machine = machine
        self._kept = tuple(kept)
        self._partition = partition
        self._key = row_key(partition)
        self._time = time
        self._unit = unit
        self._preceding = preceding

    def compute(self, arrived: ReadyRows, partitions: _Partitions, frames: Frames) -> OverColumns | None:
        """What all rows tell; None, and nothing is kept, where columns are of other types or numbers too large."""
        parts = arrived.parts(self._key, self._partition, self._time, self._calls)
        if parts is None or not any(len(part.keys) for part in parts.parts):
            return None
        if self._preceding is None:
            return self._grow(parts, partitions)
        return self._slide(parts, partitions, frames, self._preceding)

    def _grow(self, parts: ReadyColumns, partitions: _Partitions) -> OverColumns | None:
        """Frames from the beginning: what was counted before is in the groups."""
        sheet = sort_columns(*parts)
        if sheet is None:
            return None
        known = [partitions.get(key) for key in sheet.keys]
        groups = [self._machine.new() if one is None or one.group is None else one.group for one in known]
        before = [_before(groups, place) for place in range(1, len(self._calls.calls) + 1)]
        if any(abs(total) >= LARGEST for _, totals in before for total in totals):
            return None
        first, stop = sheet.starts[sheet.groups], self._stops(sheet)
        columns = []
        for place, (call, states) in enumerate(zip(self._calls.calls, before, strict=True), start=1):
            base_counts, base_totals = np.array(states[0], np.int64), np.array(states[1], np.int64)
            counts, totals = call.count_values(sheet, first, stop)
            columns.append(call.results(counts + base_counts[sheet.groups], totals + base_totals[sheet.groups]))
            counts, totals = call.count_values(sheet, sheet.starts, sheet.ends)
            after = (base_counts + counts).tolist(), (base_totals + totals).tolist()
            for group, count, total in zip(groups, *after, strict=True):
                group[place] = count if call.machine is None else (count, total)
        for key, group, count in zip(sheet.keys, groups, (sheet.ends - sheet.starts).tolist(), strict=True):
            group[0] += count
            partitions.put(key, Partition((), group, Held()))
        return OverColumns(sheet.order, tuple(columns), [])

    def _slide(
        self, parts: ReadyColumns, partitions: _Partitions, frames: Frames, preceding: int
    ) -> OverColumns | None:
        """Frames that move: what they hold stands before the rows that have come."""
        touched = np.unique(np.concatenate([part.keys for part in parts.parts])).tolist()
        keys = [parts.keys[place] for place in touched]
        known = [partitions.get(key) for key in keys]
        before = {key: Held() if one is None else one.held for key, one in zip(keys, known, strict=True)}
        lengths = [held.rows for held in before.values()]
        if sum(lengths) > _MOST_HELD * sum(len(part.keys) for part in parts.parts):
            return None
        held = frames.columns(before.items())
        columns = dict(zip(self._kept, held.columns, strict=True))
        sheet = sort_columns(parts.keys, [KeyedColumns(np.repeat(touched, lengths), held.times, columns), *parts.parts])
        if sheet is None:
            return None
        first = sheet.row_starts(preceding) if self._unit == "rows" else sheet.range_starts(preceding)
        if first is None:
            return None
        come, stop = np.flatnonzero(sheet.order >= sum(lengths)), self._stops(sheet)
        results = [call.results(*call.count_values(sheet, first[come], stop[come])) for call in self._calls.calls]
        self._keep(sheet, first, before, partitions, frames)
        newest_us = sheet.times[sheet.ends - 1].tolist() if self._unit == "range" else []
        return OverColumns(
            sheet.order[come] - sum(lengths), tuple(results), list(zip(sheet.keys, newest_us, strict=False))
        )

    def _keep(
        self,
        sheet: SortedColumns,
        first: Longs,
        before: Mapping[Hashable, Held],
        partitions: _Partitions,
        frames: Frames,
    ) -> None:
        """Keep of each partition what the frame of its last row holds."""
        columns = FrameColumns(sheet.times, tuple(sheet.columns[place] for place in self._kept)).pack()
        bounds = zip(
            sheet.keys, sheet.starts.tolist(), first[sheet.ends - 1].tolist(), sheet.ends.tolist(), strict=True
        )
        for key, start, since, end in bounds:
            held = before[key]
            gone = min(since - start, held.rows)
            segment = columns.segment(max(since, start + held.rows), end)
            partitions.put(key, Partition((), None, frames.keep_columns(key, held, gone, segment)))

    def _stops(self, sheet: SortedColumns) -> Longs:
        """Behind which row the frame of each row ends: rows of one time are looked at together in a range."""
        return sheet.peer_ends() if self._unit == "range" else np.arange(1, len(sheet.order) + 1)


def _before(groups: Sequence[Group], place: int) -> tuple[list[int], list[int]]:
    """What groups have counted and summed so far for a call."""
    states: list[Any] = [group[place] for group in groups]
    if states and isinstance(states[0], tuple):
        return [count for count, _ in states], [total for _, total in states]
    return states, [0] * len(states)
