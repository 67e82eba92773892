"""Joins with the version of a row that was valid at a time: left rows wait for the watermark, versions are kept."""

from __future__ import annotations

from bisect import bisect_right

from millstream.streams.operators.changes import DELETE, UPDATE_BEFORE, Changes, Output, Row
from millstream.streams.operators.joining import JoinShape
from millstream.streams.operators.state import GroupedTable, KeyedTable, State, Timers
from millstream.streams.operators.turn import Turn
from millstream.streams.plan.joins import JoinKind

__all__ = ["TemporalJoiner"]

_Waiting = tuple[int, Row, Row]
"""What a left row says, its key, the row."""


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
        self._waiting: GroupedTable[int, _Waiting] = GroupedTable()
        self._numbers: KeyedTable[str, int] = KeyedTable()
        self._turns: Timers[int] = Timers()
        self._versions: GroupedTable[int, Row | None] = GroupedTable()
        self._passed: Timers[tuple[Row, int]] = Timers()

    def open(self, state: State) -> None:
        """Left rows by their time, versions by key and time; a timer for each."""
        self._waiting = state.grouped("waiting")
        self._numbers = state.table("numbers")
        self._turns = state.timers("turns")
        self._versions = state.grouped("versions", lives=True)
        self._passed = state.timers("passed")

    def process(self, number: int, changes: Changes, turn: Turn, out: Output) -> None:
        """Keep left rows until their time has come, and versions."""
        for kind, whole in changes:
            key, row = self._shape.key_of(whole), whole[self._shape.keys :]
            time_us = row[self._times[number]]
            if number == 1:
                # What a row was before ends with what it is now, not with its own beginning.
                if key is not None and time_us is not None and kind != UPDATE_BEFORE:
                    self._versions.put(key, time_us, None if kind == DELETE else row)
                    self._passed.set((key, time_us), time_us)
            elif key is None or time_us is None:
                self._alone(kind, row, out)
            else:
                self._wait(time_us, (kind, key, row))

    def advance(self, turn: Turn, out: Output) -> None:
        """Say the left rows whose time has come; forget versions that none can ask for any more."""
        known: dict[Row, list[int]] = {}
        for time_us, _ in self._turns.due(turn.watermark_us):
            for number, (kind, key, row) in list(self._waiting.group(time_us).items()):
                self._waiting.delete(time_us, number)
                times = known.get(key)
                if times is None:
                    times = known[key] = sorted(self._versions.group(key))
                place = bisect_right(times, time_us)
                if place == 0 and times and time_us <= turn.watermark_before_us:
                    out.late.append((0, row))
                self._say(kind, row, self._versions.group(key)[times[place - 1]] if place else None, out)
        for _, (key, _) in self._passed.due(turn.watermark_us):
            self._forget(key, turn.watermark_us)
        self._versions.expire()

    def _wait(self, time_us: int, waiting: _Waiting) -> None:
        number = (self._numbers.get("next") or 0) + 1
        self._numbers.put("next", number)
        self._waiting.put(time_us, number, waiting)
        self._turns.set(time_us, time_us)

    def _say(self, kind: int, row: Row, version: Row | None, out: Output) -> None:
        if version is None or not self._shape.fits(row, version):
            self._alone(kind, row, out)
        else:
            out.emit(kind, row + version)

    def _alone(self, kind: int, row: Row, out: Output) -> None:
        if self._shape.kind is JoinKind.LEFT:
            out.emit(kind, self._shape.pair(0, row, None))

    def _forget(self, key: Row, watermark_us: int) -> None:
        """Leave of the versions behind the watermark the newest alone, and no end of versions."""
        versions = self._versions.group(key)
        passed = sorted(time_us for time_us in versions if time_us <= watermark_us)
        if passed and versions[passed[-1]] is not None:
            passed.pop()
        for time_us in passed:
            self._versions.delete(key, time_us)
