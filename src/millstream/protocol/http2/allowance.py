"""Limits for frames that cost work and carry no data: resets, pings, settings, empty frames.

Floods of such frames are known attacks (CVE-2019-9512 and its siblings, CVE-2023-44487). Requests and data that a
connection carries earn further ones, and so does time.
"""

from __future__ import annotations

from typing import Final

__all__ = ["BURST", "EARNED_BY_REQUEST", "PER_SECOND", "RAPID_S", "RESET_COST", "Allowance"]

BURST: Final = 10_000
"""Frames without content that a connection may send at once."""

PER_SECOND: Final = 2_000
"""So many more it may send with each second."""

EARNED_BY_REQUEST: Final = 8
"""So many more with each request that is answered: window updates and pings belong to it."""

RESET_COST: Final = 10
"""A quick reset of an unanswered stream counts as so many: what it ends was begun."""

RAPID_S: Final = 1.0
"""A reset is quick within so many seconds of its stream's beginning."""


class Allowance:
    """What one connection has left. Times are of the monotonic clock, in seconds."""

    __slots__ = ("_left", "_since_s")

    def __init__(self) -> None:
        self._left = float(BURST)
        self._since_s = 0.0

    def earn(self, count: int) -> None:
        """Note that so many frames more are in order."""
        self._left = min(self._left + count, BURST)

    def spend(self, count: int, now_s: float) -> bool:
        """Whether so many frames may come now."""
        left = self._left
        if now_s != self._since_s:
            # The first look finds nothing spent, whatever the clock began with.
            left = min(left + (now_s - self._since_s) * PER_SECOND, BURST)
            self._since_s = now_s
        self._left = left = left - count
        return left >= 0
