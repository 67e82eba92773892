"""Session windows: merges rows of one key with gaps shorter than the session gap."""

from __future__ import annotations

from collections.abc import Sequence

from millstream.streams.operators.aggregates.catalogue import AggregateSpec
from millstream.streams.operators.aggregates.collected import hashable
from millstream.streams.operators.aggregates.group import Group, GroupMachine
from millstream.streams.operators.operator import INSERT, UPDATE_AFTER, BatchTimes, Changes, OperatorOutput, Row
from millstream.streams.operators.state import KeyedTable, KeyTimers, OperatorState
from millstream.streams.operators.windows.window_times import last_moment

__all__ = ["SessionRows", "SessionWindower"]

_Session = tuple[int, int, Group]
"""Start, time of the last row, sums."""


class SessionWindower:
    """Keys, aggregates and bounds of each session. The first `keys` columns of a row are the key, `time` the place of
    its event time; with `on_arrival` the turn's processing time counts in its stead.

    With `changing` rows may be taken back: they leave the sums, and the session keeps its bounds, as in Flink. A
    session without rows says nothing.
    """

    def __init__(
        self,
        keys: int,
        specs: Sequence[AggregateSpec],
        time: int,
        gap_us: int,
        *,
        on_arrival: bool = False,
        changing: bool = False,
    ) -> None:
        self._keys = keys
        self._time = time
        self._gap_us = gap_us
        self._on_arrival = on_arrival
        self._machine = GroupMachine(specs, changing=changing)
        self._sessions: KeyedTable[Row, tuple[Row, list[_Session]]] = KeyedTable()
        self._ends: KeyTimers[Row] = KeyTimers()

    def open(self, state: OperatorState) -> None:
        """Open sessions by key in the order of time; a timer at the end of each key's first one."""
        self._sessions = state.table("sessions")
        self._ends = state.timers("ends")

    def process(self, number: int, changes: Changes, turn: BatchTimes, out: OperatorOutput) -> None:
        """Take rows. One that would be a session of its own behind the watermark is late."""
        runs: dict[Row, list[tuple[int, bool, Row]]] = {}
        for kind, row in changes:
            time_us = turn.now_us if self._on_arrival else row[self._time]
            if time_us is not None:
                come = kind in (INSERT, UPDATE_AFTER)
                runs.setdefault(tuple(map(hashable, row[: self._keys])), []).append((time_us, come, row))
        passed_us = turn.now_us - 1000 if self._on_arrival else turn.watermark_before_us
        for key, run in runs.items():
            known = self._sessions.get(key)
            values, sessions = known or (run[0][2][: self._keys], [])
            # A late row joins what came before it, so where there are such the order of arrival counts.
            if all(last_moment(time_us + self._gap_us) > passed_us for time_us, _, _ in run):
                run.sort(key=lambda one: one[0])
            for time_us, come, row in run:
                if not self._take(sessions, time_us, row, passed_us, come=come) and come:
                    out.late.append((number, row))
            if sessions:
                self._sessions.put(key, (values, sessions))
                self._ends.set(key, self._over_us(sessions[0]))

    def advance(self, turn: BatchTimes, out: OperatorOutput) -> None:
        """Say the sessions that are over."""
        passed_us = turn.watermark_us
        if self._on_arrival and not turn.is_last:
            passed_us = turn.now_us - 1000
        for _, key in self._ends.due(passed_us):
            known = self._sessions.get(key)
            if known is None:
                continue
            values, sessions = known
            while sessions and self._over_us(sessions[0]) <= passed_us:
                start_us, last_us, group = sessions.pop(0)
                end_us = last_us + self._gap_us
                self._emit(values, group, (start_us, end_us, last_moment(end_us)), out)
            if sessions:
                self._sessions.put(key, (values, sessions))
                self._ends.set(key, self._over_us(sessions[0]))
            else:
                self._sessions.delete(key)

    def _emit(self, values: Row, group: Group, bounds: Row, out: OperatorOutput) -> None:
        if group[0] > 0:
            out.insert((*values, *self._machine.results(group), *bounds))

    def _over_us(self, session: _Session) -> int:
        return last_moment(session[1] + self._gap_us)

    def _take(self, sessions: list[_Session], time_us: int, row: Row, passed_us: int, *, come: bool) -> bool:
        """Put a row into the session that it belongs to, joining two where it closes their gap; or take it out."""
        near = [
            place
            for place, (start_us, last_us, _) in enumerate(sessions)
            if start_us - self._gap_us <= time_us <= last_us + self._gap_us
        ]
        if not come:
            for place in near[:1]:
                self._machine.retract(sessions[place][2], [row])
            return bool(near)
        if not near:
            if last_moment(time_us + self._gap_us) <= passed_us:
                return False
            group = self._machine.new()
            self._machine.add(group, [row])
            place = sum(1 for one in sessions if one[0] < time_us)
            sessions.insert(place, (time_us, time_us, group))
            return True
        joined = [sessions[place] for place in near]
        group = joined[0][2] if len(joined) == 1 else self._machine.merge([one[2] for one in joined])
        self._machine.add(group, [row])
        start_us = min(time_us, joined[0][0])
        last_us = max(time_us, joined[-1][1])
        sessions[near[0] : near[-1] + 1] = [(start_us, last_us, group)]
        return True


class SessionRows(SessionWindower):
    """The rows of each session with its bounds behind them; the `keys` columns before a row are left out."""

    def __init__(self, keys: int, time: int, gap_us: int, *, on_arrival: bool = False) -> None:
        super().__init__(keys, (), time, gap_us, on_arrival=on_arrival)
        self._machine = _RowKeeper()

    def _emit(self, values: Row, group: Group, bounds: Row, out: OperatorOutput) -> None:
        for row in group:
            out.insert((*row[self._keys :], *bounds))


class _RowKeeper(GroupMachine):
    """Groups that are the rows themselves."""

    def __init__(self) -> None:
        super().__init__((), changing=False)

    def new(self) -> Group:
        return []

    def add(self, group: Group, rows: Sequence[Row]) -> None:
        group.extend(rows)

    def merge(self, groups: Sequence[Group]) -> Group:
        return [row for group in groups for row in group]
