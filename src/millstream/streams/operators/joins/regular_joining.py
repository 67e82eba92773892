"""Regular joins: state is kept for the job's TTL, and results are updated as rows change."""

from __future__ import annotations

from millstream.streams.operators.aggregates.collected import hashable
from millstream.streams.operators.changelog_compaction import compact_changes
from millstream.streams.operators.evaluate import Evaluator
from millstream.streams.operators.keys import frozen
from millstream.streams.operators.operator import DELETE, INSERT, UPDATE_AFTER, BatchTimes, Changes, OperatorOutput, Row
from millstream.streams.operators.state import GroupedTable, OperatorState
from millstream.streams.plan.joins import JoinKind

__all__ = ["JoinShape", "RegularJoiner"]


class JoinShape:
    """What a join needs to know of its rows: the first `keys` columns of each side are its key.

    `widths` are the numbers of columns behind the key that go on, left and right. `condition` reads the left row's and
    then the right row's of those.
    """

    def __init__(self, kind: JoinKind, keys: int, widths: tuple[int, int], condition: Evaluator | None = None) -> None:
        self.kind = kind
        self.keys = keys
        self.widths = widths
        self.condition = condition
        self.keeps = (kind.keeps_left, kind.keeps_right)
        self._nothing = ((None,) * widths[0], (None,) * widths[1])

    def key_of(self, row: Row) -> Row | None:
        """The key; None where a part of it is NULL, which equals nothing."""
        key = row[: self.keys]
        if None in key:
            return None
        return tuple(map(hashable, key))

    def fits(self, left: Row, right: Row) -> bool:
        """Whether the condition holds."""
        return self.condition is None or self.condition(left + right) is True

    def pair(self, side: int, row: Row, other: Row | None) -> Row:
        """The joined row of a row of `side` and one of the other side; None is no partner."""
        partner = self._nothing[1 - side] if other is None else other
        return row + partner if side == 0 else partner + row


_Entry = tuple[Row, int, int]
"""Of equal rows: one of them, how many there are, and how many partners each has."""

_Side = GroupedTable[Row, _Entry]


class RegularJoiner:
    """INNER, LEFT, RIGHT, FULL, SEMI and ANTI over rows that come and go."""

    def __init__(self, shape: JoinShape) -> None:
        self._shape = shape
        self._sides: tuple[_Side, _Side] = (GroupedTable(), GroupedTable())
        self._pending = OperatorOutput()

    def open(self, state: OperatorState) -> None:
        """The rows of each side by key."""
        self._sides = (state.grouped_table("left", lives=True), state.grouped_table("right", lives=True))

    def process(self, number: int, changes: Changes, turn: BatchTimes, out: OperatorOutput) -> None:
        """Take rows of one side and look for partners among those of the other."""
        # Only a join that keeps rows without partners says things that the same turn may undo.
        target = out if self._shape.kind is JoinKind.INNER else self._pending
        for kind, whole in changes:
            key, row = self._shape.key_of(whole), whole[self._shape.keys :]
            comes = kind in (INSERT, UPDATE_AFTER)
            if key is None:
                self._without_key(number, row, INSERT if comes else DELETE, target)
            else:
                self._change(number, key, row, comes, target)

    def advance(self, turn: BatchTimes, out: OperatorOutput) -> None:
        """Say what the rows of both sides come to; forget rows whose time to live is over."""
        if self._pending.rows:
            compact_changes(self._pending, out)
            self._pending = OperatorOutput()
        for side in self._sides:
            side.expire()

    def _without_key(self, side: int, row: Row, kind: int, said: OperatorOutput) -> None:
        """A row that has no partner whatever comes needs no place in the state."""
        if self._shape.keeps[side]:
            said.emit(kind, row if self._shape.kind.only_left else self._shape.pair(side, row, None))

    def _change(self, side: int, key: Row, row: Row, comes: bool, said: OperatorOutput) -> None:
        ours, theirs = self._sides[side], self._sides[1 - side]
        partners = [
            entry
            for entry in list(theirs.group(key).values())
            if (self._shape.fits(row, entry[0]) if side == 0 else self._shape.fits(entry[0], row))
        ]
        name = frozen(row)
        known = ours.group(key).get(name)
        count = (known[1] if known is not None else 0) + (1 if comes else -1)
        if count > 0:
            ours.put(key, name, (row, count, sum(number for _, number, _ in partners)))
        else:
            ours.delete(key, name)
        kind = INSERT if comes else DELETE
        if self._shape.kind.only_left:
            self._exists(side, key, row, partners, kind, said)
        else:
            self._pair(side, key, row, partners, kind, said)

    def _pair(self, side: int, key: Row, row: Row, partners: list[_Entry], kind: int, said: OperatorOutput) -> None:
        """Say the pairs of a row, and what they make of partners that were alone before or are now."""
        shape, theirs = self._shape, self._sides[1 - side]
        if not partners and shape.keeps[side]:
            said.emit(kind, shape.pair(side, row, None))
        for other, number, paired in partners:
            now = paired + (1 if kind == INSERT else -1)
            if shape.keeps[1 - side]:
                theirs.put(key, frozen(other), (other, number, now))
                if (paired == 0) != (now == 0):
                    alone = shape.pair(1 - side, other, None)
                    for _ in range(number):
                        said.emit(DELETE if kind == INSERT else INSERT, alone)
            for _ in range(number):
                said.emit(kind, shape.pair(side, row, other))

    def _exists(self, side: int, key: Row, row: Row, partners: list[_Entry], kind: int, said: OperatorOutput) -> None:
        """SEMI and ANTI: a left row is there by whether it has partners."""
        semi = self._shape.kind is JoinKind.SEMI
        if side == 0:
            if bool(partners) is semi:
                said.emit(kind, row)
            return
        left = self._sides[0]
        for other, number, paired in partners:
            now = paired + (1 if kind == INSERT else -1)
            left.put(key, frozen(other), (other, number, now))
            if (paired == 0) != (now == 0):
                for _ in range(number):
                    said.emit(INSERT if (now > 0) is semi else DELETE, other)
