"""Exponential backoff with a limit and random jitter."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

__all__ = ["DEFAULT_JITTER", "Backoff", "draw"]

DEFAULT_JITTER: Final = 0.2
"""Share of a wait that chance takes off at most, so that those who failed together do not come back together."""

_MAX_EXPONENT: Final = 64
"""Attempts after which a wait grows no more, whatever its limit: powers stay within a float."""


def draw() -> float:
    """A number from 0 up to 1. A forked process draws other numbers than its parent and its siblings."""
    # The module's own generator is seeded again in a forked child; an instance of ours would repeat itself in each.
    return random.random()


@dataclass(frozen=True, slots=True)
class Backoff:
    """The waits between attempts of one kind, in seconds. It keeps no state: who makes attempts counts them."""

    first_s: float
    """The wait behind the first attempt."""
    longest_s: float
    """No wait is longer."""
    multiplier: float = 2.0
    """How many times longer than the one before a wait is; 1 for waits of one length."""
    jitter: float = DEFAULT_JITTER
    """The share of each wait, from 0 to 1, that is taken off at most."""
    random: Callable[[], float] = draw
    """A number from 0 up to 1 for each wait: the part of the jitter that is taken off."""

    def wait_s(self, attempt: int) -> float:
        """Seconds to wait behind that failed attempt; the first one is 0."""
        full_s = min(self.first_s * self.multiplier ** min(attempt, _MAX_EXPONENT), self.longest_s)
        return full_s * (1 - self.jitter * self.random())
