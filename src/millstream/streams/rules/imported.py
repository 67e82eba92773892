"""What came of reading rules from files, whatever their form."""

from __future__ import annotations

import msgspec

from millstream.streams.rules.rule import Path as FieldPath
from millstream.streams.rules.rule import Rule

__all__ = ["FromFiles", "Refusal"]


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
    """Rules in the order in which they stand there, what was refused, and where events hold their fields."""

    rules: tuple[Rule, ...] = ()
    refused: tuple[Refusal, ...] = ()
    paths: dict[str, tuple[FieldPath, ...]] = {}
