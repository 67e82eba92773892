"""The rows that frames of an OVER still hold, by key: each is written once, in the turn in which it comes."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from millstream.streams.operators.aggregates.catalogue import AggregateSpec
from millstream.streams.operators.changes import Row
from millstream.streams.operators.over_frames import Sliding, sliding_of
from millstream.streams.operators.state import KeyedTable, State

__all__ = ["Frames", "Held", "OpenFrame"]


class Held(NamedTuple):
    """Which segments of a key hold rows: `first` up to `next`, of the first those behind `skipped`."""

    first: int = 0
    skipped: int = 0
    next: int = 0


@dataclass(slots=True)
class OpenFrame:
    """A key's frame while rows come: its rows, the oldest first, and the aggregates over them."""

    held: Held
    rows: deque[Row]
    slidings: list[Sliding]

    def enter(self, row: Row) -> None:
        """Take a row in at the end."""
        self.rows.append(row)
        for sliding in self.slidings:
            sliding.enter(row)

    def leave(self) -> None:
        """Let the oldest row go."""
        row = self.rows.popleft()
        for sliding in self.slidings:
            sliding.leave(row)


class Frames:
    """The frames of all keys. Aggregates over them are made anew of the rows wherever a state is read."""

    def __init__(self, specs: Sequence[AggregateSpec]) -> None:
        self._specs = specs
        self._segments: KeyedTable[tuple[Hashable, int], list[Row]] = KeyedTable()
        self._open: dict[Hashable, OpenFrame] = {}

    def open(self, state: State) -> None:
        """Rows by key and number of their segment."""
        self._segments = state.table("segments")

    def frame(self, key: Hashable, held: Held) -> OpenFrame:
        """The frame of a key as it is after its last turn."""
        frame = self._open.get(key)
        if frame is None or frame.held != held:
            frame = OpenFrame(held, deque(), [sliding_of(spec) for spec in self._specs])
            rows = [row for number in range(held.first, held.next) for row in self._segments.get((key, number)) or ()]
            for row in rows[held.skipped :]:
                frame.enter(row)
            self._open[key] = frame
        return frame

    def keep(self, key: Hashable, frame: OpenFrame, gone: int, come: int) -> Held:
        """Write what a turn did to a frame: `gone` of its oldest rows have left, `come` have entered."""
        first, skipped, number = frame.held
        skipped += gone
        while first < number and skipped >= (size := len(self._segments.get((key, first)) or ())):
            skipped -= size
            self._segments.delete((key, first))
            first += 1
        if first == number:
            skipped = 0
        if come and frame.rows:
            rows = list(frame.rows)
            self._segments.put((key, number), rows[-come:] if come < len(rows) else rows)
            number += 1
        frame.held = Held(first, skipped, number)
        return frame.held

    def forget(self, key: Hashable, held: Held) -> None:
        """The key has no rows any more."""
        for number in range(held.first, held.next):
            self._segments.delete((key, number))
        self._open.pop(key, None)
