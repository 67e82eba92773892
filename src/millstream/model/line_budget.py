"""A budget for log lines: a burst, then a rate per second; suppressed lines are counted. Pure."""

from __future__ import annotations

from millstream.model.clock import Clock

__all__ = ["LineBudget"]


class LineBudget:
    """Admits `burst_lines` one after the other, and `per_second` more with each second."""

    def __init__(self, clock: Clock, *, burst_lines: int = 1, per_second: float = 1.0) -> None:
        self._clock = clock
        self._burst_lines = float(burst_lines)
        self._per_second = per_second
        self._lines = self._burst_lines
        self._filled_s = clock.monotonic_s()
        self._left_out = 0

    def admit(self) -> int | None:
        """How many lines were left out since the last one; None where this one is to be left out as well."""
        now_s = self._clock.monotonic_s()
        gained = max(0.0, now_s - self._filled_s) * self._per_second
        self._lines = min(self._burst_lines, self._lines + gained)
        self._filled_s = now_s
        if self._lines < 1:
            self._left_out += 1
            return None
        self._lines -= 1
        left_out, self._left_out = self._left_out, 0
        return left_out
