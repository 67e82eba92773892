"""The first row of each key by event time, told once, when no earlier one can come any more."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Final

import numpy as np

from millstream.streams.operators.batch_times import BatchTimes
from millstream.streams.operators.changes import Changes, OperatorOutput, Row
from millstream.streams.operators.columns import ColumnRows, first_of_each
from millstream.streams.operators.row_keys import row_key
from millstream.streams.operators.state import KeyedTable, KeyTimers, OperatorState

__all__ = ["FirstRows"]

_TOLD: Final = True


class FirstRows:
    """Of each `partition` the row with the least event time, which stands at place `time`; `ranked` adds the place 1.

    A row waits until the watermark has come to its time. Of equal times the row that came first counts. A row before
    the watermark is late; one at it is not. Rows without a time are left out.
    """

    def __init__(self, partition: tuple[int, ...], time: int, *, ranked: bool) -> None:
        self._key = row_key(partition)
        self._partition = partition
        self._time = time
        self._ranked = ranked
        self._told: KeyedTable[Hashable, object] = KeyedTable()
        self._waiting: KeyedTable[Hashable, Row] = KeyedTable()
        self._ends: KeyTimers[Hashable] = KeyTimers()

    def open(self, state: OperatorState) -> None:
        """Keys whose row was told, which may be forgotten after a time to live; rows that wait, with their times."""
        # The name that a Top-N has for its keys: a checkpoint in which this was one knows what was told.
        self._told = state.table("partitions", lives=True)
        self._waiting = state.table("waiting")
        self._ends = state.timers("ends")

    def process(self, number: int, changes: Changes, turn: BatchTimes, out: OperatorOutput) -> None:
        """Take rows; those of keys that were told change nothing."""
        rows, late_us = changes.rows, turn.watermark_before_us
        if isinstance(rows, ColumnRows) and rows.are_many:
            rows = self._candidates(rows, late_us)
        time, key_of, told, waiting = self._time, self._key, self._told, self._waiting
        for row in rows:
            time_us = row[time]
            if time_us is None:
                continue
            if time_us < late_us:
                out.late.append((number, row))
                continue
            key = key_of(row)
            if key in told:
                continue
            known = waiting.get(key)
            if known is None or time_us < known[time]:
                waiting.put(key, row)
                self._ends.set(key, time_us)

    def advance(self, turn: BatchTimes, out: OperatorOutput) -> None:
        """Tell the rows that the watermark has come to, in the order of time."""
        for _, key in self._ends.due(turn.watermark_us):
            row = self._waiting.delete(key)
            if row is not None:
                out.insert((*row, 1) if self._ranked else row)
                self._told.put(key, _TOLD)
        self._told.expire()

    def _candidates(self, rows: ColumnRows, late_us: int) -> Sequence[Row]:
        """Late rows, and the first row of each key among the others, where whole columns tell that."""
        times, keys = rows.numbers(self._time), rows.keys(self._partition)
        if times is None or keys is None:
            return rows
        has_time = np.ones(len(rows), np.bool_) if times.known is None else times.known
        is_late = has_time & (times.values < late_us)
        places = np.flatnonzero(has_time & ~is_late)
        first = first_of_each(keys.places, times.values, places, 1, newest_first=False)
        return rows.at(np.sort(np.concatenate((np.flatnonzero(is_late), first))))
