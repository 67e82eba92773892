"""Time as a value that is handed in: every deadline, timestamp and lease reads a `Clock`.

The system clock stands at the edge; tests and simulations hand in one that they move themselves.
"""

from __future__ import annotations

import time
from typing import Protocol

__all__ = ["Clock", "ManualClock", "SystemClock"]


class Clock(Protocol):
    """What a part of the product may ask about time."""

    def now_ms(self) -> int:
        """Wall-clock milliseconds since 1970-01-01T00:00:00Z."""
        ...

    def monotonic_s(self) -> float:
        """Seconds that never go backward, for waits and deadlines."""
        ...


class SystemClock:
    """The machine's own clock."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_s(self) -> float:
        return time.monotonic()


class ManualClock:
    """A clock that moves only when told to, by `advance_ms`, or by `step_ms` at each reading of the wall clock."""

    def __init__(self, start_ms: int = 1_700_000_000_000, *, step_ms: int = 0) -> None:
        self._now_ms = start_ms
        self._start_ms = start_ms
        self._step_ms = step_ms

    def now_ms(self) -> int:
        now = self._now_ms
        self._now_ms += self._step_ms
        return now

    def monotonic_s(self) -> float:
        return (self._now_ms - self._start_ms) / 1000

    def advance_ms(self, amount_ms: int) -> None:
        """Move both clocks forward by `amount_ms` (not negative)."""
        if amount_ms < 0:
            raise ValueError(f"a clock moves forward only, not by {amount_ms} ms")
        self._now_ms += amount_ms
