"""The line of an error that helps: Spark wraps causes in several layers of its own words and stack traces."""

from __future__ import annotations

import re

from millstream.model.errors import MillstreamError

__all__ = ["first_cause"]

_MAX_CHARACTERS = 500
_PYTHON_ERROR = re.compile(
    r"^(?:[A-Za-z_][\w.]*\.)?([A-Z]\w*(?:Error|Exception|Refused|Failed|Unreachable|TimedOut)): (.+)$"
)
_JAVA_CAUSE = re.compile(r"^(?:Caused by: )?(?:[a-z][\w$]*\.)+([A-Z][\w$]*): (.+)$")
_RAISED = re.compile(r"\[USER_RAISED_EXCEPTION\] (.+?)(?: SQLSTATE: \w+)?$")
"""What an expression raised by itself, in Spark's frame."""

_WRAPPERS = frozenset(("SparkException", "StreamingQueryException", "PythonException", "PySparkRuntimeError"))


def first_cause(error: BaseException) -> str:
    """One sentence: the innermost cause that Python or Java named, else the error's first line."""
    if isinstance(error, MillstreamError):
        return str(error)
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    raised = next((match for line in lines if (match := _RAISED.search(line))), None)
    if raised is not None:
        return _short(raised[1])
    for pattern in (_PYTHON_ERROR, _JAVA_CAUSE):
        found = [match for line in lines if (match := pattern.match(line)) and match[1] not in _WRAPPERS]
        if found:
            return _short(f"{found[-1][1]}: {found[-1][2]}")
    return _short(lines[0] if lines else type(error).__name__)


def _short(text: str) -> str:
    return text if len(text) <= _MAX_CHARACTERS else f"{text[:_MAX_CHARACTERS]} ..."
