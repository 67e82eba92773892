"""The end of the next micro-batch: all queues are cut at one store time, so that none runs ahead of the others.

Spark takes the newest event time of all partitions for the watermark. If a fast queue were read further than a slow
one, the slow one's rows would come too late, and be dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from millstream.streams.spark.source.position import Position

__all__ = ["QueueSpan", "next_cut"]

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
    every = Position({queue: max(span.max_offset, start.offset(queue)) for queue, span in spans.items()}, 0)
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
        return Position(queues, time_ms)

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
