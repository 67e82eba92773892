"""Sorted and limited results, emitted at their time or at the end."""

from __future__ import annotations

from dataclasses import replace

from millstream.streams.operators.aggregates.collected import hashable
from millstream.streams.operators.keys import OrderColumn, sort_key
from millstream.streams.operators.operator import (
    END_OF_TIME_US,
    INSERT,
    START_OF_TIME_US,
    UPDATE_AFTER,
    BatchTimes,
    Changes,
    OperatorOutput,
    Row,
)
from millstream.streams.operators.state import KeyedTable, OperatorState
from millstream.streams.operators.watermark_buffer import WatermarkBuffer

__all__ = ["Limiter", "Sorter"]

_BEFORE = 2
"""Columns before those of a row while it waits: its time and its kind."""


class Sorter:
    """All rows in the order of `order`, each once. One operator sorts all rows: all are in one key group.

    With `time`, the place of the event time that `order` begins with, rows are said when the watermark has come to
    their time; one that is not later than the last that was said is late. Without, they are said at the end of a
    bounded run. With `on_arrival` each turn's rows are sorted for themselves: they are of one processing time. The
    first `skip` rows are left out. A row that is taken back while it waits was never there; one that was said is taken
    back at once.
    """

    def __init__(
        self, order: tuple[OrderColumn, ...], *, time: int | None = None, on_arrival: bool = False, skip: int = 0
    ) -> None:
        self._sort_key = sort_key(order)
        self._time = time
        self._on_arrival = on_arrival
        self._skip = skip
        self._arrived: list[Row] = []
        self._waiting = WatermarkBuffer(0, tuple(replace(one, place=one.place + _BEFORE) for one in order))
        self._skipped: KeyedTable[str, int] = KeyedTable()
        self._shown: KeyedTable[str, int] = KeyedTable()

    def open(self, state: OperatorState) -> None:
        """Rows by their time; how many were left out; the time of the last that was said."""
        self._waiting.open(state)
        self._skipped = state.table("skipped")
        self._shown = state.table("said")

    def process(self, number: int, changes: Changes, turn: BatchTimes, out: OperatorOutput) -> None:
        """Keep rows until their time has come."""
        if self._on_arrival:
            self._arrived += (row for kind, row in changes if kind in (INSERT, UPDATE_AFTER))
            return
        waiting = []
        for kind, row in changes:
            time_us = END_OF_TIME_US if self._time is None else row[self._time]
            if time_us is None:
                out.late.append((number, row))
            else:
                waiting.append((time_us, kind, *row))
        last_us = self._shown.get("last", START_OF_TIME_US)
        for _, kind, *rest in self._waiting.take(waiting, turn, late_us=last_us):
            row = tuple(rest)
            if kind in (INSERT, UPDATE_AFTER):
                out.late.append((number, row))
            else:
                out.emit(kind, row)

    def advance(self, turn: BatchTimes, out: OperatorOutput) -> None:
        """Say the rows whose time has come."""
        if self._on_arrival:
            rows = sorted(self._arrived, key=self._sort_key)
            self._arrived = []
        else:
            due = self._waiting.due(turn)
            if due and self._time is not None:
                self._shown.put("last", due[-1][0])
            rows = _rows_left(due)
        for row in rows[self._left_out(len(rows)) :]:
            out.insert(row)

    def _left_out(self, count: int) -> int:
        """How many of the next `count` rows are still left out."""
        skipped = self._skipped.get("rows") or 0
        more = min(self._skip - skipped, count)
        if more:
            self._skipped.put("rows", skipped + more)
        return more


def _rows_left(waited: list[Row]) -> list[Row]:
    """The rows that came and were not taken back."""
    gone: dict[Row, int] = {}
    for row in waited:
        if row[1] not in (INSERT, UPDATE_AFTER):
            key = tuple(map(hashable, row[_BEFORE:]))
            gone[key] = gone.get(key, 0) + 1
    came = [row[_BEFORE:] for row in waited if row[1] in (INSERT, UPDATE_AFTER)]
    if not gone:
        return came
    left = []
    for row in came:
        key = tuple(map(hashable, row))
        if gone.get(key):
            gone[key] -= 1
        else:
            left.append(row)
    return left


class Limiter:
    """The rows that come first: `skip` of them are left out, the `limit` behind them are said. None is taken back."""

    def __init__(self, skip: int, limit: int | None) -> None:
        self._skip = skip
        self._limit = limit
        self._seen: KeyedTable[str, int] = KeyedTable()

    def open(self, state: OperatorState) -> None:
        """How many rows there were, up to the last one that is said."""
        self._seen = state.table("seen")

    def process(self, number: int, changes: Changes, turn: BatchTimes, out: OperatorOutput) -> None:
        """Say the rows that are neither too early nor too late."""
        seen = self._seen.get("rows") or 0
        last = None if self._limit is None else self._skip + self._limit
        start = max(self._skip - seen, 0)
        end = len(changes) if last is None else max(last - seen, 0)
        for row in changes.rows[start:end]:
            out.insert(row)
        after = seen + len(changes) if last is None else min(seen + len(changes), last)
        if after != seen:
            self._seen.put("rows", after)

    def advance(self, turn: BatchTimes, out: OperatorOutput) -> None:
        """Nothing waits."""
