"""Attempts at what a database may fail at for a moment, with a backoff between them."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, TypeVar

from millstream.model.backoff import Backoff
from millstream.streams.databases.failure import Cause, DatabaseFailure

__all__ = ["BACKOFF", "FIRST_WAIT_S", "LONGEST_WAIT_S", "DatabaseRetry"]

FIRST_WAIT_S: Final = 0.1
"""The wait before the second attempt; each further one is twice as long."""

LONGEST_WAIT_S: Final = 5.0
"""The longest wait between two attempts."""

BACKOFF: Final = Backoff(FIRST_WAIT_S, LONGEST_WAIT_S)
"""The waits between attempts at a database."""

T = TypeVar("T")


class DatabaseRetry:
    """At most `retries` attempts after the first one, the last of which begins within `timeout_s`."""

    def __init__(
        self,
        retries: int,
        timeout_s: float,
        *,
        backoff: Backoff = BACKOFF,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._retries = retries
        self._timeout_s = timeout_s
        self._backoff = backoff
        self._sleep = sleep
        self._clock = clock

    def run(self, attempt: Callable[[], T], recover: Callable[[], None] = lambda: None) -> T:
        """What `attempt` gives. After a failure that may pass `recover` is called, before the wait.

        Raises DatabaseFailure: the last one that may pass, or at once another one.
        """
        deadline_s = self._clock() + self._timeout_s
        failures = 0
        while True:
            try:
                return attempt()
            except DatabaseFailure as failure:
                if failure.cause is not Cause.PASSING:
                    raise
                recover()
                wait_s = self._backoff.wait_s(failures)
                if failures >= self._retries or self._clock() + wait_s > deadline_s:
                    raise
            failures += 1
            self._sleep(wait_s)
