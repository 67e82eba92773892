"""A clock that is passed in: every deadline, timestamp and lease reads it.

The system clock stands at the edge; tests and simulations hand in one that they move themselves.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, Protocol

__all__ = ["STEP_MS", "BackedClock", "Clock", "ManualClock", "StepWatch", "SystemClock", "WatchedClock"]

STEP_MS: Final = 1000
"""Milliseconds by which the wall clock must leave the monotonic one at a time to count as a step."""

_READING_S: Final = 0.1
"""Seconds at most that a reading of both clocks may take to say anything: a process can be stopped between them."""

_SLEW_MS_A_S: Final = 1.0
"""What a wall clock that is brought into line slowly may gain or lose in a second; systems slew by half of it."""


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


class StepWatch:
    """Finds steps of a wall clock by a clock that never goes back. Pure: both times come in by calls."""

    def __init__(self, wall_ms: int, monotonic_s: float) -> None:
        self._ahead_ms = wall_ms - monotonic_s * 1000
        self._looked_s = monotonic_s

    def look(self, wall_ms: int, monotonic_s: float) -> int:
        """By how many milliseconds the wall clock was put forward, or back if negative, since the last look; or 0.

        Less than `STEP_MS` at a time is no step, and a slow drift never adds up to one.
        """
        away_ms = wall_ms - monotonic_s * 1000 - self._ahead_ms
        followed_ms = (monotonic_s - self._looked_s) * _SLEW_MS_A_S
        self._looked_s = monotonic_s
        if abs(away_ms) - followed_ms >= STEP_MS:
            self._ahead_ms += away_ms
            return round(away_ms)
        self._ahead_ms += min(max(away_ms, -followed_ms), followed_ms)
        return 0


class WatchedClock:
    """A clock that looks for steps of its wall part at each reading; of one thread.

    `on_step` are called with the milliseconds, before the reading returns, so that whoever keeps deadlines by wall time
    has moved them when they are held against it.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._watch = StepWatch(clock.now_ms(), clock.monotonic_s())
        self.on_step: list[Callable[[int], None]] = []

    def now_ms(self) -> int:
        before_s = self._clock.monotonic_s()
        wall_ms = self._clock.now_ms()
        monotonic_s = self._clock.monotonic_s()
        step_ms = self._watch.look(wall_ms, monotonic_s) if monotonic_s - before_s < _READING_S else 0
        if step_ms:
            for listener in self.on_step:
                listener(step_ms)
        return wall_ms

    def monotonic_s(self) -> float:
        return self._clock.monotonic_s()


class BackedClock:
    """A wall clock that is believed as far as time has passed since it was made; fit for any thread.

    For what removes things for good: a clock that is put forward by mistake makes nothing old. One that is put back is
    followed.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._start_ms = clock.now_ms() - clock.monotonic_s() * 1000

    def now_ms(self) -> int:
        return min(self._clock.now_ms(), round(self._start_ms + self._clock.monotonic_s() * 1000))

    def monotonic_s(self) -> float:
        return self._clock.monotonic_s()


class ManualClock:
    """A clock that moves only when told to, by `advance_ms`, or by `step_ms` at each reading of the wall clock."""

    def __init__(self, start_ms: int = 1_700_000_000_000, *, step_ms: int = 0) -> None:
        self._now_ms = start_ms
        self._start_ms = start_ms
        self._step_ms = step_ms
        self._ahead_ms = 0

    def now_ms(self) -> int:
        now = self._now_ms
        self._now_ms += self._step_ms
        return now + self._ahead_ms

    def monotonic_s(self) -> float:
        return (self._now_ms - self._start_ms) / 1000

    def advance_ms(self, amount_ms: int) -> None:
        """Move both clocks forward by `amount_ms` (not negative)."""
        if amount_ms < 0:
            raise ValueError(f"a clock moves forward only, not by {amount_ms} ms")
        self._now_ms += amount_ms

    def set_wall(self, amount_ms: int) -> None:
        """Put the wall clock forward, or back by a negative amount, as somebody does who corrects it."""
        self._ahead_ms += amount_ms
