"""Positions of a stream: the current one, the end of the next micro-batch, and the split among tasks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

__all__ = ["MIN_ROWS", "Position", "QueueSpan", "Slice", "divide", "next_cut"]


@dataclass(frozen=True, slots=True)
class Position:
    """The next queue offset to read of each queue (key `broker/queue id`).

    `cut_ms` is the store time below which everything was taken, 0 if the cut was another one. `ended` says that the
    final tick was sent: event time is over, and goes on with a later position that is not. `name` is the source's,
    where there are several.
    `wakes` counts the ticks that woke a job while no rows came. `rules` is the version of the rules that judged what
    lies before it, where rules do (see `streams.rules.store`).
    """

    queues: dict[str, int] = field(default_factory=dict)
    cut_ms: int = 0
    ended: bool = False
    name: str = ""
    wakes: int = 0
    rules: int = 0

    def offset(self, queue: str) -> int:
        """The next offset of `queue`; 0 for a queue that is new."""
        return self.queues.get(queue, 0)

    def rows_since(self, earlier: Position) -> int:
        """How many offsets lie between `earlier` and this position."""
        return sum(max(0, offset - earlier.offset(queue)) for queue, offset in self.queues.items())

    def going_on(self) -> Position:
        """The same place while event time goes on."""
        return replace(self, ended=False)

    def to_json(self) -> dict[str, Any]:
        """The form that Spark stores."""
        rules = {"rules": self.rules} if self.rules else {}
        return {
            "queues": self.queues,
            "cut_ms": self.cut_ms,
            "ended": self.ended,
            "name": self.name,
            "wakes": self.wakes,
            **rules,
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Position:
        """The value of `to_json`; fields that an older release did not write take their defaults."""
        queues = {str(queue): int(offset) for queue, offset in value.get("queues", {}).items()}
        return cls(
            queues,
            int(value.get("cut_ms", 0)),
            bool(value.get("ended", False)),
            str(value.get("name", "")),
            int(value.get("wakes", 0)),
            int(value.get("rules", 0)),
        )


MIN_ROWS = 4_000
"""Rows below which a task of its own costs more than it saves."""


@dataclass(frozen=True, slots=True)
class Slice:
    """Rows of one queue: offsets from `start` up to but without `end`."""

    queue: str
    start: int
    end: int


def divide(start: Position, end: Position, parallelism: int) -> list[tuple[Slice, ...]]:
    """Groups of slices: small queues together, large ones in pieces, about `parallelism` groups of equal size."""
    ranges = [
        Slice(queue, start.offset(queue), offset)
        for queue, offset in sorted(end.queues.items())
        if offset > start.offset(queue)
    ]
    total = sum(part.end - part.start for part in ranges)
    share = max(MIN_ROWS, -(-total // max(1, parallelism)))
    groups: list[tuple[Slice, ...]] = []
    group: list[Slice] = []
    room = share
    for part in ranges:
        position = part.start
        while position < part.end:
            count = min(room, part.end - position)
            group.append(Slice(part.queue, position, position + count))
            position += count
            room -= count
            if room == 0:
                groups.append(tuple(group))
                group, room = [], share
    if group:
        groups.append(tuple(group))
    return groups


_GOOD_ENOUGH = 0.5
"""A cut with at least this part of the wanted rows ends the search."""


@dataclass(frozen=True, slots=True)
class QueueSpan:
    """What a queue holds: offsets from `min_offset` up to but without `max_offset`, and the last row's store time."""

    min_offset: int
    max_offset: int
    last_store_ms: int


def next_cut(
    start: Position,
    spans: Mapping[str, QueueSpan],
    max_rows: int,
    offset_at: Callable[[str, int], int],
    first_store_ms: Callable[[], int],
) -> Position:
    """The position to read up to: about `max_rows` rows (0: all) further than `start`.

    `spans` is one look at all queues. `offset_at(queue, t)` is the first offset stored at or after `t`.
    `first_store_ms()` is the store time of the oldest row from `start` on; asked only where the rows are too many.
    A whole millisecond is never split, so that a cut may be larger than `max_rows`.
    """
    # Queues that are not seen, as those of a broker that is away, stay where they are: they may come back.
    seen = {queue: max(span.max_offset, start.offset(queue)) for queue, span in spans.items()}
    every = Position({**start.queues, **seen}, 0)
    if not max_rows or _rows(start, every, spans) <= max_rows:
        return every
    low = max(start.cut_ms, first_store_ms())
    high = max(span.last_store_ms for span in spans.values()) + 1
    if high <= low + 1:
        return every

    def at(time_ms: int) -> Position:
        queues = {
            queue: min(max(offset_at(queue, time_ms), start.offset(queue)), every.offset(queue)) for queue in spans
        }
        return Position({**start.queues, **queues}, time_ms)

    return _search(start, spans, max_rows, low, high, at) or every


def _search(
    start: Position,
    spans: Mapping[str, QueueSpan],
    max_rows: int,
    low: int,
    high: int,
    at: Callable[[int], Position],
) -> Position | None:
    """Between `low` (nothing stored before) and `high` (all stored before), by interpolation, then by halves."""
    best: Position | None = None
    rows_low, rows_high = 0, _rows(start, at(high), spans)
    interpolate = True
    while high - low > 1:
        span = high - low
        step = span * (max_rows - rows_low) // max(1, rows_high - rows_low) if interpolate else span // 2
        interpolate = not interpolate
        middle = min(max(low + step, low + 1), high - 1)
        found = at(middle)
        rows = _rows(start, found, spans)
        if rows > max_rows:
            high, rows_high = middle, rows
        else:
            low, rows_low = middle, rows
            best = found if rows else best
            if rows >= max_rows * _GOOD_ENOUGH:
                break
    # Nothing fits: the next millisecond alone holds more than was asked for.
    return best or at(high)


def _rows(start: Position, end: Position, spans: Mapping[str, QueueSpan]) -> int:
    """Rows between, without those that retention has already removed."""
    return sum(max(0, end.offset(queue) - max(start.offset(queue), span.min_offset)) for queue, span in spans.items())
