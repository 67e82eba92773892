"""The restart policy of failed jobs, and the relevant line of an error."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from millstream.model.backoff import Backoff, draw
from millstream.model.catalogue import CATALOGUE
from millstream.model.errors import ConnectionFailed, MillstreamError

__all__ = ["BOUNDED_ATTEMPTS", "RestartSettings", "Restarts", "first_cause", "may_pass"]


_MAX_CHARACTERS = 500
_MAX_CAUSES = 8
"""Causes of causes that are looked at."""
_PYTHON_ERROR = re.compile(
    r"^(?:[A-Za-z_][\w.]*\.)?([A-Z]\w*(?:Error|Exception|Refused|Failed|Unreachable|TimedOut)): (.+)$"
)
_JAVA_CAUSE = re.compile(r"^(?:Caused by: )?(?:[a-z][\w$]*\.)+([A-Z][\w$]*): (.+)$")
_BARE_JAVA_CAUSE = re.compile(r"^(?:Caused by: )?(?:[a-z][\w$]*\.)+([A-Z][\w$]*)$")
"""An exception without a message: a pipe whose other end is gone, as a rule."""

_RAISED = re.compile(r"\[USER_RAISED_EXCEPTION\] (.+?)(?: SQLSTATE: \w+)?$")
"""What an expression raised by itself, in Spark's frame."""

_WRAPPERS = frozenset(("SparkException", "StreamingQueryException", "PythonException", "PySparkRuntimeError"))


def first_cause(error: BaseException) -> str:
    """One sentence: the innermost cause that Python or Java named, else the error's first line."""
    if isinstance(error, MillstreamError):
        return str(error)
    lines = [line.strip() for line in _words_of(error).splitlines() if line.strip()]
    raised = next((match for line in lines if (match := _RAISED.search(line))), None)
    if raised is not None:
        return _short(raised[1])
    for pattern in (_PYTHON_ERROR, _JAVA_CAUSE):
        found = [match for line in lines if (match := pattern.match(line)) and match[1] not in _WRAPPERS]
        if found:
            return _short(f"{found[-1][1]}: {found[-1][2]}")
    bare = [match[1] for line in lines if (match := _BARE_JAVA_CAUSE.match(line)) and match[1] not in _WRAPPERS]
    if bare:
        return f"{bare[-1]} without a message"
    return _short(lines[0] if lines else type(error).__name__)


def _words_of(error: BaseException) -> str:
    """The error's words and those of its causes: one without a message is named in none of the others."""
    words, cause = [str(error)], getattr(error, "_cause", None)
    while isinstance(cause, BaseException) and len(words) <= _MAX_CAUSES:
        words.append(str(cause))
        cause = getattr(cause, "_cause", None)
    return "\n".join(words)


def _short(text: str) -> str:
    return text if len(text) <= _MAX_CHARACTERS else f"{text[:_MAX_CHARACTERS]} ..."


BOUNDED_ATTEMPTS = 5
"""Starts without a micro-batch between them after which a bounded job gives up; others never do by themselves."""

_PASSING_NAMES = (
    "TOPIC_NOT_FOUND",
    "BROKER_NOT_FOUND",
    "BROKER_DRAINED",
    "SEGMENT_UNREACHABLE",
    "DATABASE_UNREACHABLE",
    "STATE_UNREACHABLE",
)
_PASSING_CLASSES = re.compile(
    r"(?:^|[\s.])(?:Unreachable|NotConnected|StateUnreachable|TimedOut|ConnectionFailed|ConnectionRefusedError|"
    r"ConnectionResetError|BrokenPipeError|OperationalError|InterfaceError): ",
    re.MULTILINE,
)
"""As a traceback has them: connections to brokers, to places of state, and to databases (names of PEP 249)."""

_LOST_PROCESSES = (
    # A worker took longer than ten seconds to start, as on a busy machine.
    "Python worker failed to connect back",
    # A worker was killed, by the system for want of memory as a rule.
    "Python worker exited unexpectedly",
    # The same of an executor, so often that Spark gives the micro-batch up.
    "ExecutorLostFailure",
    # What an executor had for later stages is gone with it; see `CLUSTER_SETTINGS`.
    "has failed the maximum allowable number of times",
)
"""What Spark says where a process that it needs was killed or did not start."""

_LOST_PIPES = re.compile(r"(?:^|: )(?:Broken pipe|Connection reset(?: by peer)?)$|java\.io\.EOFException", re.MULTILINE)
"""What Java says in the place of that where the process ends while it is written to or read from."""


def may_pass(error: BaseException) -> bool:
    """Whether the error (Spark's have the worker's traceback as text) says that something was not there just now."""
    if isinstance(error, MillstreamError):
        return isinstance(error, ConnectionFailed) or error.name in _PASSING_NAMES or _says_so(str(error))
    return _says_so(_words_of(error))


def _says_so(text: str) -> bool:
    if any(words.search(text) for words in (_PASSING_CLASSES, _LOST_PIPES)):
        return True
    if any(words in text for words in _LOST_PROCESSES):
        return True
    return any(f"[MS-{CATALOGUE[name].number}]" in text for name in _PASSING_NAMES)


@dataclass(frozen=True, slots=True)
class RestartSettings:
    """When a failed job is started again."""

    first_ms: int = 1_000
    """The wait before the first start; each further one is twice as long."""
    longest_ms: int = 60_000
    """The longest wait."""
    attempts: int | None = None
    """How many starts without a micro-batch between them; None: without end, 0: none."""


class Restarts:
    """Counts the starts since the last micro-batch that was delivered."""

    def __init__(self, settings: RestartSettings, random: Callable[[], float] = draw) -> None:
        self._limit = settings.attempts
        self._backoff = Backoff(settings.first_ms / 1000, settings.longest_ms / 1000, random=random)
        self.count = 0

    def reset(self) -> None:
        """A micro-batch was delivered."""
        self.count = 0

    def next_s(self, error: BaseException, *, mended: bool = False) -> float | None:
        """Seconds to wait for the next start; None: the error ends the job.

        With `mended` what led to the error is gone; then the start counts for nothing.
        """
        limit = self._limit
        if mended and limit != 0:
            return self._backoff.wait_s(0)
        if not may_pass(error) or (limit is not None and self.count >= limit):
            return None
        wait_s = self._backoff.wait_s(self.count)
        self.count += 1
        return wait_s
