"""What came of reading rules from files, whatever their form."""

from __future__ import annotations

import msgspec

from millstream.streams.rules.rule import Path as FieldPath
from millstream.streams.rules.rule import Rule

__all__ = ["FromFiles", "Refusal", "dotted_paths"]


class Refusal(msgspec.Struct, frozen=True):
    """A rule or a file that was not taken, and why; `line` and `column` count from 1, None where they are not known."""

    path: str
    reason: str
    line: int | None = None
    column: int | None = None

    def __str__(self) -> str:
        places = (self.path, self.line, self.column if self.line else None)
        return f"{':'.join(str(one) for one in places if one is not None)}: {self.reason}"


class FromFiles(msgspec.Struct, frozen=True):
    """Rules in the order in which they stand there, what was refused, and where events hold their fields.

    `places` says for the id of a rule in which file and line it stands, as far as that is known.
    """

    rules: tuple[Rule, ...] = ()
    refused: tuple[Refusal, ...] = ()
    paths: dict[str, tuple[FieldPath, ...]] = {}
    places: dict[str, tuple[str, int | None]] = {}


def dotted_paths(name: str) -> tuple[FieldPath, ...]:
    """Where a field whose name has dots is looked for: as a key, and then key by key deeper."""
    return ((name,), tuple(name.split(".")))
