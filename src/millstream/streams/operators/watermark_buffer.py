"""Buffers rows until the watermark and emits them in time order; CURRENT_WATERMARK."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any, Final

import numpy as np

from millstream.streams.operators.columns import ColumnRows, Longs, Numbers
from millstream.streams.operators.keys import OrderColumn, sort_key
from millstream.streams.operators.operator import (
    END_OF_TIME_US,
    START_OF_TIME_US,
    BatchTimes,
    Changes,
    OperatorOutput,
    Row,
)
from millstream.streams.operators.state import KeyedTable, KeyTimers, OperatorState

__all__ = ["WatermarkBuffer", "WatermarkTeller"]


_SLOT_US: Final = 1_000_000
"""Rows of one turn and one second are kept as one value."""

_Slot = tuple[int, int]
"""The number of the turn, and the second."""


class WatermarkBuffer:
    """Takes rows with their event time at place `time`; gives those whose time has come, sorted by `order`.

    Rows that are equal by `order` come out as they came in. Rows without a time have no place in it and are left out.
    Where event time goes on behind its end, rows are late that belong before one that the end has brought.
    """

    def __init__(self, time: int, order: Sequence[OrderColumn]) -> None:
        self._time = itemgetter(time)
        # Times are never NULL here, and compare faster bare.
        self._sort_key: Callable[[Row], Any] = (
            self._time if [one.place for one in order] == [time] and order[0].ascending else sort_key(order)
        )
        self._ready: list[Row] = []
        self._slots: KeyedTable[_Slot, list[Row]] = KeyedTable()
        self._starts: KeyTimers[_Slot] = KeyTimers()
        self._numbers: KeyedTable[str, int] = KeyedTable()

    def open(self, state: OperatorState) -> None:
        """Rows by turn and second, with the time of the first."""
        self._slots = state.table("waiting")
        self._starts = state.timers("waiting-starts")
        self._numbers = state.table("waiting-numbers")

    def take(self, rows: Sequence[Row], turn: BatchTimes, *, late_us: int | None = None) -> list[Row]:
        """Keep the rows until their time; those that are late are given back: the ones up to `late_us`, in place of
        the watermark before the turn.
        """
        time = self._time
        times = list(map(time, rows))
        if None in times:
            rows = [row for row in rows if time(row) is not None]
            times = list(map(time, rows))
        if not rows:
            return []
        before_us, after_us = self._passed_us(turn) if late_us is None else late_us, turn.watermark_us
        late: list[Row] = []
        if min(times) <= before_us:
            late = [row for row in rows if time(row) <= before_us]
            rows = [row for row in rows if time(row) > before_us]
        if rows and max(times) > after_us:
            early = [row for row in rows if time(row) > after_us]
            rows = [row for row in rows if time(row) <= after_us]
            self._keep(early)
        self._ready += rows
        return late

    def divide(self, rows: ColumnRows, times: Numbers, turn: BatchTimes) -> tuple[Longs, list[Row]]:
        """The places of rows by column whose time has come, which are not kept here, and those that are late."""
        has_time = np.ones(len(rows), np.bool_) if times.known is None else times.known
        is_late = has_time & (times.values <= self._passed_us(turn))
        is_early = has_time & (times.values > turn.watermark_us)
        if is_early.any():
            self._keep(rows.at(np.flatnonzero(is_early)))
        late = rows.at(np.flatnonzero(is_late)) if is_late.any() else []
        places = np.flatnonzero(has_time & ~is_late & ~is_early)
        if turn.is_last and len(places):
            self._note_end(int(times.values[places].max()))
        return places, late

    def admit(self, rows: Sequence[Row]) -> None:
        """Take rows that came behind the watermark as ones whose time has come."""
        self._ready += rows

    def due(self, turn: BatchTimes) -> list[Row]:
        """The rows up to the watermark, in order; called once a turn."""
        ready, self._ready = self._ready, []
        slots = sorted(slot for _, slot in self._starts.due(turn.watermark_us))
        found: list[Row] = []
        for slot in slots:
            found += self._slots.get(slot) or ()
        # What has waited came before what has just come.
        found += ready
        found.sort(key=self._sort_key)
        if turn.is_last:
            # Nothing waits any more, so turns may be counted again.
            self._numbers.delete("turn")
            if found:
                self._note_end(max(map(self._time, found)))
        self._remove_until(slots, turn.watermark_us)
        return [row for row in found if self._time(row) <= turn.watermark_us] if slots else found

    def _passed_us(self, turn: BatchTimes) -> int:
        """Rows up to this time are late: the watermark has passed them, or the end of event time brought later ones."""
        ended_us = self._numbers.get("ended")
        return turn.watermark_before_us if ended_us is None else max(turn.watermark_before_us, ended_us - 1)

    def _note_end(self, newest_us: int) -> None:
        known_us = self._numbers.get("ended")
        if newest_us < END_OF_TIME_US and (known_us is None or newest_us > known_us):
            self._numbers.put("ended", newest_us)

    def _keep(self, rows: Sequence[Row]) -> None:
        number = (self._numbers.get("turn") or 0) + 1
        self._numbers.put("turn", number)
        slots: dict[_Slot, list[Row]] = {}
        for row in rows:
            slots.setdefault((number, self._time(row) // _SLOT_US), []).append(row)
        for slot, members in slots.items():
            self._slots.put(slot, members)
            self._starts.set(slot, min(map(self._time, members)))

    def _remove_until(self, slots: Sequence[_Slot], until_us: int) -> None:
        """Forget of the slots what is up to a time."""
        for slot in slots:
            rest = [row for row in self._slots.get(slot) or () if self._time(row) > until_us]
            if rest:
                self._slots.put(slot, rest)
                self._starts.set(slot, min(map(self._time, rest)))
            else:
                self._slots.delete(slot)


_MILLISECOND_US: Final = 1000


class WatermarkTeller:
    """Says each row with the watermark before its micro-batch, in whole milliseconds; None before any."""

    def open(self, state: OperatorState) -> None:
        """There is nothing to keep: event time is kept with every operator."""

    def process(self, number: int, changes: Changes, turn: BatchTimes, out: OperatorOutput) -> None:
        """Say the rows at once."""
        before_us = turn.watermark_before_us
        shown_us = None if before_us == START_OF_TIME_US else before_us - before_us % _MILLISECOND_US
        for kind, row in changes:
            out.emit(kind, (*row, shown_us))

    def advance(self, turn: BatchTimes, out: OperatorOutput) -> None:
        """No row waits."""
