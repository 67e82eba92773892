"""Times, lengths of time and places in queues as people type them: `10m`, `2026-11-21T08:30`, `earliest`."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

__all__ = ["EARLIEST", "LATEST", "OffsetSpec", "duration_ms", "durations_ms", "moment_ms", "time_text"]


_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_DURATION = re.compile(r"(\d{1,12}(?:\.\d{1,3})?)(ms|s|m|h|d)?")
_MILLISECONDS = re.compile(r"\d{11,15}")
_LAST_MS = 253_402_300_799_999
"""The end of the year 9999; later times have no ISO form."""


def duration_ms(text: str) -> int:
    """Milliseconds of a length such as `250ms`, `5s`, `1.5m`, `2h`, `3d`; without a unit seconds. ValueError."""
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is no length of time; write it as in 250ms, 5s, 10m, 2h or 3d")
    return round(float(match[1]) * _UNITS_MS[match[2] or "s"])


def durations_ms(text: str) -> list[int]:
    """The lengths of a text that separates them by commas. ValueError."""
    return [duration_ms(part) for part in text.split(",")]


def moment_ms(text: str, now_ms: int) -> int:
    """Milliseconds since 1970 of a time in ISO form (UTC unless it names a zone), or so long ago: `10m`. ValueError.

    Eleven digits and more are milliseconds since 1970 themselves.
    """
    stripped = text.strip()
    if _MILLISECONDS.fullmatch(stripped) and int(stripped) <= _LAST_MS:
        return int(stripped)
    if _DURATION.fullmatch(stripped) and not stripped.isdigit():
        return now_ms - duration_ms(stripped)
    try:
        found = datetime.fromisoformat(stripped)
    except ValueError:
        found = None
    if found is None or stripped.isdigit():
        raise ValueError(f"{text!r} is no time; write 2026-11-21T08:30, or 10m for ten minutes ago")
    return int((found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp() * 1000)


def time_text(time_ms: int) -> str | None:
    """The time in ISO form, UTC, to the second; None for 0, which stands for a time that is not known.

    A time after the year 9999 is its milliseconds since 1970.
    """
    if time_ms <= 0:
        return None
    if time_ms > _LAST_MS:
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
