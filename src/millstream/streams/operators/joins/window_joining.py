"""Window joins: all pairs of a window are emitted when it ends."""

from __future__ import annotations

from typing import Any

from millstream.streams.operators.joins.regular_joining import JoinShape
from millstream.streams.operators.operator import INSERT, UPDATE_AFTER, BatchTimes, Changes, OperatorOutput, Row
from millstream.streams.operators.state import KeyedTable, KeyTimers, OperatorState
from millstream.streams.operators.windows.window_times import last_moment
from millstream.streams.plan.joins import JoinKind

__all__ = ["WindowJoiner"]

_Rows = tuple[list[Row], list[Row]]


class WindowJoiner:
    """Pairs of one window and key. The windows' ends stand at the places `ends` among the columns behind the key,
    which holds the windows' bounds as well. Rows are never taken back.
    """

    def __init__(self, shape: JoinShape, ends: tuple[int, int]) -> None:
        self._shape = shape
        self._window_ends = ends
        self._rows: KeyedTable[Any, _Rows] = KeyedTable()
        self._ends: KeyTimers[Any] = KeyTimers()

    def open(self, state: OperatorState) -> None:
        """Rows of both sides by key, with a timer at the window's end."""
        self._rows = state.table("rows")
        self._ends = state.timers("ends")

    def process(self, number: int, changes: Changes, turn: BatchTimes, out: OperatorOutput) -> None:
        """Keep rows until their window is over; one that comes behind it is late."""
        for kind, whole in changes:
            row = whole[self._shape.keys :]
            end_us = row[self._window_ends[number]]
            if kind not in (INSERT, UPDATE_AFTER) or end_us is None:
                continue
            if last_moment(end_us) <= turn.watermark_before_us:
                out.late.append((number, row))
                continue
            # A row without a key stays alone, in a group of its own.
            key = self._shape.key_of(whole) or ("no key", number, end_us)
            rows = self._rows.get(key) or ([], [])
            rows[number].append(row)
            self._rows.put(key, rows)
            self._ends.set(key, last_moment(end_us))

    def advance(self, turn: BatchTimes, out: OperatorOutput) -> None:
        """Say the pairs of windows that are over, and the rows that have none."""
        for _, key in self._ends.due(turn.watermark_us):
            rows = self._rows.delete(key)
            if rows is not None:
                self._emit(rows, out)

    def _emit(self, rows: _Rows, out: OperatorOutput) -> None:
        shape = self._shape
        paired: set[int] = set()
        for left in rows[0]:
            found = False
            for place, right in enumerate(rows[1]):
                if shape.fits(left, right):
                    found = True
                    paired.add(place)
                    if not shape.kind.only_left:
                        out.insert(left + right)
            if shape.kind.only_left:
                if found is (shape.kind is JoinKind.SEMI):
                    out.insert(left)
            elif not found and shape.keeps[0]:
                out.insert(shape.pair(0, left, None))
        if shape.keeps[1]:
            for place, right in enumerate(rows[1]):
                if place not in paired:
                    out.insert(shape.pair(1, right, None))
