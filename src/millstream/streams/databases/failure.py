"""What a database says no to, sorted by what it means for a job, in words without a password."""

from __future__ import annotations

import re
from enum import Enum
from urllib.parse import quote

from millstream.streams.errors import JobError

__all__ = ["Cause", "DatabaseFailure", "without_secret"]

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
