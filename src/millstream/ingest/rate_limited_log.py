"""Rate-limited log lines about faulty peers: the first at once, then one a minute with a count."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

__all__ = ["QUIET_S", "RateLimitedLog"]

QUIET_S: Final = 60.0
"""Seconds between two lines of a kind."""


class RateLimitedLog:
    """Says a line of each kind, and counts those of the same kind that it keeps back meanwhile."""

    def __init__(self, say: Callable[[str], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._say = say
        self._clock = clock
        self._reports: dict[str, tuple[float, int]] = {}

    def add(self, kind: str, words: str) -> None:
        """One more of a kind."""
        now_s = self._clock()
        told_s, kept_back = self._reports.get(kind, (now_s - QUIET_S, 0))
        if now_s - told_s < QUIET_S:
            self._reports[kind] = told_s, kept_back + 1
            return
        self._reports[kind] = now_s, 0
        self._say(f"{words} (and {kept_back:,} more of the kind)" if kept_back else words)
