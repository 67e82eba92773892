"""INTERSECT and EXCEPT over changing inputs, by row counts on both sides."""

from __future__ import annotations

from collections.abc import Callable

from millstream.streams.operators.aggregates.collected import hashable
from millstream.streams.operators.operator import DELETE, INSERT, UPDATE_AFTER, BatchTimes, Changes, OperatorOutput, Row
from millstream.streams.operators.state import KeyedTable, OperatorState
from millstream.streams.plan.joins import SetKind

__all__ = ["SetOperator"]

_Counted = tuple[Row, int, int]
"""A row, and how often it is there left and right."""

_SHOWN: dict[tuple[SetKind, bool], Callable[[int, int], int]] = {
    (SetKind.INTERSECT, True): min,
    (SetKind.INTERSECT, False): lambda left, right: int(left > 0 and right > 0),
    (SetKind.EXCEPT, True): lambda left, right: max(left - right, 0),
    (SetKind.EXCEPT, False): lambda left, right: int(left > 0 and right == 0),
}
"""How often the result has a row that is there `left` and `right` times; the flag is ALL."""


class SetOperator:
    """The rows of both inputs, or of the left one alone; NULL equals NULL here, as in GROUP BY.

    A row that comes and goes within one turn is not told.
    """

    def __init__(self, kind: SetKind, *, keep_all: bool) -> None:
        self._shown = _SHOWN[kind, keep_all]
        self._counts: KeyedTable[Row, _Counted] = KeyedTable()
        self._changed: dict[Row, list[int]] = {}
        self._rows: dict[Row, Row] = {}

    def open(self, state: OperatorState) -> None:
        """Counts by row."""
        self._counts = state.table("counts", lives=True)

    def process(self, number: int, changes: Changes, turn: BatchTimes, out: OperatorOutput) -> None:
        """Count the rows of one side."""
        for kind, row in changes:
            key = tuple(map(hashable, row))
            self._rows.setdefault(key, row)
            change = self._changed.setdefault(key, [0, 0])
            change[number] += 1 if kind in (INSERT, UPDATE_AFTER) else -1

    def advance(self, turn: BatchTimes, out: OperatorOutput) -> None:
        """Say what the turn has changed; forget rows whose time to live is over."""
        for key, (left, right) in self._changed.items():
            row, left_before, right_before = self._counts.get(key) or (self._rows[key], 0, 0)
            # A row that was forgotten by its time to live may still be taken back.
            left_now, right_now = max(left_before + left, 0), max(right_before + right, 0)
            if left_now or right_now:
                self._counts.put(key, (row, left_now, right_now))
            else:
                self._counts.delete(key)
            more = self._shown(left_now, right_now) - self._shown(left_before, right_before)
            for _ in range(abs(more)):
                out.emit(INSERT if more > 0 else DELETE, row)
        self._changed, self._rows = {}, {}
        self._counts.expire()
