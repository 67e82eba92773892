"""When a process that ended is started again: at once, then ever later, and soon again after it ran well. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

__all__ = ["FIRST_DELAY_S", "MAX_DELAY_S", "STEADY_S", "RestartPace"]

FIRST_DELAY_S: Final = 0.5
"""Seconds before a process that ended is started again; twice as long each time that it ends soon."""

MAX_DELAY_S: Final = 30.0
"""Seconds before a restart at most."""

STEADY_S: Final = 60.0
"""Seconds of running after which the delays begin anew."""


@dataclass(slots=True)
class RestartPace:
    """The delays of one process."""

    _next_s: float = FIRST_DELAY_S

    def after(self, ran_s: float) -> float:
        """The delay after it ran for `ran_s` and ended."""
        if ran_s >= STEADY_S:
            self._next_s = FIRST_DELAY_S
        delay_s = self._next_s
        self._next_s = min(2 * delay_s, MAX_DELAY_S)
        return delay_s
