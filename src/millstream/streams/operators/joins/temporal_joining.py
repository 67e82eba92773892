"""Temporal joins: left rows wait for the watermark and join the version valid at their time."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from operator import itemgetter

from millstream.streams.operators.joins.regular_joining import JoinShape
from millstream.streams.operators.keys import OrderColumn
from millstream.streams.operators.operator import DELETE, UPDATE_BEFORE, BatchTimes, Changes, OperatorOutput, Row
from millstream.streams.operators.state import KeyedTable, KeyTimers, OperatorState
from millstream.streams.operators.watermark_buffer import WatermarkBuffer
from millstream.streams.plan.joins import JoinKind

__all__ = ["TemporalJoiner"]

_Versions = list[tuple[int, Row | None]]
"""Versions of one key in the order of time; None is the end of all before it."""

_since = itemgetter(0)


class TemporalJoiner:
    """INNER or LEFT: each left row with the newest right row of its key that is not newer than it.

    `times` are the places of both sides' times among the columns behind the key. The right input brings a version of
    its key with each row, or the end of all versions with a deletion. A left row is said when the watermark has come
    to its time, in the order of times. Of the versions behind the watermark only the newest is kept; a left row that
    comes so late that it is older than that one is late, and a LEFT join says it alone.
    """

    def __init__(self, shape: JoinShape, times: tuple[int, int]) -> None:
        self._shape = shape
        self._times = times
        # Time, kind, key, row.
        self._waiting = WatermarkBuffer(0, (OrderColumn(0),))
        self._late: list[Row] = []
        self._versions: KeyedTable[Row, _Versions] = KeyedTable()
        self._passed: KeyTimers[Row] = KeyTimers()

    def open(self, state: OperatorState) -> None:
        """Left rows by their time; versions by key, and when one of them can be forgotten."""
        self._waiting.open(state)
        self._versions = state.table("versions", lives=True)
        self._passed = state.timers("passed")

    def process(self, number: int, changes: Changes, turn: BatchTimes, out: OperatorOutput) -> None:
        """Keep left rows until their time has come, and versions."""
        waiting: list[Row] = []
        for kind, whole in changes:
            key, row = self._shape.key_of(whole), whole[self._shape.keys :]
            time_us = row[self._times[number]]
            if number == 1:
                # What a row was before ends with what it is now, not with its own beginning.
                if key is not None and time_us is not None and kind != UPDATE_BEFORE:
                    self._keep(key, time_us, None if kind == DELETE else row)
            elif key is None or time_us is None:
                self._alone(kind, row, out)
            else:
                waiting.append((time_us, kind, key, row))
        self._late += self._waiting.take(waiting, turn)

    def advance(self, turn: BatchTimes, out: OperatorOutput) -> None:
        """Say the left rows whose time has come; forget versions that none can ask for any more."""
        rows = [*self._late, *self._waiting.due(turn)]
        self._late = []
        for time_us, kind, key, row in rows:
            versions = self._versions.get(key) or []
            place = bisect_right(versions, time_us, key=_since)
            if place == 0 and versions and time_us <= turn.watermark_before_us:
                out.late.append((0, row))
            self._emit(kind, row, versions[place - 1][1] if place else None, out)
        for _, key in self._passed.due(turn.watermark_us):
            self._forget(key, turn.watermark_us)
        self._versions.expire()

    def _keep(self, key: Row, time_us: int, row: Row | None) -> None:
        versions = self._versions.get(key) or []
        if not versions or versions[-1][0] < time_us:
            versions.append((time_us, row))
        else:
            place = bisect_left(versions, time_us, key=_since)
            replaced = versions[place][0] == time_us
            versions[place : place + replaced] = [(time_us, row)]
        self._versions.put(key, versions)
        self._watch(key, versions)

    def _watch(self, key: Row, versions: _Versions) -> None:
        """Wake when the first version is over; an end of versions is over at once."""
        if versions[0][1] is None:
            self._passed.set(key, versions[0][0])
        elif len(versions) > 1:
            self._passed.set(key, versions[1][0])

    def _emit(self, kind: int, row: Row, version: Row | None, out: OperatorOutput) -> None:
        if version is None or not self._shape.fits(row, version):
            self._alone(kind, row, out)
        else:
            out.emit(kind, row + version)

    def _alone(self, kind: int, row: Row, out: OperatorOutput) -> None:
        if self._shape.kind is JoinKind.LEFT:
            out.emit(kind, self._shape.pair(0, row, None))

    def _forget(self, key: Row, watermark_us: int) -> None:
        """Leave of the versions behind the watermark the newest alone, and no end of versions."""
        versions = self._versions.get(key) or []
        over = bisect_right(versions, watermark_us, key=_since)
        if over and versions[over - 1][1] is not None:
            over -= 1
        left = versions[over:]
        if left:
            self._versions.put(key, left)
            self._watch(key, left)
        else:
            self._versions.delete(key)
