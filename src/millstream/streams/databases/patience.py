"""Attempts at what a database may fail at for a moment, with ever longer waits between them."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, TypeVar

from millstream.streams.databases.failure import Cause, DatabaseFailure

__all__ = ["FIRST_WAIT_S", "LONGEST_WAIT_S", "Patience"]

FIRST_WAIT_S: Final = 0.1
"""The wait before the second attempt; each further one is twice as long."""

LONGEST_WAIT_S: Final = 5.0
"""The longest wait between two attempts."""

T = TypeVar("T")


class Patience:
    """At most `retries` attempts after the first one, the last of which begins within `timeout_s`."""

    def __init__(
        self,
        retries: int,
        timeout_s: float,
        *,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._retries = retries
        self._timeout_s = timeout_s
        self._sleep = sleep
        self._clock = clock

    def run(self, attempt: Callable[[], T], mend: Callable[[], None] = lambda: None) -> T:
        """What `attempt` gives. After a failure that may pass `mend` is called, before the wait.

        Raises DatabaseFailure: the last one that may pass, or at once another one.
        """
        until_s = self._clock() + self._timeout_s
        wait_s = FIRST_WAIT_S
        left = self._retries
        while True:
            try:
                return attempt()
            except DatabaseFailure as failure:
                if failure.cause is not Cause.PASSING:
                    raise
                mend()
                if not left or self._clock() + wait_s > until_s:
                    raise
            left -= 1
            self._sleep(wait_s)
            wait_s = min(wait_s * 2, LONGEST_WAIT_S)
