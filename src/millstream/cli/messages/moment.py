"""Parses times, durations and queue positions on the command line: `10m`, `2026-11-21T08:30`, `earliest`."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from millstream.model.moment import LAST_MS, duration_ms, moment_ms

__all__ = ["EARLIEST", "LATEST", "OffsetSpec", "duration_ms", "durations_ms", "moment_ms", "time_text"]


def durations_ms(text: str) -> list[int]:
    """The lengths of a text that separates them by commas. ValueError."""
    return [duration_ms(part) for part in text.split(",")]


def time_text(time_ms: int) -> str | None:
    """The time in ISO form, UTC, to the second; None for 0, which stands for a time that is not known.

    A time after the year 9999 is its milliseconds since 1970.
    """
    if time_ms <= 0:
        return None
    if time_ms > LAST_MS:
        return str(time_ms)
    return datetime.fromtimestamp(time_ms // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


EARLIEST, LATEST = "earliest", "latest"

_MAX_OFFSET_DIGITS = 10
"""Digits of an offset at most: more are a time in milliseconds."""


@dataclass(frozen=True, slots=True)
class OffsetSpec:
    """An end of the queue (`word`), an offset or a time; one of the three."""

    word: str | None = None
    offset: int | None = None
    time_ms: int = 0

    @classmethod
    def of(cls, text: str) -> OffsetSpec:
        """The place that the text says. ValueError where it says none."""
        if text in (EARLIEST, LATEST):
            return cls(word=text)
        if text.isdecimal() and len(text) <= _MAX_OFFSET_DIGITS:
            return cls(offset=int(text))
        try:
            return cls(time_ms=moment_ms(text, time.time_ns() // 1_000_000))
        except ValueError:
            raise ValueError(
                f"{text!r} is no place; write {EARLIEST}, {LATEST}, an offset, 2026-11-21T08:30, or 10m for ten "
                "minutes ago"
            ) from None

    def in_queue(self, first: int, end: int, by_time: Callable[[int], int]) -> int:
        """The offset in a queue from `first` to `end`; `by_time` finds that of a time. An offset is as it was said."""
        if self.word is not None:
            return first if self.word == EARLIEST else end
        return by_time(self.time_ms) if self.offset is None else self.offset
