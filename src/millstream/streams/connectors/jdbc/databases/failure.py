"""Classifies database errors by what they mean for a job, and retries with backoff."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from enum import Enum
from typing import Final, TypeVar
from urllib.parse import quote

from millstream.model.backoff import Backoff
from millstream.streams.errors import JobError

__all__ = ["BACKOFF", "FIRST_WAIT_S", "LONGEST_WAIT_S", "Cause", "DatabaseFailure", "DatabaseRetry", "without_secret"]


_MAX_CHARACTERS = 500


class Cause(Enum):
    """What a failure means; the values are names of the error catalogue."""

    PASSING = "DATABASE_UNREACHABLE"
    REFUSED = "DATABASE_REFUSED"
    SCHEMA = "DATABASE_TABLE"
    ROW = "DATABASE_ROW"
    OTHER = "DATABASE_QUERY"


class DatabaseFailure(Exception):
    """A call of a driver that failed. `cause` PASSING: another attempt may not meet it."""

    def __init__(self, cause: Cause, words: str) -> None:
        super().__init__(words)
        self.cause = cause
        self.words = words

    def job_error(self, what: str, *, remedy: str | None = None) -> JobError:
        """The error of a job in which `what` cannot be done."""
        return JobError(self.cause.value, f"{what}: {self.words}", remedy=remedy)


def without_secret(text: str, secret: str) -> str:
    """`text` in one line, cut where it is long, with *** in the place of `secret`."""
    line = " ".join(text.split())
    for form in sorted({secret, quote(secret), quote(secret, safe="")} - {""}, key=len, reverse=True):
        line = re.sub(rf"(?<!\w){re.escape(form)}(?!\w)", "***", line)
    return line if len(line) <= _MAX_CHARACTERS else f"{line[:_MAX_CHARACTERS]} ..."


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
