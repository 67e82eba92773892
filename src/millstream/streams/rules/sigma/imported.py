"""What came of reading Sigma rules."""

from __future__ import annotations

import msgspec

from millstream.streams.rules.rule import Path, Rule

__all__ = ["Fault", "Imported", "Refused"]


class Refused(msgspec.Struct, frozen=True):
    """A rule that was not taken, and why; `line` counts from 1 and is None where the fault has no place."""

    path: str
    line: int | None
    reason: str

    def __str__(self) -> str:
        return f"{self.path}{'' if self.line is None else f':{self.line}'}: {self.reason}"


class Imported(msgspec.Struct, frozen=True):
    """Rules, what was refused, and where events hold the fields of these rules: `RuleSet.paths` needs them all.

    `places` says for the id of each rule in which file and at which line it begins.
    """

    rules: tuple[Rule, ...]
    refused: tuple[Refused, ...]
    paths: dict[str, tuple[Path, ...]]
    places: dict[str, tuple[str, int]]


class Fault(Exception):
    """Why a document is no rule, at a line that counts from 1 where it has one."""

    def __init__(self, reason: str, line: int | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.line = line
