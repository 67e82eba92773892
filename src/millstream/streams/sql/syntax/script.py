"""A script and its source positions: errors with line and column, `${name}` variables, similar names."""

from __future__ import annotations

import bisect
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import accumulate
from typing import Protocol

from millstream.streams.errors import SourcePosition, SqlError
from millstream.streams.functions.user_functions.user import UserFunction
from millstream.streams.learning.model import Model

__all__ = ["ENVIRONMENT", "PREFIX", "ModelNames", "Script", "Span", "Splices", "Variables", "did_you_mean"]


def did_you_mean(name: str, known: Sequence[str]) -> str:
    """' Did you mean "x"?' or blank."""
    by_lower = {candidate.lower(): candidate for candidate in known}
    found = get_close_matches(name.lower(), list(by_lower), 1, 0.6)
    return f'Did you mean "{by_lower[found[0]]}"?' if found else ""


@dataclass(frozen=True, slots=True)
class Span:
    """Characters `start` to before `end` of a script."""

    start: int
    end: int

    def to(self, other: Span) -> Span:
        """From the beginning of this span to the end of the other."""
        return Span(min(self.start, other.start), max(self.end, other.end))


class ModelNames(Protocol):
    """The models of a session by name."""

    def model(self, parts: tuple[str, ...]) -> Model | None:
        """What is called so here; None if nothing is."""
        ...

    def model_names(self) -> list[str]:
        """What a misspelled one may have meant."""
        ...


class Script:
    """The text as the user wrote it. All spans of the front end are offsets into it.

    `user_function` gives the user's function of a name, as far as the session and the script have made it; `models`
    knows those of CREATE MODEL. `database` gives the one in use.
    """

    def __init__(
        self,
        text: str,
        user_function: Callable[[str], UserFunction | None] = lambda _: None,
        models: ModelNames | None = None,
        database: Callable[[], str] = str,
    ) -> None:
        self.text = text
        self.user_function = user_function
        self.models = models
        self.database = database
        self._lines = text.splitlines(keepends=True)
        self._line_starts = [0, *accumulate(len(line) for line in self._lines)]

    def aggregate(self, name: str) -> UserFunction | None:
        """The user's aggregate of a name, if it is one."""
        found = self.user_function(name)
        return found if found is not None and found.is_aggregate else None

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


class Splices:
    """Where text was put in the place of other text, so that places in the new text are told in the old one.

    Splices are added from the left to the right.
    """

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []
        self._originals: list[Span] = []

    def add(self, span: Span, length: int) -> None:
        """The characters of `span` (in the text so far) have become `length` others."""
        self._originals.append(self.original(span))
        self._starts.append(span.start)
        self._ends.append(span.start + length)

    def __bool__(self) -> bool:
        return bool(self._starts)

    def covers(self, place: int) -> bool:
        """Whether the place was put in."""
        return bool(self._starts) and self._starts[-1] <= place < self._ends[-1]

    def original(self, span: Span) -> Span:
        """The span in the old text: the whole of what was replaced for a part of what replaced it."""
        if not self._starts:
            return span
        return Span(self._place(span.start, 0), max(self._place(span.end - 1, 1), self._place(span.start, 0) + 1))

    def _place(self, place: int, after: int) -> int:
        number = bisect.bisect_right(self._starts, place) - 1
        if number < 0:
            return place + after
        original = self._originals[number]
        if place < self._ends[number]:
            return original.end if after else original.start
        return original.end + place - self._ends[number] + after


PREFIX = "var."
"""What a setting's name begins with that is a variable."""

ENVIRONMENT = "env:"
"""What a reference to the environment begins with inside of ${...}."""


class Variables:
    """The variables of one script: each name's value, SET in the script before what the session gave before the
    environment."""

    def __init__(self, given: Mapping[str, str], environment: Mapping[str, str] | None = None) -> None:
        self._given = dict(given)
        self._set: dict[str, str] = {}
        self._environment = os.environ if environment is None else environment

    def find(self, name: str) -> str | None:
        """The value, or None."""
        for values in (self._set, self._given, self._environment):
            if name in values:
                return values[name]
        return None

    def assign(self, name: str, value: str) -> None:
        """What SET says, for all that stands behind it."""
        self._set[name] = value

    def forget(self, name: str | None) -> None:
        """What RESET says: back to the session's or the environment's value; None is every variable of SET."""
        if name is None:
            self._set.clear()
        else:
            self._set.pop(name, None)

    @property
    def names(self) -> tuple[str, ...]:
        """Those that the script and the session gave: what a misspelled one may have meant."""
        return (*self._set, *self._given)
