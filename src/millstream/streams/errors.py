"""Errors of the stream engine.

MillstreamError
├── SqlError         points into a script: line, column, the line's text           exit 1
├── JobError         sessions, checkpoints, sinks, running jobs                    exit 1
├── RuleError        rules that cannot be taken, and the stores that keep them     exit 1
├── DimensionError   dimension tables that cannot be built, read or asked          exit 1
└── ModelError       models that cannot be taken, and the stores that keep them    exit 1
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from millstream.model.errors import MillstreamError
from millstream.streams.secrets import HIDDEN, hide_secrets, secret_spans

__all__ = ["DimensionError", "JobError", "ModelError", "RuleError", "SourcePosition", "SqlError"]

_QUOTED_CHARACTERS: Final = 4
"""Characters of the shortest secret that is looked for in messages; a shorter one may be part of any word."""


@dataclass(frozen=True, slots=True)
class SourcePosition:
    """A place in a script: `line` and `column` count from 1; `length` characters are meant."""

    line: int
    column: int
    length: int = 1


class SqlError(MillstreamError):
    """A statement that cannot be read, bound or run; `str()` shows the line with a caret under the place.

    Neither that line nor the message tells secrets that stand in the script.
    """

    def __init__(
        self,
        name: str,
        message: str,
        *,
        position: SourcePosition | None = None,
        script: str = "",
        remedy: str | None = None,
    ) -> None:
        self._secrets = secret_spans(script)
        quoted = [script[start:end] for start, end in self._secrets if end - start >= _QUOTED_CHARACTERS]
        super().__init__(
            name, hide_secrets(message, quoted), remedy=None if remedy is None else hide_secrets(remedy, quoted)
        )
        self.position = position
        self.script = script

    def __str__(self) -> str:
        words = f"{self.message} {self.remedy} [{self.label}]"
        if self.position is None:
            return words
        lines = self.script.splitlines(keepends=True)
        is_there = 0 < self.position.line <= len(lines)
        where = f"line {self.position.line}, column {self.position.column}"
        if not is_there or not lines[self.position.line - 1].rstrip("\r\n"):
            return f"{where}: {words}"
        start = sum(map(len, lines[: self.position.line - 1]))
        line = self._quote(start, start + len(lines[self.position.line - 1].rstrip("\r\n")))
        place = start + self.position.column - 1
        before = "".join("\t" if character == "\t" else " " for character in self._quote(start, place))
        length = len(self._quote(start, place + self.position.length)) - len(before)
        return f"{where}: {words}\n  {line}\n  {before}{'^' * max(1, length)}"

    def _quote(self, start: int, end: int) -> str:
        """The script's text from `start` to `end` without the secrets; one that is cut there is hidden whole."""
        parts, place = [], start
        for first, behind in self._secrets:
            if behind > start and first < end:
                parts += [self.script[place:first], HIDDEN] if first >= start else [HIDDEN]
                place = behind
        return "".join([*parts, self.script[place:end]])


class JobError(MillstreamError):
    """A session or a job that does not start or that ended with an error."""


class StartTimedOut(JobError):
    """The servers of a job's tables were away for as long as it was to wait for them."""

    exit_code = 3

    def __init__(self, message: str) -> None:
        super().__init__("START_TIMED_OUT", message)


class RuleError(MillstreamError):
    """Rules that cannot be read, taken or found, or a store of rules that cannot be read or written."""


class DimensionError(MillstreamError):
    """A dimension table that cannot be built, is damaged, or is asked for what it does not have."""


class ModelError(MillstreamError):
    """A model that cannot be found, loaded or applied, or a store of models that cannot be read or written."""
