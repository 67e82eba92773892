"""Commands as a script runs them."""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass

from command_forks import CommandForks

__all__ = ["Ran", "run"]


@dataclass(frozen=True)
class Ran:
    """What one command did."""

    code: int
    out: str
    err: str

    def json(self) -> object:
        return json.loads(self.out)


def run(*arguments: str, stdin: str = "") -> Ran:
    """One command in a process of its own, without a terminal."""
    return Ran(*_forks().run(arguments, stdin))


@functools.cache
def _forks() -> CommandForks:
    return CommandForks()
