"""Store timestamps: monotonic, also when the clock goes back. Pure: times are passed in.

Searches by time and the cuts of stream jobs halve a queue by its store timestamps, so they must not fall. Were the
newest one repeated until a clock that was ahead is caught up with, all messages until then would have one timestamp: no
search could tell them apart, and no cut could part them. So they go on at half of the real speed meanwhile.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

__all__ = ["AHEAD_MS", "StoreTimes"]

AHEAD_MS: Final = 5_000
"""Milliseconds by which the newest message may be ahead of the clock before a start says so."""

_CATCHING_UP: Final = 0.5
"""Seconds by which timestamps go on in a second while they are ahead of the clock."""


@dataclass(slots=True)
class StoreTimes:
    """Gives each write its timestamp; `last_ms` is the newest of what is stored."""

    last_ms: int = 0
    _ahead_ms: int = 0
    _ahead_since_s: float | None = None

    def next(self, now_ms: int, monotonic_s: float) -> int:
        """The timestamp of a write: the clock's time, or a later one while the log is ahead of it."""
        if now_ms >= self.last_ms:
            self._ahead_since_s = None
            return now_ms
        if self._ahead_since_s is None:
            self._ahead_ms, self._ahead_since_s = self.last_ms, monotonic_s
        passed_ms = (monotonic_s - self._ahead_since_s) * 1000 * _CATCHING_UP
        return max(self.last_ms, self._ahead_ms + int(passed_ms))

    def note_write(self, timestamp_ms: int) -> None:
        """The write with that timestamp is in the log."""
        self.last_ms = timestamp_ms

    def ahead_ms(self, now_ms: int) -> int:
        """By how much the log is ahead of the clock, if that is more than clocks differ; else 0."""
        ahead_ms = self.last_ms - now_ms
        return ahead_ms if ahead_ms > AHEAD_MS else 0
