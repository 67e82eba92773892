"""Changelog normalization: one row per key, the last of its upserts."""

from __future__ import annotations

from millstream.streams.errors import JobError
from millstream.streams.operators.keys import frozen
from millstream.streams.operators.operator import DELETE, UPDATE_BEFORE, BatchTimes, Changes, OperatorOutput, Row
from millstream.streams.operators.state import KeyedTable, OperatorState
from millstream.streams.plan.nodes import OnConflict

__all__ = ["ConflictOperator", "Normalizer"]


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


class ConflictOperator:
    """Keeps all rows of each key in the order in which they came, and tells how the one that counts changes.

    `keys` are places in a row, `names` their columns for the message of an error. What comes and goes within one turn
    is not told. A row that is taken back is looked for among those of its key, from the last on: keys with many
    rows at a time cost as much.
    """

    def __init__(self, keys: tuple[int, ...], names: tuple[str, ...], on_conflict: OnConflict) -> None:
        self._keys = keys
        self._names = names
        self._on_conflict = on_conflict
        self._rows: KeyedTable[Row, list[Row]] = KeyedTable()
        self._before: dict[Row, Row | None] = {}

    def open(self, state: OperatorState) -> None:
        """The rows of each key."""
        self._rows = state.table("rows", lives=True)

    def process(self, number: int, changes: Changes, turn: BatchTimes, out: OperatorOutput) -> None:
        """Take rows that come and go."""
        for kind, row in changes:
            key = frozen(tuple(row[place] for place in self._keys))
            rows = self._rows.get(key) or []
            self._before.setdefault(key, self._choose_row(rows))
            if kind in (UPDATE_BEFORE, DELETE):
                _take_back(rows, row)
            else:
                rows.append(row)
            if rows:
                self._rows.put(key, rows)
            else:
                self._rows.delete(key)

    def advance(self, turn: BatchTimes, out: OperatorOutput) -> None:
        """Say what the turn has changed; rows whose time to live is over are forgotten, not taken back."""
        for key, before in self._before.items():
            rows = self._rows.get(key) or []
            if len(rows) > 1 and self._on_conflict is OnConflict.NONE:
                raise self._conflict(key, len(rows))
            out.update(before, self._choose_row(rows))
        self._before = {}
        self._rows.expire()

    def _choose_row(self, rows: list[Row]) -> Row | None:
        if not rows:
            return None
        return rows[0] if self._on_conflict is OnConflict.FIRST else rows[-1]

    def _conflict(self, key: Row, count: int) -> JobError:
        shown = ", ".join(f"{name} = {value!r}" for name, value in zip(self._names, key, strict=True))
        return JobError(
            "JOB_FAILED",
            f"{count} rows of the query fall on one row of the table, {shown}, and ON CONFLICT DO ERROR stands there.",
            remedy="Group by the primary key, or write ON CONFLICT DO DEDUPLICATE for the last of such rows.",
        )


def _take_back(rows: list[Row], row: Row) -> None:
    """Remove the last of the rows that is equal; none where its time to live was over."""
    for place in range(len(rows) - 1, -1, -1):
        if rows[place] == row:
            del rows[place]
            return
