"""Compacts the changes of a turn: pairs that cancel each other are dropped."""

from __future__ import annotations

from millstream.streams.operators.keys import frozen
from millstream.streams.operators.operator import DELETE, INSERT, UPDATE_AFTER, OperatorOutput, Row

__all__ = ["compact_changes"]


def compact_changes(said: OperatorOutput, out: OperatorOutput) -> None:
    """Say in `out` what `said` comes to: a row that came and went in one turn was never there."""
    counts: dict[Row, int] = {}
    rows: dict[Row, Row] = {}
    for kind, row in zip(said.kinds, said.rows, strict=True):
        key = frozen(row)
        rows.setdefault(key, row)
        counts[key] = counts.get(key, 0) + (1 if kind in (INSERT, UPDATE_AFTER) else -1)
    # What goes is said first: where a key has one row at a time, that row is never told twice.
    for key, count in counts.items():
        for _ in range(-count):
            out.emit(DELETE, rows[key])
    for key, count in counts.items():
        for _ in range(count):
            out.emit(INSERT, rows[key])
