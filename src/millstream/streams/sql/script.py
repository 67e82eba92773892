"""A script and the places in it: character offsets to lines and columns, and errors that point there."""

from __future__ import annotations

import bisect
from dataclasses import dataclass
from itertools import accumulate

from millstream.streams.errors import SourcePosition, SqlError

__all__ = ["Script", "Span"]


@dataclass(frozen=True, slots=True)
class Span:
    """Characters `start` to before `end` of a script."""

    start: int
    end: int

    def to(self, other: Span) -> Span:
        """From the beginning of this span to the end of the other."""
        return Span(min(self.start, other.start), max(self.end, other.end))


class Script:
    """The text as the user wrote it. All spans of the front end are offsets into it."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._lines = text.splitlines(keepends=True)
        self._line_starts = [0, *accumulate(len(line) for line in self._lines)]

    def position(self, span: Span) -> SourcePosition:
        """Line and column of the span's beginning; its length is cut at the end of that line."""
        last = max(0, len(self._lines) - 1)
        line = min(bisect.bisect_right(self._line_starts, span.start) - 1, last)
        column = span.start - self._line_starts[line]
        shown = self._lines[line].rstrip("\r\n") if self._lines else ""
        length = max(1, min(span.end, self._line_starts[line] + len(shown)) - span.start)
        return SourcePosition(line + 1, column + 1, length)

    def error(self, name: str, message: str, span: Span, *, remedy: str | None = None) -> SqlError:
        """An error of the catalogue's `name` that shows the span's line with a caret."""
        return SqlError(name, message, position=self.position(span), script=self.text, remedy=remedy)
