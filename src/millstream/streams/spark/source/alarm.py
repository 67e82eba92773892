"""When a source that is silent wakes its job: by the clock of the machine, counted from the last rows."""

from __future__ import annotations

import time
from collections.abc import Callable

__all__ = ["MIN_WAKE_MS", "Alarm"]

MIN_WAKE_MS = 1_000
"""A silent source brings at most one tick in this time: each is a micro-batch of its own."""


_RINGS = 2


class Alarm:
    """Rings after `after_ms` without rows (0: never), twice or, with `again`, each time.

    Who counts the same time from a moment a little later may find it short at the first ring, and not at the second.
    """

    def __init__(self, after_ms: int, *, again: bool, clock: Callable[[], float] = time.monotonic) -> None:
        self._after_s = max(after_ms, MIN_WAKE_MS) / 1000 if after_ms else None
        self._again = again
        self._clock = clock
        self.rest()

    def rest(self) -> None:
        """Rows came: count anew."""
        self._since_s = self._clock()
        self._left = _RINGS

    def rings(self) -> bool:
        """Whether it is time."""
        if self._after_s is None or not self._left or self._clock() - self._since_s < self._after_s:
            return False
        self._since_s = self._clock()
        self._left -= 0 if self._again else 1
        return True
