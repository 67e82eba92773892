"""GROUP BY with a window: sums of slices by key, put together when the watermark passes a window's end.

A window may also speak early, and late for rows behind its end: then each of its rows takes the one before back.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from millstream.streams.operators.aggregates.catalogue import AggregateSpec
from millstream.streams.operators.aggregates.collected import hashable
from millstream.streams.operators.aggregates.group import Group, GroupMachine
from millstream.streams.operators.changes import INSERT, UPDATE_AFTER, Changes, Output, Row
from millstream.streams.operators.state import KeyedTable, State, Timers
from millstream.streams.operators.turn import Turn
from millstream.streams.operators.window_times import Slicing, Span, last_moment

__all__ = ["Speaking", "Windower"]


@dataclass(frozen=True, slots=True)
class Speaking:
    """When windows speak beside their end, in microseconds; None: never. `lateness_us` is how long late rows count."""

    early_us: int | None = None
    late_us: int | None = None
    lateness_us: int = 0

    @property
    def updates(self) -> bool:
        """Whether a window may say more than one row."""
        return self.early_us is not None or self.late_us is not None or self.lateness_us > 0


_Key = tuple[Row, Any]
_Run = tuple[Row, list[Row], list[Row]]


class Windower:
    """Keys, aggregates and bounds of each window. The first `keys` columns of a row are the key.

    `slicing` None: the rows carry their windows, at the places `time` (start) and `time` + 1 (end). Else `time` is the
    place of the event time; with `on_arrival` the turn's processing time counts in its stead.
    """

    def __init__(
        self,
        keys: int,
        specs: Sequence[AggregateSpec],
        time: int,
        slicing: Slicing | None,
        *,
        speaking: Speaking = Speaking(),
        on_arrival: bool = False,
        changing: bool = False,
    ) -> None:
        self._keys = keys
        self._time = time
        self._slicing = slicing
        self._speaking = speaking
        self._on_arrival = on_arrival
        self._machine = GroupMachine(specs, changing=changing)
        self._slices: KeyedTable[_Key, tuple[Row, Group]] = KeyedTable()
        self._ends: Timers[tuple[Row, Span]] = Timers()
        self._said: KeyedTable[tuple[Row, Span], Row] = KeyedTable()
        self._speaks: Timers[tuple[Row, Span]] = Timers()

    def open(self, state: State) -> None:
        """Slices by key and start; windows by key with the time of their end; what windows have said."""
        self._slices = state.table("slices")
        self._ends = state.timers("ends")
        self._said = state.table("said")
        self._speaks = state.timers("speaks")

    def process(self, number: int, changes: Changes, turn: Turn, out: Output) -> None:
        """Take rows; those of windows that are over are late."""
        passed_us = self._passed(turn, before=True)
        runs: dict[_Key, _Run] = {}
        for kind, row in changes:
            place = self._place(row, turn)
            if place is None:
                continue
            key = (tuple(map(hashable, row[: self._keys])), place)
            run = runs.get(key)
            if run is None:
                run = runs[key] = (row[: self._keys], [], [])
            (run[1] if kind in (INSERT, UPDATE_AFTER) else run[2]).append(row)
        for key, (values, come, gone) in runs.items():
            every = list(self._windows(key[1]))
            windows = [one for one in every if self._is_open(one, passed_us)]
            if not windows:
                # Between windows that hop over a part of time lie moments of none.
                out.late += [(number, row) for row in come if every]
                continue
            known = self._slices.get(key)
            group = self._machine.new() if known is None else known[1]
            self._machine.add(group, come)
            if gone:
                self._machine.retract(group, gone)
            self._slices.put(key, (values, group))
            for window in windows:
                self._note((key[0], window), passed_us, turn)

    def advance(self, turn: Turn, out: Output) -> None:
        """Say the windows that are over, and those that speak early or late now."""
        for _, of in self._speaks.due(turn.now_us):
            self._say(of, out)
        passed_us = self._passed(turn, before=False)
        for time_us, (key, window) in self._ends.due(passed_us):
            over_us = last_moment(window[1])
            self._say((key, window), out)
            if time_us < over_us + self._speaking.lateness_us and over_us + self._speaking.lateness_us > passed_us:
                self._ends.set((key, window), over_us + self._speaking.lateness_us)
                continue
            self._speaks.clear((key, window))
            self._said.delete((key, window))
            for place in self._last_needed(window):
                self._slices.delete((key, place))

    def _passed(self, turn: Turn, *, before: bool) -> int:
        if self._on_arrival:
            # Processing time says itself what is over; no row is ever late by it, also where all come in the last turn.
            return turn.watermark_us if turn.is_last and not before else turn.now_us - 1000
        return turn.watermark_before_us if before else turn.watermark_us

    def _place(self, row: Row, turn: Turn) -> Any:
        """The slice of a row: a start, or for rows with windows of their own both bounds; None without a time."""
        if self._on_arrival:
            assert self._slicing is not None
            return self._slicing.slice_of(turn.now_us)
        time_us = row[self._time]
        if time_us is None:
            return None
        return (time_us, row[self._time + 1]) if self._slicing is None else self._slicing.slice_of(time_us)

    def _windows(self, place: Any) -> Iterator[Span]:
        return iter((place,)) if self._slicing is None else self._slicing.windows_of(place)

    def _slices_of(self, window: Span) -> Iterator[Any]:
        return iter((window,)) if self._slicing is None else self._slicing.slices_of(window)

    def _last_needed(self, window: Span) -> Iterator[Any]:
        return iter((window,)) if self._slicing is None else self._slicing.last_needed(window)

    def _is_open(self, window: Span, passed_us: int) -> bool:
        return last_moment(window[1]) + self._speaking.lateness_us > passed_us

    def _note(self, of: tuple[Row, Span], passed_us: int, turn: Turn) -> None:
        """Rows have come to a window: wake at its end, and before or behind it where it speaks there."""
        over_us = last_moment(of[1][1])
        speaking = self._speaking
        if over_us > passed_us:
            self._ends.set(of, over_us)
            delay_us = speaking.early_us
        else:
            self._ends.set(of, over_us + speaking.lateness_us)
            delay_us = speaking.late_us or 0
        if delay_us is not None and self._speaks.time_of(of) is None:
            self._speaks.set(of, turn.now_us + delay_us)

    def _say(self, of: tuple[Row, Span], out: Output) -> None:
        key, window = of
        parts = [part for place in self._slices_of(window) if (part := self._slices.get((key, place))) is not None]
        before = self._said.get(of) if self._speaking.updates else None
        row: Row | None = None
        if parts:
            whole = self._machine.merged([group for _, group in parts])
            if whole[0] > 0:
                start_us, end_us = window
                row = (*parts[0][0], *self._machine.results(whole), start_us, end_us, last_moment(end_us))
        out.update(before, row)
        if self._speaking.updates and row is not None:
            self._said.put(of, row)
        elif before is not None:
            self._said.delete(of)
