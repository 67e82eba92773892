"""The state of OVER: rows that frames still need, by key, each written once."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np

from millstream.streams.operators.aggregates.catalogue import AggregateSpec
from millstream.streams.operators.aggregates.group import Group
from millstream.streams.operators.columns import Longs, Numbers, marks_of, numbers_of, to_list
from millstream.streams.operators.operator import Row
from millstream.streams.operators.over.over_frames import Sliding, sliding_of
from millstream.streams.operators.state import KeyedTable, OperatorState

__all__ = ["FrameColumns", "Frames", "Held", "OpenFrame", "Partition"]


class Held(NamedTuple):
    """Which segments of a key hold rows: `first` up to `next`, of the first those behind `skipped`; how many in all."""

    first: int = 0
    skipped: int = 0
    next: int = 0
    rows: int = 0


class Partition(NamedTuple):
    """What is kept of a partition: states of functions of the place, the group of all rows, or a frame's rows."""

    placed: tuple[Any, ...]
    group: Group | None
    held: Held


Segment = list[Row] | tuple[bytes, ...]
"""Rows that came in one turn: a list, or the bytes of their times, then of each column its values and which are known.
Without NULLs the latter are blank."""

_NUMBER_BYTES: Final = 8


class FrameColumns(NamedTuple):
    """Rows of frames by column: their times, and the columns that calls read."""

    times: Longs
    columns: tuple[Numbers, ...]

    def pack(self) -> Packed:
        """The same as bytes, of which single rows are taken."""
        columns = [
            (values.tobytes(), None if known is None or known.all() else known.tobytes())
            for values, known in self.columns
        ]
        return Packed(self.times.tobytes(), tuple(columns))


class Packed(NamedTuple):
    """The bytes of `FrameColumns`."""

    times: bytes
    columns: tuple[tuple[bytes, bytes | None], ...]

    def segment(self, start: int, end: int) -> tuple[bytes, ...]:
        """The rows from one place up to another."""
        part = slice(start * _NUMBER_BYTES, end * _NUMBER_BYTES)
        parts = [self.times[part]]
        for values, known in self.columns:
            parts += (values[part], b"" if known is None else known[start:end])
        return tuple(parts)


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
    """The frames of all keys. Aggregates over them are rebuilt of the rows wherever a state is read.

    Rows of frames have their time and then the columns that calls read; `kept` says of each whether it is summed. Of
    the others only NULLs count.
    """

    def __init__(self, specs: Sequence[AggregateSpec], kept: tuple[bool, ...]) -> None:
        self._specs = specs
        self._kept = kept
        self._segments: KeyedTable[tuple[Hashable, int], Segment] = KeyedTable()
        self._open: dict[Hashable, OpenFrame] = {}

    def open(self, state: OperatorState) -> None:
        """Rows by key and number of their segment."""
        self._segments = state.table("segments")

    def frame(self, key: Hashable, held: Held) -> OpenFrame:
        """The frame of a key as it is after its last turn."""
        frame = self._open.get(key)
        if frame is None or frame.held != held:
            frame = OpenFrame(held, deque(), [sliding_of(spec) for spec in self._specs])
            segments = [self._segments.get((key, number)) or [] for number in range(held.first, held.next)]
            rows = [row for segment in segments for row in _rows_of(segment)]
            for row in rows[held.skipped :]:
                frame.enter(row)
            self._open[key] = frame
        return frame

    def newest_us(self, key: Hashable, held: Held) -> int | None:
        """The time of the last row that the frame of a key holds; None where it holds none."""
        segment = self._segments.get((key, held.next - 1)) if held.rows else None
        if not segment:
            return None
        return segment[-1][0] if isinstance(segment, list) else int(np.frombuffer(segment[0], np.int64)[-1])

    def keep(self, key: Hashable, frame: OpenFrame, gone: int, come: int) -> Held:
        """Write what a turn did to a frame: `gone` of its oldest rows have left, `come` have entered."""
        rows = list(frame.rows) if come else []
        frame.held = self._write(key, frame.held, gone, rows[-come:] if come < len(rows) else rows)
        return frame.held

    def columns(self, held: Iterable[tuple[Hashable, Held]]) -> FrameColumns:
        """The rows of the frames of these keys, one after the other."""
        segments: list[tuple[bytes, ...]] = []
        for key, (first, skipped, end, _) in held:
            for number in range(first, end):
                segments.append(self._bytes_of(self._segments.get((key, number)) or [], skipped))
                skipped = 0
        times, *parts = list(zip(*segments, strict=True)) or [()] * (1 + 2 * len(self._kept))
        columns = []
        for values, known in zip(parts[::2], parts[1::2], strict=True):
            marks = None
            if any(known):
                filled = [one or b"\1" * (len(of) // _NUMBER_BYTES) for one, of in zip(known, values, strict=True)]
                marks = np.frombuffer(b"".join(filled), np.bool_)
            columns.append(Numbers(np.frombuffer(b"".join(values), np.int64), marks))
        return FrameColumns(np.frombuffer(b"".join(times), np.int64), tuple(columns))

    def keep_columns(self, key: Hashable, held: Held, gone: int, segment: tuple[bytes, ...]) -> Held:
        """Write what a turn did to a frame: `gone` of its oldest rows have left, those of `segment` have entered."""
        self._open.pop(key, None)
        return self._write(key, held, gone, segment if segment[0] else [])

    def _bytes_of(self, segment: Segment, skipped: int) -> tuple[bytes, ...]:
        """A segment as bytes, without its first rows."""
        if isinstance(segment, list):
            columns = [
                (numbers_of if summed else marks_of)(segment, place) for place, summed in enumerate(self._kept, start=1)
            ]
            frame = FrameColumns(numbers_of(segment, 0).values, tuple(columns))
            return frame.pack().segment(skipped, len(segment))
        if not skipped:
            return segment
        times, *parts = segment
        behind = skipped * _NUMBER_BYTES
        return times[behind:], *(part[skipped if place % 2 else behind :] for place, part in enumerate(parts))

    def _write(self, key: Hashable, held: Held, gone: int, segment: Segment) -> Held:
        first, skipped, number, rows = held
        rows += _size(segment) - gone
        skipped += gone
        while first < number and skipped >= (size := _size(self._segments.get((key, first)) or [])):
            skipped -= size
            self._segments.delete((key, first))
            first += 1
        if first == number:
            skipped = 0
        if segment:
            self._segments.put((key, number), segment)
            number += 1
        return Held(first, skipped, number, rows)

    def forget(self, key: Hashable, held: Held) -> None:
        """The key has no rows any more."""
        for number in range(held.first, held.next):
            self._segments.delete((key, number))
        self._open.pop(key, None)


def _size(segment: Segment) -> int:
    return len(segment) if isinstance(segment, list) else len(segment[0]) // _NUMBER_BYTES


def _rows_of(segment: Segment) -> list[Row]:
    if isinstance(segment, list):
        return segment
    times, *parts = segment
    columns = [
        to_list(Numbers(np.frombuffer(values, np.int64), np.frombuffer(known, np.bool_) if known else None))
        for values, known in zip(parts[::2], parts[1::2], strict=True)
    ]
    return list(zip(np.frombuffer(times, np.int64).tolist(), *columns, strict=True))
