"""Interval joins: state that can no longer match is removed by the watermark."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from millstream.streams.operators.joins.regular_joining import JoinShape
from millstream.streams.operators.operator import INSERT, UPDATE_AFTER, BatchTimes, Changes, OperatorOutput, Row
from millstream.streams.operators.state import GroupedTable, KeyedTable, KeyTimers, OperatorState
from millstream.streams.plan.joins import JoinKind

__all__ = ["IntervalJoiner"]

_Kept = list[Any]
"""Time, row, whether it has had a partner."""


class IntervalJoiner:
    """Pairs with right time + `lower_us` <= left time <= right time + `upper_us`. Rows are never taken back.

    `times` are the places of both sides' times among the columns behind the key. A row without a partner is said when
    none can come any more; so is the left row of an ANTI join, while that of a SEMI join is said with its first.
    """

    def __init__(self, shape: JoinShape, times: tuple[int, int], lower_us: int, upper_us: int) -> None:
        self._shape = shape
        self._times = times
        # How much later than a row's time its last partner may be, by side.
        self._waits_us = (max(-lower_us, 0), max(upper_us, 0))
        self._lower_us = lower_us
        self._upper_us = upper_us
        self._sides: tuple[GroupedTable[int, _Kept], GroupedTable[int, _Kept]] = (GroupedTable(), GroupedTable())
        self._over: GroupedTable[tuple[Row, int], None] = GroupedTable()
        self._ends: KeyTimers[tuple[int, int]] = KeyTimers()
        self._numbers: KeyedTable[str, int] = KeyedTable()

    def open(self, state: OperatorState) -> None:
        """Rows of each side by key and number; which rows end at a time."""
        self._sides = (state.grouped_table("left"), state.grouped_table("right"))
        self._over = state.grouped_table("over")
        self._ends = state.timers("ends")
        self._numbers = state.table("numbers")

    def process(self, number: int, changes: Changes, turn: BatchTimes, out: OperatorOutput) -> None:
        """Take rows of one side, look for partners among the other's, keep those that may still find one."""
        for kind, whole in changes:
            if kind not in (INSERT, UPDATE_AFTER):
                continue
            key, row = self._shape.key_of(whole), whole[self._shape.keys :]
            time_us = row[self._times[number]]
            if key is None or time_us is None:
                self._alone(number, row, out)
                continue
            paired = self._meet(number, key, row, time_us, out)
            end_us = time_us + self._waits_us[number]
            if end_us <= turn.watermark_before_us:
                if not paired:
                    out.late.append((number, row))
                    self._alone(number, row, out)
                continue
            if self._shape.kind is JoinKind.SEMI and number == 0 and paired:
                continue
            self._keep(number, key, [time_us, row, paired], end_us)

    def advance(self, turn: BatchTimes, out: OperatorOutput) -> None:
        """Forget rows that find no partner any more, and say those that never had one."""
        for time_us, (side, end_us) in self._ends.due(turn.watermark_us):
            group = (side, end_us)
            for key, number in list(self._over.group(group)):
                kept = self._sides[side].group(key).get(number)
                if kept is not None and not kept[2]:
                    self._alone(side, kept[1], out)
                self._sides[side].delete(key, number)
                self._over.delete(group, (key, number))
            assert time_us == end_us

    def _keep(self, side: int, key: Row, kept: _Kept, end_us: int) -> None:
        number = (self._numbers.get("next") or 0) + 1
        self._numbers.put("next", number)
        self._sides[side].put(key, number, kept)
        self._over.put((side, end_us), (key, number), None)
        self._ends.set((side, end_us), end_us)

    def _meet(self, side: int, key: Row, row: Row, time_us: int, out: OperatorOutput) -> bool:
        """Say the pairs of a row; whether it has any."""
        found = False
        theirs = self._sides[1 - side]
        for number, kept in list(self._partners(side, theirs.group(key), row, time_us)):
            if self._shape.kind is JoinKind.ANTI:
                pass
            elif self._shape.kind is JoinKind.SEMI:
                if side == 0 and not found:
                    out.insert(row)
                elif side == 1:
                    out.insert(kept[1])
            else:
                out.insert(self._shape.pair(side, row, kept[1]))
            found = True
            if self._shape.kind is JoinKind.SEMI and side == 1:
                theirs.delete(key, number)
            elif not kept[2]:
                kept[2] = True
                theirs.put(key, number, kept)
        return found

    def _partners(self, side: int, group: dict[int, _Kept], row: Row, time_us: int) -> Iterator[tuple[int, _Kept]]:
        for number, kept in group.items():
            between_us = time_us - kept[0] if side == 0 else kept[0] - time_us
            if self._lower_us <= between_us <= self._upper_us and (
                self._shape.fits(row, kept[1]) if side == 0 else self._shape.fits(kept[1], row)
            ):
                yield number, kept

    def _alone(self, side: int, row: Row, out: OperatorOutput) -> None:
        if self._shape.kind is JoinKind.ANTI:
            if side == 0:
                out.insert(row)
        elif self._shape.keeps[side]:
            out.insert(self._shape.pair(side, row, None))
