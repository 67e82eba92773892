"""Top-N per partition over changing rows, and deduplication by event time."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Hashable, Sequence
from typing import Any, Final, Literal

import numpy as np

from millstream.streams.operators.columns import ColumnRows, first_of_each
from millstream.streams.operators.keys import IS_VALUE, OrderColumn, row_key, rows_by_key, sort_key
from millstream.streams.operators.operator import DELETE, INSERT, UPDATE_AFTER, BatchTimes, Changes, OperatorOutput, Row
from millstream.streams.operators.state import KeyedTable, KeyTimers, OperatorState

__all__ = ["FirstRows", "OrderColumn", "Ranker"]


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
        self._partitions: KeyedTable[Hashable, object] = KeyedTable()
        self._waiting: KeyedTable[Hashable, Row] = KeyedTable()
        self._ends: KeyTimers[Hashable] = KeyTimers()

    def open(self, state: OperatorState) -> None:
        """Keys whose row was told, which may be forgotten after a time to live; rows that wait, with their times."""
        # The name that a Top-N has for its keys: a checkpoint in which this was one knows what was told.
        self._partitions = state.table("partitions", lives=True)
        self._waiting = state.table("waiting")
        self._ends = state.timers("ends")

    def process(self, number: int, changes: Changes, turn: BatchTimes, out: OperatorOutput) -> None:
        """Take rows; those of keys that were told change nothing."""
        rows, late_us = changes.rows, turn.watermark_before_us
        if isinstance(rows, ColumnRows) and rows.are_many:
            rows = self._candidates(rows, late_us)
        time, key_of, told, waiting = self._time, self._key, self._partitions, self._waiting
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
                self._partitions.put(key, _TOLD)
        self._partitions.expire()

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


_NO_LIMIT: Final = 2**63 - 1

_Partition = tuple[list[Any], list[Row]]
"""Sort keys and rows, both in order; equal keys in the order of arrival."""


class Ranker:
    """The rows at places `first` to `last` of their partition, with the place behind them if `ranked`.

    `window_end` is the place of a column with the attached window's end: then nothing is said before the watermark
    has passed it, each row once. `changing` inputs may take rows back. With `newest_first` the later of rows with equal
    keys stands before the earlier one.
    """

    def __init__(
        self,
        partition: tuple[int, ...],
        order: tuple[OrderColumn, ...],
        function: Literal["ROW_NUMBER", "RANK", "DENSE_RANK"],
        first: int,
        last: int,
        *,
        ranked: bool,
        window_end: int | None = None,
        changing: bool = True,
        newest_first: bool = False,
    ) -> None:
        self._key = row_key(partition)
        self._partition = partition
        self._order = order
        self._sort_key = sort_key(order)
        self._function = function
        self._first = first
        self._last = last
        self._ranked = ranked
        self._window_end = window_end
        self._changing = changing
        self._newest_first = newest_first
        self._place_of = bisect_left if newest_first else bisect_right
        # Only rows that come, and of those only the first few, are ever needed again.
        self._bounded = not changing and window_end is None and function == "ROW_NUMBER"
        self._tells_places = ranked or first > 1 or last == 1
        self._kept: KeyedTable[Any, _Partition] = KeyedTable()
        self._ends: KeyTimers[Any] = KeyTimers()

    def open(self, state: OperatorState) -> None:
        """Rows by partition; for windows a timer at their end."""
        self._kept = state.table("partitions", lives=self._window_end is None)
        self._ends = state.timers("ends")

    def process(self, number: int, changes: Changes, turn: BatchTimes, out: OperatorOutput) -> None:
        """Take rows; partitions that changed tell it once, at the end."""
        if self._bounded:
            self._take(changes.rows, out)
            return
        touched: dict[Any, list[Row] | None] = {}
        for kind, row in changes:
            key = self._key(row)
            if self._window_end is not None:
                end_us = row[self._window_end]
                if end_us - 1000 <= turn.watermark_before_us:
                    if kind in (INSERT, UPDATE_AFTER):
                        out.late.append((number, row))
                    continue
                self._ends.set(key, end_us - 1000)
            partition = self._kept.get(key)
            if key not in touched:
                touched[key] = None if self._window_end is not None else self._rank_rows(partition)
            if partition is None:
                partition = ([], [])
            if kind in (INSERT, UPDATE_AFTER):
                self._add(partition, row)
            else:
                self._remove(partition, row)
            self._kept.put(key, partition)
        for key, before in touched.items():
            partition = self._kept.get(key)
            if before is not None:
                self._emit_difference(before, self._rank_rows(partition), out)
            if partition is not None and not partition[1]:
                self._kept.delete(key)

    def advance(self, turn: BatchTimes, out: OperatorOutput) -> None:
        """Say what the windows that are over hold; forget partitions whose time to live is over."""
        for _, key in self._ends.due(turn.watermark_us):
            for row in self._rank_rows(self._kept.delete(key)):
                out.insert(row)
        self._kept.expire()

    def _take(self, rows: Sequence[Row], out: OperatorOutput) -> None:
        """Take rows that come, by partition; those that no place is free for are passed over at once."""
        sort_key, last = self._sort_key, self._last
        if isinstance(rows, ColumnRows) and rows.are_many:
            rows = self._candidates(rows)
        for key, members in rows_by_key(rows, self._key).items():
            partition = self._kept.get(key)
            keys, kept = partition or ([], [])
            pairs = [(sort_key(row), row) for row in members]
            if len(keys) >= last:
                worst = keys[-1]
                pairs = [pair for pair in pairs if pair[0] < worst or (self._newest_first and pair[0] == worst)]
                if not pairs:
                    continue
            if self._tells_places:
                before = self._rank_rows((keys, kept))
                self._enter(keys, kept, pairs)
                self._emit_difference(before, self._rank_rows((keys, kept)), out)
            else:
                _emit_moved(*self._enter(keys, kept, pairs), out)
            self._kept.put(key, (keys, kept))

    def _enter(self, keys: list[Any], kept: list[Row], pairs: Sequence[tuple[Any, Row]]) -> tuple[list[Row], list[Row]]:
        """Put rows to their places; those that came to one, and those that went from the last."""
        last = self._last
        come, gone = [], []
        for found, row in pairs:
            place = self._place_of(keys, found)
            if place < last:
                keys.insert(place, found)
                kept.insert(place, row)
                come.append(row)
                if len(kept) > last:
                    keys.pop()
                    gone.append(kept.pop())
        return come, gone

    def _candidates(self, rows: ColumnRows) -> Sequence[Row]:
        """Rows without those that cannot be among the places, where whole columns tell that."""
        if len(self._order) != 1:
            return rows
        place, ascending = self._order[0].place, self._order[0].ascending
        found, keys = rows.numbers(place), rows.keys(self._partition)
        if found is None or found.known is not None or keys is None:
            return rows
        # A complement turns the order round, and is never too large.
        values = found.values if ascending else ~found.values
        limits = [self._limit(key, ascending=ascending) for key in keys.keys]
        least = np.array([_NO_LIMIT if limit is None else limit for limit in limits], np.int64)[keys.places]
        has_place = values <= least if self._newest_first else values < least
        if None in limits:
            has_place |= np.array([limit is None for limit in limits])[keys.places]
        places = np.flatnonzero(has_place)
        return rows.at(first_of_each(keys.places, values, places, self._last, newest_first=self._newest_first))

    def _limit(self, key: Hashable, *, ascending: bool) -> int | None:
        """The value at a partition's last place, turned round where larger ones come first; None: there is room."""
        partition = self._kept.get(key)
        if partition is None or len(partition[0]) < self._last:
            return None
        has_value, value = partition[0][-1]
        if has_value != IS_VALUE:
            return None
        return int(value) if ascending else int(value) - 1

    def _add(self, partition: _Partition, row: Row) -> None:
        keys, rows = partition
        key = self._sort_key(row)
        place = self._place_of(keys, key)
        if not self._changing and place >= self._last and (self._function == "ROW_NUMBER" or not self._ties(keys, key)):
            return
        keys.insert(place, key)
        rows.insert(place, row)
        if not self._changing and self._function == "ROW_NUMBER":
            del keys[self._last :], rows[self._last :]

    def _ties(self, keys: Sequence[Any], key: Any) -> bool:
        """Whether a row behind the last place has the same rank as one before it."""
        return self._function == "DENSE_RANK" or (len(keys) >= self._last and keys[self._last - 1] == key)

    def _remove(self, partition: _Partition, row: Row) -> None:
        keys, rows = partition
        key = self._sort_key(row)
        for place in range(bisect_left(keys, key), bisect_right(keys, key)):
            if rows[place] == row:
                del keys[place], rows[place]
                return

    def _rank_rows(self, partition: _Partition | None) -> list[Row]:
        """The rows at the wanted places, with the place where it is asked for."""
        if partition is None:
            return []
        keys, rows = partition
        if self._function == "ROW_NUMBER":
            places = rows[self._first - 1 : self._last]
            return [(*row, place) for place, row in enumerate(places, self._first)] if self._ranked else places
        shown: list[Row] = []
        rank = dense = 0
        for number, row in enumerate(rows):
            if number == 0 or keys[number] != keys[number - 1]:
                rank, dense = number + 1, dense + 1
            place = rank if self._function == "RANK" else dense
            if place > self._last:
                break
            if place >= self._first:
                shown.append((*row, place) if self._ranked else row)
        return shown

    def _emit_difference(self, before: Sequence[Row], after: Sequence[Row], out: OperatorOutput) -> None:
        """The difference of two lists of rows: by place where places are told, else by what came and went."""
        if self._ranked and self._function == "ROW_NUMBER":
            for place in range(max(len(before), len(after))):
                old = before[place] if place < len(before) else None
                out.update(old, after[place] if place < len(after) else None)
            return
        if self._first == self._last == 1 and self._function == "ROW_NUMBER":
            out.update(before[0] if before else None, after[0] if after else None)
            return
        # Mostly the rows are the same ones; only the others are compared by what is in them.
        olds, news = set(map(id, before)), set(map(id, after))
        stayed = olds & news if len(olds) == len(before) and len(news) == len(after) else set()
        gone = [row for row in before if id(row) not in stayed]
        come = []
        for row in after:
            if id(row) in stayed:
                continue
            if row in gone:
                gone.remove(row)
            else:
                come.append(row)
        for row in gone:
            out.emit(DELETE, row)
        for row in come:
            out.emit(INSERT, row)


def _emit_moved(come: Sequence[Row], gone: list[Row], out: OperatorOutput) -> None:
    """Rows that have come and gone; one that did both says nothing."""
    stay = []
    for row in come:
        if gone and row in gone:
            gone.remove(row)
        else:
            stay.append(row)
    out.rows += gone
    out.kinds += [DELETE] * len(gone)
    out.rows += stay
    out.kinds += [INSERT] * len(stay)
