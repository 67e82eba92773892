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

from millstream.model.errors import MillstreamError

__all__ = ["DimensionError", "JobError", "ModelError", "RuleError", "SourcePosition", "SqlError"]


@dataclass(frozen=True, slots=True)
class SourcePosition:
    """A place in a script: `line` and `column` count from 1; `length` characters are meant."""

    line: int
    column: int
    length: int = 1


class SqlError(MillstreamError):
    """A statement that cannot be read, bound or run; `str()` shows the line with a caret under the place."""

    def __init__(
        self,
        name: str,
        message: str,
        *,
        position: SourcePosition | None = None,
        script: str = "",
        remedy: str | None = None,
    ) -> None:
        super().__init__(name, message, remedy=remedy)
        self.position = position
        self.script = script

    def __str__(self) -> str:
        words = f"{self.message} {self.remedy} [{self.label}]"
        if self.position is None:
            return words
        lines = self.script.splitlines()
        shown = lines[self.position.line - 1] if 0 < self.position.line <= len(lines) else ""
        where = f"line {self.position.line}, column {self.position.column}"
        if not shown:
            return f"{where}: {words}"
        before = "".join("\t" if character == "\t" else " " for character in shown[: self.position.column - 1])
        return f"{where}: {words}\n  {shown}\n  {before}{'^' * max(1, self.position.length)}"


class JobError(MillstreamError):
    """A session or a job that does not start or that ended with an error."""


class RuleError(MillstreamError):
    """Rules that cannot be read, taken or found, or a store of rules that cannot be read or written."""


class DimensionError(MillstreamError):
    """A dimension table that cannot be built, is damaged, or is asked for what it does not have."""


class ModelError(MillstreamError):
    """A model that cannot be found, loaded or applied, or a store of models that cannot be read or written."""
