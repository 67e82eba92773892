"""OVER in bounded jobs: whole partitions, any order, following rows included."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Hashable, Sequence
from itertools import groupby
from typing import Any, Final

from millstream.streams.operators.aggregates.catalogue import AggregateSpec
from millstream.streams.operators.keys import OrderColumn, row_key, rows_by_key, sort_key
from millstream.streams.operators.operator import INSERT, UPDATE_AFTER, BatchTimes, Changes, OperatorOutput, Row
from millstream.streams.operators.over.over_frames import OF_THE_PLACE, rank_rows, sliding_of
from millstream.streams.operators.over.streaming_over import OverFrame
from millstream.streams.operators.state import KeyedTable, OperatorState

__all__ = ["BatchOver"]


class BatchOver:
    """The first `width` columns of each row, then one per call, at the end of the run. All rows are kept until then.

    Partitions may have any order or none: then all their rows are equal in it. A range is measured by the first column
    of the order. Rows that are taken back were never there.
    """

    def __init__(
        self,
        width: int,
        partition: tuple[int, ...],
        order: tuple[OrderColumn, ...],
        specs: tuple[AggregateSpec, ...],
        frame: OverFrame,
    ) -> None:
        self._width = width
        self._key = row_key(partition)
        self._order = order
        self._sort_key = sort_key(order)
        self._specs = specs
        self._frame = frame
        self._rows: KeyedTable[Hashable, list[Row]] = KeyedTable()

    def open(self, state: OperatorState) -> None:
        """Rows by partition."""
        self._rows = state.table("rows")

    def process(self, number: int, changes: Changes, turn: BatchTimes, out: OperatorOutput) -> None:
        """Keep rows."""
        kinds = dict[int, int]() if changes.kinds is None else dict(enumerate(changes.kinds))
        come = [row for place, row in enumerate(changes.rows) if kinds.get(place, INSERT) in (INSERT, UPDATE_AFTER)]
        gone = [row for place, row in enumerate(changes.rows) if kinds.get(place, INSERT) not in (INSERT, UPDATE_AFTER)]
        for key, rows in rows_by_key(come, self._key).items():
            kept = self._rows.get(key)
            if kept is None:
                self._rows.put(key, rows)
            else:
                kept += rows
                self._rows.put(key, kept)
        for key, rows in rows_by_key(gone, self._key).items():
            kept = self._rows.get(key) or []
            for row in rows:
                if row in kept:
                    kept.remove(row)
            self._rows.put(key, kept)

    def advance(self, turn: BatchTimes, out: OperatorOutput) -> None:
        """Say all rows when nothing comes any more."""
        if not turn.is_last:
            return
        for key, rows in list(self._rows.items()):
            self._rows.delete(key)
            rows = sorted(rows, key=self._sort_key)
            columns = [self._column(spec, rows) for spec in self._specs]
            for row, *results in zip(rows, *columns, strict=True):
                out.insert((*row[: self._width], *results))

    def _column(self, spec: AggregateSpec, rows: Sequence[Row]) -> Sequence[Any]:
        """The results of a call for the rows of one partition, in order."""
        whole = _OF_THE_WHOLE.get(spec.function)
        if whole is not None:
            return whole(spec, rows, list(map(self._sort_key, rows)))
        if spec.function in OF_THE_PLACE:
            return rank_rows(spec, rows, self._sort_key)
        return self._compute_frames(spec, rows)

    def _compute_frames(self, spec: AggregateSpec, rows: Sequence[Row]) -> list[Any]:
        """Both ends of a frame only move on, so each row enters and leaves once."""
        sliding, values = sliding_of(spec), []
        start = end = 0
        for first, last in self._bounds(rows):
            while end < last:
                sliding.enter(rows[end])
                end += 1
            while start < min(first, end):
                sliding.leave(rows[start])
                start += 1
            values.append(sliding.result())
        return values

    def _bounds(self, rows: Sequence[Row]) -> list[tuple[int, int]]:
        """Where the frame of each row begins, and behind which row it ends."""
        count, frame = len(rows), self._frame
        if frame.unit == "rows":
            return [
                (
                    0 if frame.preceding is None else max(0, place - frame.preceding),
                    count if frame.following is None else max(0, min(count, place + 1 + frame.following)),
                )
                for place in range(count)
            ]
        bounds: list[tuple[int, int]] = []
        known = [place for place, row in enumerate(rows) if self._order and row[self._order[0].place] is not None]
        values = [self._distance(rows[place]) for place in known]
        for _, peers in groupby(range(count), lambda place: self._sort_key(rows[place])):
            these = list(peers)
            first, last = these[0], these[-1] + 1
            if self._order and rows[first][self._order[0].place] is not None:
                value, offset = self._distance(rows[first]), known[0]
                if frame.preceding:
                    first = offset + bisect_left(values, value - frame.preceding)
                if frame.following:
                    last = offset + bisect_right(values, value + frame.following)
            first = 0 if frame.preceding is None else first
            last = count if frame.following is None else last
            bounds += [(first, max(first, last))] * len(these)
        return bounds

    def _distance(self, row: Row) -> Any:
        """What ranges are measured by, ascending."""
        one = self._order[0]
        return row[one.place] if one.ascending else -row[one.place]


def _lead(spec: AggregateSpec, rows: Sequence[Row], _keys: Sequence[Any]) -> list[Any]:
    offset = int(spec.literals[0]) if spec.literals else 1
    default = spec.literals[1] if len(spec.literals) > 1 else None
    place = spec.arguments[1] if len(spec.arguments) > 1 else None
    return [
        rows[number + offset][spec.arguments[0]]
        if number + offset < len(rows)
        else (default if place is None else row[place])
        for number, row in enumerate(rows)
    ]


def _tile(spec: AggregateSpec, rows: Sequence[Row], _keys: Sequence[Any]) -> list[int]:
    """The first parts get one row more where the rows cannot be divided evenly."""
    size, larger = divmod(len(rows), int(rows[0][spec.arguments[0]]))
    return [
        number // (size + 1) + 1 if number < larger * (size + 1) else (number - larger) // size + 1
        for number in range(len(rows))
    ]


def _percent_rank(_spec: AggregateSpec, rows: Sequence[Row], keys: Sequence[Any]) -> list[float]:
    found: list[float] = []
    for _, peers in groupby(keys):
        found += [len(found) / (len(rows) - 1) if len(rows) > 1 else 0.0] * len(list(peers))
    return found


def _cume_dist(_spec: AggregateSpec, rows: Sequence[Row], keys: Sequence[Any]) -> list[float]:
    found: list[float] = []
    for _, peers in groupby(keys):
        count = len(list(peers))
        found += [(len(found) + count) / len(rows)] * count
    return found


_OF_THE_WHOLE: Final[dict[str, Callable[[AggregateSpec, Sequence[Row], Sequence[Any]], Sequence[Any]]]] = {
    "LEAD": _lead,
    "NTILE": _tile,
    "PERCENT_RANK": _percent_rank,
    "CUME_DIST": _cume_dist,
}
"""Functions that look at a whole partition, of its rows in order and their sort keys."""
