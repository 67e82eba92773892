"""Ticks: rows without data that move event time, at its end, at a new beginning, or that only wake a job."""

from __future__ import annotations

from typing import Final

from millstream.streams.spark.source.position import Position

__all__ = ["END_OF_TIME_MS", "WAKE_TIME_MS", "tick_between"]

END_OF_TIME_MS: Final = 253_370_764_800_000
"""Event time of the final tick: the year 9999, later than any window's end."""

WAKE_TIME_MS: Final = -62_135_596_800_000
"""Event time of a tick that only wakes a job: the year 1, which moves nothing. Behind a final tick event time goes on
with it from where the rows before that had brought it."""


def tick_between(begin: Position, until: Position) -> int | None:
    """The event time of the tick that a micro-batch brings beside its rows, if it does: where a run ends or goes on."""
    if begin.ended == until.ended:
        return None
    return END_OF_TIME_MS if until.ended else WAKE_TIME_MS
