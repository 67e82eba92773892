"""OVER over out-of-order and retracted rows: earlier results are updated."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from itertools import groupby
from typing import Any

from millstream.streams.operators.aggregates.catalogue import AggregateSpec
from millstream.streams.operators.changelog_compaction import compact_changes
from millstream.streams.operators.keys import OrderColumn, row_key, sort_key
from millstream.streams.operators.operator import INSERT, UPDATE_AFTER, BatchTimes, Changes, OperatorOutput, Row
from millstream.streams.operators.over.over_frames import OF_THE_PLACE, rank_rows, sliding_of
from millstream.streams.operators.over.streaming_over import OverFrame
from millstream.streams.operators.state import GroupedTable, KeyedTable, OperatorState

__all__ = ["RetractingOver"]


class RetractingOver:
    """The first `width` columns of each row, then one per call, as all rows so far have it.

    All rows are kept. A partition that a turn changes is computed again, so it should not be large; the time at place
    `time` is what ranges are measured by. Equal rows stand in the order in which they came.
    """

    def __init__(
        self,
        width: int,
        partition: tuple[int, ...],
        order: tuple[OrderColumn, ...],
        specs: tuple[AggregateSpec, ...],
        frame: OverFrame,
        *,
        time: int,
    ) -> None:
        self._width = width
        self._key = row_key(partition)
        self._order = sort_key(order)
        self._specs = specs
        self._frame = frame
        self._time = time
        self._rows: GroupedTable[int, Row] = GroupedTable()
        self._numbers: KeyedTable[str, int] = KeyedTable()

    def open(self, state: OperatorState) -> None:
        """Rows by partition and number."""
        self._rows = state.grouped_table("rows", lives=True)
        self._numbers = state.table("numbers")

    def process(self, number: int, changes: Changes, turn: BatchTimes, out: OperatorOutput) -> None:
        """Take rows, and tell what has changed of their partitions."""
        touched: dict[Hashable, list[tuple[int, Row]]] = {}
        for kind, row in changes:
            touched.setdefault(self._key(row), []).append((kind, row))
        for key, members in touched.items():
            output = OperatorOutput()
            for row in self._compute_rows(key):
                output.update(row, None)
            for kind, row in members:
                self._take(key, kind, row)
            for row in self._compute_rows(key):
                output.insert(row)
            compact_changes(output, out)

    def advance(self, turn: BatchTimes, out: OperatorOutput) -> None:
        """Rows whose time to live is over are forgotten, not taken back."""
        self._rows.expire()

    def _take(self, key: Hashable, kind: int, row: Row) -> None:
        if kind in (INSERT, UPDATE_AFTER):
            number = (self._numbers.get("last") or 0) + 1
            self._numbers.put("last", number)
            self._rows.put(key, number, row)
            return
        equal = [number for number, known in self._rows.group(key).items() if known == row]
        if equal:
            self._rows.delete(key, max(equal))

    def _compute_rows(self, key: Hashable) -> list[Row]:
        """The rows of a partition with their results."""
        numbered = sorted(self._rows.group(key).items())
        rows = sorted((row for _, row in numbered), key=self._order)
        columns = [
            rank_rows(spec, rows, self._order) if spec.function in OF_THE_PLACE else self._compute_frames(spec, rows)
            for spec in self._specs
        ]
        return [(*row[: self._width], *results) for row, *results in zip(rows, *columns, strict=True)]

    def _compute_frames(self, spec: AggregateSpec, rows: Sequence[Row]) -> list[Any]:
        sliding = sliding_of(spec)
        unit, preceding = self._frame.unit, self._frame.preceding
        values: list[Any] = []
        start = end = 0
        steps = [[row] for row in rows] if unit == "rows" else [list(peers) for _, peers in groupby(rows, self._order)]
        for peers in steps:
            for row in peers:
                sliding.enter(row)
            end += len(peers)
            while preceding is not None and self._is_behind(rows[start], peers[0], end - start, preceding):
                sliding.leave(rows[start])
                start += 1
            values += [sliding.result()] * len(peers)
        return values

    def _is_behind(self, oldest: Row, row: Row, count: int, preceding: int) -> bool:
        """Whether the oldest row of a frame is outside of that of `row`; NULL is near NULL alone."""
        if self._frame.unit == "rows":
            return count > preceding + 1
        time_us, oldest_us = row[self._time], oldest[self._time]
        if time_us is None or oldest_us is None:
            return (time_us is None) != (oldest_us is None)
        return bool(oldest_us < time_us - preceding)
