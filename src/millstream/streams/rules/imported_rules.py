"""The result of importing rules from files of any form."""

from __future__ import annotations

import msgspec

from millstream.streams.rules.rule import Path as FieldPath
from millstream.streams.rules.rule import Rule

__all__ = ["AppliedFilter", "ImportedRules", "Refusal", "SourceNote", "dotted_paths"]


class Refusal(msgspec.Struct, frozen=True):
    """A rule or a file that was not taken, and why; `line` and `column` count from 1, None where they are not known."""

    path: str
    reason: str
    line: int | None = None
    column: int | None = None

    def __str__(self) -> str:
        places = (self.path, self.line, self.column if self.line else None)
        return f"{':'.join(str(one) for one in places if one is not None)}: {self.reason}"


class AppliedFilter(msgspec.Struct, frozen=True):
    """A filter that was read, where, and the ids of the rules that it became a part of."""

    title: str
    path: str
    line: int
    rules: tuple[str, ...]

    def describe(self, most: int) -> str:
        """In words, with the first `most` of the rules."""
        count = len(self.rules)
        named = ", ".join(self.rules[:most]) + (f" and {count - most:,} more" if count > most else "")
        noun = "the rule" if count == 1 else f"{count:,} rules:"
        return f"{self.path}:{self.line}: the filter {self.title!r} is part of {noun} {named}"


class SourceNote(msgspec.Struct, frozen=True):
    """Rules of a log source whose events have no sign: `looks_at` says at which they look, blank for left out ones.

    Of those that are left out nothing tells which events are theirs (`unmapped`), or there are none.
    """

    source: str
    rules: int
    looks_at: str
    unmapped: bool = False


class ImportedRules(msgspec.Struct, frozen=True):
    """Rules in the order in which they stand there, what was refused, and where events hold their fields.

    `places` says for the id of a rule in which file and line it stands, as far as that is known. `filters` are those
    that became a part of some rule, `sources` what is to be told of log sources. `passed_over` are directories and
    files that hold nothing to read: a warning, and no fault of a rule.
    """

    rules: tuple[Rule, ...] = ()
    refused: tuple[Refusal, ...] = ()
    paths: dict[str, tuple[FieldPath, ...]] = {}
    places: dict[str, tuple[str, int | None]] = {}
    filters: tuple[AppliedFilter, ...] = ()
    sources: tuple[SourceNote, ...] = ()
    passed_over: tuple[Refusal, ...] = ()


def dotted_paths(name: str) -> tuple[FieldPath, ...]:
    """Where a field whose name has dots is looked for: as a key, and then key by key deeper."""
    return ((name,), tuple(name.split(".")))
