"""NOT IN with NULLs on either side: emits left rows that provably match no right row.

A comparison with NULL is neither true nor false, so a row goes when a NULL comes that it may equal, and is back when
that goes. All rows meet in one bucket: a NULL concerns all of them.
"""

from __future__ import annotations

from collections.abc import Iterable

from millstream.streams.operators.aggregates.collected import hashable
from millstream.streams.operators.changelog_compaction import compact_changes
from millstream.streams.operators.keys import frozen
from millstream.streams.operators.operator import DELETE, INSERT, UPDATE_AFTER, BatchTimes, Changes, OperatorOutput, Row
from millstream.streams.operators.state import GroupedTable, KeyedTable, OperatorState

__all__ = ["NotInJoiner"]


class NotInJoiner:
    """Left rows whose key no right key equals or, by a NULL on either side, may equal.

    The first `keys` columns of each side are its key. Of a key with several columns a NULL equals anything in its
    place, the other columns may still tell two keys apart. Rows whose TTL is over are forgotten, not taken back.
    """

    def __init__(self, keys: int) -> None:
        self._keys = keys
        self._left: GroupedTable[Row, tuple[Row, int]] = GroupedTable()
        self._right: KeyedTable[Row, int] = KeyedTable()
        self._shown: KeyedTable[Row, bool] = KeyedTable()
        self._loose_left: KeyedTable[Row, bool] = KeyedTable()
        self._loose_right: KeyedTable[Row, bool] = KeyedTable()
        self._pending = OperatorOutput()
        self._changed: dict[Row, None] = {}
        self._was_empty = False

    def open(self, state: OperatorState) -> None:
        """Left rows by key and whether they are shown, right keys with their numbers; keys that hold a NULL."""
        self._left = state.grouped_table("left", lives=True)
        self._right = state.table("right", lives=True)
        self._shown = state.table("shown")
        self._loose_left, self._loose_right = state.table("loose-left"), state.table("loose-right")

    def process(self, number: int, changes: Changes, turn: BatchTimes, out: OperatorOutput) -> None:
        """Take rows of one side."""
        for kind, row in changes:
            key = tuple(map(hashable, row[: self._keys]))
            step = 1 if kind in (INSERT, UPDATE_AFTER) else -1
            if number == 0:
                self._take_left(key, row[self._keys :], step)
            else:
                self._take_right(key, step)

    def advance(self, turn: BatchTimes, out: OperatorOutput) -> None:
        """Say which rows come and go."""
        for key in list(self._find_affected()):
            if (shown := self._is_shown(key)) != self._shown.get(key):
                self._shown.put(key, shown)
                for row, count in self._left.group(key).values():
                    self._emit(1 if shown else -1, row, count)
        self._changed, self._was_empty = {}, False
        if self._pending.rows:
            compact_changes(self._pending, out)
            self._pending = OperatorOutput()
        for key, _, _ in self._left.expire():
            self._forget_left(key)
        for key, _ in self._right.expire():
            self._loose_right.delete(key)

    def _take_left(self, key: Row, row: Row, step: int) -> None:
        if (shown := self._shown.get(key)) is None:
            shown = self._is_shown(key)
            self._shown.put(key, shown)
            if None in key:
                self._loose_left.put(key, True)
        name = frozen(row)
        known = self._left.group(key).get(name)
        count = (known[1] if known is not None else 0) + step
        if count > 0:
            self._left.put(key, name, (row, count))
        else:
            self._left.delete(key, name)
            self._forget_left(key)
        if shown:
            self._emit(step, row, 1)

    def _take_right(self, key: Row, step: int) -> None:
        before = self._right.get(key) or 0
        self._was_empty = self._was_empty or len(self._right) == 0
        if before + step > 0:
            self._right.put(key, before + step)
        else:
            self._right.delete(key)
        if (before > 0) == (before + step > 0):
            return
        self._was_empty = self._was_empty or len(self._right) == 0
        self._changed[key] = None
        if None in key and step > 0:
            self._loose_right.put(key, True)
        elif None in key:
            self._loose_right.delete(key)

    def _find_affected(self) -> Iterable[Row]:
        """Left keys that the turn's right keys may show or hide."""
        if not self._changed:
            return ()
        if self._was_empty or any(None in key for key in self._changed):
            return [key for key, _ in self._shown.items()]
        near = [key for key in self._changed if key in self._shown]
        return [*near, *(key for key, _ in self._loose_left.items())]

    def _is_shown(self, key: Row) -> bool:
        if None not in key:
            return key not in self._right and not any(_may_equal(key, other) for other, _ in self._loose_right.items())
        return not any(_may_equal(key, other) for other, _ in self._right.items())

    def _forget_left(self, key: Row) -> None:
        if not self._left.group(key):
            self._shown.delete(key)
            self._loose_left.delete(key)

    def _emit(self, step: int, row: Row, count: int) -> None:
        for _ in range(count):
            self._pending.emit(INSERT if step > 0 else DELETE, row)


def _may_equal(key: Row, other: Row) -> bool:
    """Whether two keys are equal where neither is NULL."""
    return all(mine is None or theirs is None or mine == theirs for mine, theirs in zip(key, other, strict=True))
