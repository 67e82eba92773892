"""OVER in streams: each row with values over the preceding rows of its partition, in time order."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from operator import eq
from typing import Any, Literal

from millstream.streams.operators.aggregates.catalogue import AggregateSpec
from millstream.streams.operators.aggregates.group import Group, GroupMachine
from millstream.streams.operators.column_calls import column_calls
from millstream.streams.operators.columns import ColumnRows, Longs, Numbers
from millstream.streams.operators.keys import OrderColumn, row_key, rows_by_key, sort_key
from millstream.streams.operators.operator import INSERT, BatchTimes, Changes, OperatorOutput, Row
from millstream.streams.operators.over.column_over import ColumnOver, ReadyRows
from millstream.streams.operators.over.over_frames import OF_THE_PLACE, placed_of
from millstream.streams.operators.over.over_state import Frames, Held, OpenFrame, Partition
from millstream.streams.operators.state import KeyedTable, KeyTimers, OperatorState
from millstream.streams.operators.watermark_buffer import WatermarkBuffer

__all__ = ["OverFrame", "StreamingOver"]


@dataclass(frozen=True, slots=True)
class OverFrame:
    """The rows that aggregates look at: `preceding` rows before the row, or microseconds; None from the beginning.

    A "range" takes in all rows that are equal in the order. `following` is how far it reaches behind the row, None to
    the end; a negative number on either side keeps away from the row. Only runs that end look behind.
    """

    unit: Literal["rows", "range"] = "range"
    preceding: int | None = None
    following: int | None = 0


class StreamingOver:
    """The first `width` columns of each row, then one per call. Rows are never taken back.

    `time` is the place of the event time: rows wait for the watermark, and late ones are left out: those behind it, or
    where a frame moves, those that are not later than the last row that its key holds. None: processing time, rows are
    told at once. A frame that reaches back in event time is forgotten when the watermark has left it.
    """

    def __init__(
        self,
        width: int,
        partition: tuple[int, ...],
        order: tuple[OrderColumn, ...],
        specs: tuple[AggregateSpec, ...],
        frame: OverFrame,
        *,
        time: int | None,
    ) -> None:
        self._width = width
        self._key = row_key(partition)
        self._time = time
        self._order = sort_key(order)
        self._frame = frame
        self._calls = len(specs)
        self._framed = [number for number, spec in enumerate(specs) if spec.function not in OF_THE_PLACE]
        self._placed = [(number, placed_of(spec)) for number, spec in enumerate(specs) if spec.function in OF_THE_PLACE]
        framed = [specs[number] for number in self._framed]
        self._sliding = bool(framed) and frame.preceding is not None
        self._machine = GroupMachine(framed, changing=False)
        self._kept, moved = _kept_columns(framed)
        self._waiting = None if time is None else WatermarkBuffer(time, order)
        self._arrived: list[Row] = []
        calls = column_calls(framed) if self._is_by_time(order) and framed and not self._placed else None
        self._frames = Frames(moved, tuple(calls is not None and place in calls.summed for place in self._kept))
        self._columns = (
            None
            if calls is None or time is None
            else ColumnOver(calls, self._machine, self._kept, partition, time, frame.unit, frame.preceding)
        )
        self._arrived_by_column: tuple[ColumnRows, Longs] | None = None
        self._partitions: KeyedTable[Hashable, Partition] = KeyedTable()
        self._ends: KeyTimers[Hashable] = KeyTimers()

    def open(self, state: OperatorState) -> None:
        """Waiting rows; partitions by key; when a partition's frame is left behind."""
        if self._waiting is not None:
            self._waiting.open(state)
        self._frames.open(state)
        self._partitions = state.table("partitions", lives=True)
        self._ends = state.timers("ends")

    def process(self, number: int, changes: Changes, turn: BatchTimes, out: OperatorOutput) -> None:
        """Take rows."""
        if self._waiting is None:
            self._arrived += changes.rows
        elif (by_column := self._by_column(changes.rows)) is not None:
            rows, times = by_column
            places, late = self._waiting.divide(rows, times, turn)
            self._arrived_by_column = (rows, places)
            out.late += [(number, row) for row in self._too_late(late)]
        else:
            out.late += [(number, row) for row in self._too_late(self._waiting.take(changes.rows, turn))]

    def advance(self, turn: BatchTimes, out: OperatorOutput) -> None:
        """Say the rows whose time has come; forget frames that no later row looks at."""
        rows = self._waiting.due(turn) if self._waiting is not None else self._arrived
        self._arrived = []
        if self._arrived_by_column is not None:
            rows = self._emit_by_column(ReadyRows(rows, *self._arrived_by_column), out)
            self._arrived_by_column = None
        for key, members in rows_by_key(rows, self._key).items():
            self._emit_rows(key, members, turn, out)
        for _, key in self._ends.due(turn.watermark_us if self._time is not None else turn.now_us - 1):
            self._leave(key)
        for key, partition in self._partitions.expire():
            self._frames.forget(key, partition.held)

    def _too_late(self, late: Sequence[Row]) -> list[Row]:
        """Those of the rows behind the watermark that are left out; the others are told in this turn."""
        if not self._sliding or not late:
            return list(late)
        assert self._waiting is not None
        assert self._time is not None
        left_out: list[Row] = []
        admitted: list[Row] = []
        for row in late:
            key = self._key(row)
            partition = self._partitions.get(key)
            newest_us = None if partition is None else self._frames.newest_us(key, partition.held)
            (admitted if newest_us is None or row[self._time] > newest_us else left_out).append(row)
        self._waiting.admit(admitted)
        return left_out

    def _is_by_time(self, order: Sequence[OrderColumn]) -> bool:
        return [(one.place, one.ascending) for one in order] == [(self._time, True)]

    def _by_column(self, rows: Sequence[Row]) -> tuple[ColumnRows, Numbers] | None:
        """Rows with their times, where they may be said by column."""
        if self._columns is None or self._time is None or not isinstance(rows, ColumnRows) or not rows.are_many:
            return None
        times = rows.numbers(self._time)
        return None if times is None else (rows, times)

    def _emit_by_column(self, arrived: ReadyRows, out: OperatorOutput) -> list[Row]:
        """Say all rows at once, or give them back in the order of time."""
        assert self._columns is not None
        results = self._columns.compute(arrived, self._partitions, self._frames)
        if results is None:
            return sorted(arrived.to_rows(), key=self._order)
        out.by_column.append(arrived.select(results.order, self._width, results.columns))
        for key, time_us in results.last_us:
            self._ends.set(key, time_us + (self._frame.preceding or 0))
        return []

    def _emit_rows(self, key: Hashable, rows: list[Row], turn: BatchTimes, out: OperatorOutput) -> None:
        partition = self._partitions.get(key)
        if partition is None:
            group = self._machine.new() if self._framed and not self._sliding else None
            partition = Partition(tuple(machine.new() for _, machine in self._placed), group, Held())
        columns: list[Sequence[Any]] = [()] * self._calls
        held = partition.held
        if self._sliding:
            frame = self._frames.frame(key, held)
            results, held = self._slide(key, frame, rows, turn)
            self._set_columns(columns, results)
            self._note(key, frame)
        elif partition.group is not None:
            if self._has_peers(rows):
                self._set_columns(columns, self._grow(partition.group, rows))
            else:
                for number, values in zip(self._framed, self._machine.running(partition.group, rows), strict=True):
                    columns[number] = values
        placed = self._place(partition.placed, rows, columns)
        self._partitions.put(key, Partition(placed, partition.group, held))
        width = self._width
        out.rows += [(*row[:width], *results) for row, results in zip(rows, zip(*columns, strict=True), strict=True)]
        out.kinds += [INSERT] * len(rows)

    def _set_columns(self, columns: list[Sequence[Any]], results: Iterable[Row]) -> None:
        for number, values in zip(self._framed, zip(*results, strict=True), strict=True):
            columns[number] = values

    def _place(self, states: Sequence[Any], rows: Sequence[Row], columns: list[Sequence[Any]]) -> tuple[Any, ...]:
        after = []
        for (number, machine), known in zip(self._placed, states, strict=True):
            state, values = known, []
            for row in rows:
                state, value = machine.next(state, row, self._order(row))
                values.append(value)
            columns[number] = values
            after.append(state)
        return tuple(after)

    def _has_peers(self, rows: Sequence[Row]) -> bool:
        """Whether rows are looked at together, as those of one event time are in a range."""
        if self._frame.unit == "rows" or self._time is None:
            return False
        keys = list(map(self._order, rows))
        return any(map(eq, keys, keys[1:]))

    def _steps(self, rows: list[Row]) -> Iterable[Sequence[Row]]:
        """The rows that are looked at together: peers in a range of event time, else each for itself."""
        if len(rows) == 1:
            return (rows,)
        if self._frame.unit == "rows" or (self._time is None and self._frame.preceding is None):
            return zip(rows)
        if self._time is None:
            return (rows,)
        return (list(peers) for _, peers in groupby(rows, self._order))

    def _grow(self, group: Group, rows: list[Row]) -> Iterator[Row]:
        """The results of a frame from the beginning."""
        for peers in self._steps(rows):
            self._machine.add(group, peers)
            results = self._machine.results(group)
            for _ in peers:
                yield results

    def _slide(self, key: Hashable, frame: OpenFrame, rows: list[Row], turn: BatchTimes) -> tuple[list[Row], Held]:
        """The results of a frame that moves, and which rows it holds at the end."""
        preceding = self._frame.preceding
        assert preceding is not None
        results: list[Row] = []
        before = len(frame.rows)
        for peers in self._steps(rows):
            time_us = turn.now_us if self._time is None else peers[0][self._time]
            for row in peers:
                frame.enter((time_us, *[row[place] for place in self._kept]))
            if self._frame.unit == "rows":
                while len(frame.rows) > preceding + 1:
                    frame.leave()
            else:
                while frame.rows[0][0] < time_us - preceding:
                    frame.leave()
            result = tuple([sliding.result() for sliding in frame.slidings])
            results += (result,) * len(peers)
        gone = before + len(rows) - len(frame.rows)
        return results, self._frames.keep(key, frame, min(gone, before), len(rows))

    def _note(self, key: Hashable, frame: OpenFrame) -> None:
        if self._frame.unit == "range" and self._frame.preceding is not None:
            self._ends.set(key, frame.rows[-1][0] + self._frame.preceding)

    def _leave(self, key: Hashable) -> None:
        """No row of the partition is in a frame any more."""
        partition = self._partitions.get(key)
        if partition is None:
            return
        self._frames.forget(key, partition.held)
        if self._placed:
            self._partitions.put(key, partition._replace(held=Held()))
        else:
            self._partitions.delete(key)


def _kept_columns(specs: Sequence[AggregateSpec]) -> tuple[tuple[int, ...], tuple[AggregateSpec, ...]]:
    """The places that calls read, and the calls over rows of the time and those places alone."""
    read = {place for spec in specs for place in spec.arguments}
    read |= {spec.filter for spec in specs if spec.filter is not None}
    places = sorted(read)
    moved = {place: number for number, place in enumerate(places, start=1)}
    return tuple(places), tuple(
        replace(
            spec,
            arguments=tuple(map(moved.__getitem__, spec.arguments)),
            filter=None if spec.filter is None else moved[spec.filter],
        )
        for spec in specs
    )
