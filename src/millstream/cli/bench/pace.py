"""A steady rate: when the next message is due, and how many are due by now. No clock of its own."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Pace"]


@dataclass(frozen=True, slots=True)
class Pace:
    """`per_second` messages from `start_s` on, at even distances. What came late is made up for as fast as can be."""

    per_second: float
    start_s: float

    def due_s(self, number: int) -> float:
        """When message `number` (from 0 on) is due, on the clock of `start_s`."""
        return self.start_s + number / self.per_second

    def pause_s(self, number: int, now_s: float) -> float:
        """How long to wait until message `number` is due; 0 where it is."""
        return max(0.0, self.due_s(number) - now_s)

    def due_count(self, now_s: float) -> int:
        """How many messages are due until now; the first one is due at once."""
        return 0 if now_s < self.start_s else int((now_s - self.start_s) * self.per_second) + 1
