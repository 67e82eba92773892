"""The last row of each key of upserts, and the row before it whenever it changes."""

from __future__ import annotations

from millstream.streams.operators.batch_times import BatchTimes
from millstream.streams.operators.changes import DELETE, UPDATE_BEFORE, Changes, OperatorOutput, Row
from millstream.streams.operators.state import KeyedTable, OperatorState

__all__ = ["Normalizer"]


class Normalizer:
    """Turns upserts and deletions by key into changes that name the row before. `keys` are places in a row."""

    def __init__(self, keys: tuple[int, ...]) -> None:
        self._keys = keys
        self._rows: KeyedTable[Row, Row] = KeyedTable()

    def open(self, state: OperatorState) -> None:
        """One row per key."""
        self._rows = state.table("rows", lives=True)

    def process(self, number: int, changes: Changes, turn: BatchTimes, out: OperatorOutput) -> None:
        """Take rows; what a row was before is known here, so that the input's word for it is not needed."""
        for kind, row in changes:
            if kind == UPDATE_BEFORE:
                continue
            key = tuple(row[place] for place in self._keys)
            before = self._rows.get(key)
            if kind == DELETE:
                self._rows.delete(key)
                out.update(before, None)
            else:
                self._rows.put(key, row)
                out.update(before, row)

    def advance(self, turn: BatchTimes, out: OperatorOutput) -> None:
        """Rows whose time to live is over are forgotten, not taken back."""
        self._rows.expire()
