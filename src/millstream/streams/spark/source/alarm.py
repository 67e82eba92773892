"""When a source that is silent wakes its job: by the clock of the machine, counted from the last rows."""

from __future__ import annotations

import time
from collections.abc import Callable

__all__ = ["MIN_WAKE_MS", "Alarm"]

MIN_WAKE_MS = 1_000
"""A silent source brings at most one tick in this time: each is a micro-batch of its own."""


class Alarm:
    """Rings after `after_ms` without rows (0: never), once or, with `again`, each time."""

    def __init__(self, after_ms: int, *, again: bool, clock: Callable[[], float] = time.monotonic) -> None:
        self._after_s = max(after_ms, MIN_WAKE_MS) / 1000 if after_ms else None
        self._again = again
        self._clock = clock
        self._since_s: float | None = clock()

    def rest(self) -> None:
        """Rows came: count anew."""
        self._since_s = self._clock()

    def rings(self) -> bool:
        """Whether it is time."""
        if self._after_s is None or self._since_s is None or self._clock() - self._since_s < self._after_s:
            return False
        self._since_s = self._clock() if self._again else None
        return True
