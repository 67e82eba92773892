"""Sorted and cut results: rows that wait for their time or for the end, and the first ones that come."""

from __future__ import annotations

from millstream.streams.operators.aggregates.collected import hashable
from millstream.streams.operators.changes import INSERT, UPDATE_AFTER, Changes, Output, Row
from millstream.streams.operators.sort_keys import Place, sort_key
from millstream.streams.operators.state import GroupedTable, KeyedTable, State, Timers
from millstream.streams.operators.turn import END_OF_TIME_US, Turn

__all__ = ["Limiter", "Sorter"]


class Sorter:
    """All rows in the order of `order`, each once. One operator sorts all rows: there is one bucket.

    With `time`, the place of the event time that `order` begins with, rows are said when the watermark has come to
    their time; one that comes behind it is late. Without, they are said at the end of a bounded run. With
    `on_arrival` each turn's rows are sorted for themselves: they are of one processing time. The first `skip` rows are
    left out. A row that is taken back while it waits was never there; one that was said is taken back at once.
    """

    def __init__(
        self, order: tuple[Place, ...], *, time: int | None = None, on_arrival: bool = False, skip: int = 0
    ) -> None:
        self._sort_key = sort_key(order)
        self._time = time
        self._on_arrival = on_arrival
        self._skip = skip
        self._waiting: GroupedTable[int, Row] = GroupedTable()
        self._numbers: KeyedTable[str, int] = KeyedTable()
        self._ends: Timers[int] = Timers()

    def open(self, state: State) -> None:
        """Rows by their time and the number of their arrival; how many were left out."""
        self._waiting = state.grouped("waiting")
        self._numbers = state.table("numbers")
        self._ends = state.timers("ends")

    def process(self, number: int, changes: Changes, turn: Turn, out: Output) -> None:
        """Keep rows until their time has come."""
        for kind, row in changes:
            end_us = self._end_us(row, turn)
            if end_us is None:
                out.late.append((number, row))
            elif kind in (INSERT, UPDATE_AFTER):
                if self._time is not None and end_us <= turn.watermark_before_us:
                    out.late.append((number, row))
                else:
                    self._keep(end_us, row)
            elif not self._take_back(end_us, row):
                out.emit(kind, row)

    def advance(self, turn: Turn, out: Output) -> None:
        """Say the rows whose time has come."""
        until_us = max(turn.now_us, turn.watermark_us) if self._on_arrival else turn.watermark_us
        for end_us, _ in self._ends.due(until_us):
            waiting = self._waiting.group(end_us)
            # Equal rows in the order of arrival, also where the state was restored.
            rows = sorted((waiting[number] for number in sorted(waiting)), key=self._sort_key)
            for number in list(waiting):
                self._waiting.delete(end_us, number)
            for row in rows[self._skipped(len(rows)) :]:
                out.insert(row)

    def _skipped(self, count: int) -> int:
        """How many of the next `count` rows are still left out."""
        skipped = self._numbers.get("skipped") or 0
        more = min(self._skip - skipped, count)
        if more:
            self._numbers.put("skipped", skipped + more)
        return more

    def _end_us(self, row: Row, turn: Turn) -> int | None:
        if self._on_arrival:
            return turn.now_us
        if self._time is None:
            return END_OF_TIME_US
        time_us: int | None = row[self._time]
        return time_us

    def _keep(self, end_us: int, row: Row) -> None:
        number = (self._numbers.get("next") or 0) + 1
        self._numbers.put("next", number)
        self._waiting.put(end_us, number, row)
        self._ends.set(end_us, end_us)

    def _take_back(self, end_us: int, row: Row) -> bool:
        """Forget an equal row that waits; whether there is one."""
        wanted = tuple(map(hashable, row))
        for number, one in self._waiting.group(end_us).items():
            if tuple(map(hashable, one)) == wanted:
                self._waiting.delete(end_us, number)
                return True
        return False


class Limiter:
    """The rows that come first: `skip` of them are left out, the `limit` behind them are said. None is taken back."""

    def __init__(self, skip: int, limit: int | None) -> None:
        self._skip = skip
        self._limit = limit
        self._seen: KeyedTable[str, int] = KeyedTable()

    def open(self, state: State) -> None:
        """How many rows there were, up to the last one that is said."""
        self._seen = state.table("seen")

    def process(self, number: int, changes: Changes, turn: Turn, out: Output) -> None:
        """Say the rows that are neither too early nor too late."""
        seen = self._seen.get("rows") or 0
        last = None if self._limit is None else self._skip + self._limit
        start = max(self._skip - seen, 0)
        end = len(changes) if last is None else max(last - seen, 0)
        for row in changes.rows[start:end]:
            out.insert(row)
        after = seen + len(changes) if last is None else min(seen + len(changes), last)
        if after != seen:
            self._seen.put("rows", after)

    def advance(self, turn: Turn, out: Output) -> None:
        """Nothing waits."""
