"""Errors of the job server.

MillstreamError
└── JobServerError   jobs that are refused, and servers that cannot serve      exit 1
    └── NotLeading   another job server has the jobs now                       exit 3
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

from millstream.model.errors import MillstreamError
from millstream.streams.errors import SqlError

__all__ = ["JobServerError", "NotLeading", "unknown_job", "words_of"]


class JobServerError(MillstreamError):
    """A request about jobs that is refused; nothing was changed."""


class NotLeading(JobServerError):
    """This server does not have the jobs; `leader` is the URL of the one that does, blank where none is known."""

    exit_code = 3

    def __init__(self, leader: str = "") -> None:
        words = f"The jobs are at {leader}." if leader else "No job server leads at the moment."
        super().__init__("JOB_SERVER_NOT_LEADING", words)
        self.leader = leader


def words_of(error: MillstreamError) -> tuple[str, str]:
    """The message and the remedy of an error. One of SQL has its place in the script and the remedy in its message."""
    if isinstance(error, SqlError):
        return str(error).replace(f" [{error.label}]", "", 1), ""
    return error.message, error.remedy


def unknown_job(name: str, known: Iterable[str]) -> JobServerError:
    """The refusal for a name that no job has, with the nearest one."""
    near = get_close_matches(name, list(known), 1)
    remedy = f'Did you mean "{near[0]}"?' if near else None
    return JobServerError("JOB_NOT_FOUND", f"There is no job {name[:100]!r}.", remedy=remedy)
