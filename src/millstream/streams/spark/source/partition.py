"""How a range of positions is divided among tasks: a function of the range alone, so that a replay repeats it."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql.datasource import InputPartition

from millstream.streams.spark.source.position import Position

__all__ = ["MIN_ROWS", "Slice", "TopicPartition", "divide"]

MIN_ROWS = 4_000
"""Rows below which a task of its own costs more than it saves."""


@dataclass(frozen=True, slots=True)
class Slice:
    """Rows of one queue: offsets from `start` up to but without `end`."""

    queue: str
    start: int
    end: int


class TopicPartition(InputPartition):
    """What one task reads: slices in order, by the bulk lane or not, then a tick where `tick_ms` has its event time.

    `rules` is the version of the rules that judge it, 0 where none do.
    """

    def __init__(
        self, slices: tuple[Slice, ...], tick_ms: int | None = None, *, bulk: bool = False, rules: int = 0
    ) -> None:
        super().__init__(None)
        self.slices = slices
        self.tick_ms = tick_ms
        self.bulk = bulk
        self.rules = rules


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
            taken = min(room, part.end - position)
            group.append(Slice(part.queue, position, position + taken))
            position += taken
            room -= taken
            if room == 0:
                groups.append(tuple(group))
                group, room = [], share
    if group:
        groups.append(tuple(group))
    return groups
