"""The statements that the user has typed, in a file of the user's own.

Format: one statement a line, as a JSON string; the oldest first. A statement with a secret option is not written.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping
from pathlib import Path

from millstream.store.files import FileLayer
from millstream.streams.state.atomic_file import write_file

__all__ = ["MAX_STATEMENTS", "MAX_STATEMENT_CHARACTERS", "History", "history_path"]

MAX_STATEMENTS = 1_000
"""Statements of the history at most; the oldest go."""

MAX_STATEMENT_CHARACTERS = 16_384
"""A longer statement is not kept."""


def history_path(environment: Mapping[str, str] = os.environ) -> Path:
    """The user's history, by the rules for such files on Linux."""
    home = environment.get("XDG_STATE_HOME")
    return (Path(home) if home else Path.home() / ".local" / "state") / "millstream" / "sql_history"


class History:
    """What was typed, the oldest first. A file that cannot be read or written only costs the memory of it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.statements: list[str] = []
        with contextlib.suppress(OSError, UnicodeDecodeError):
            for line in path.read_text(encoding="utf-8").splitlines():
                with contextlib.suppress(ValueError):
                    statement = json.loads(line)
                    if isinstance(statement, str):
                        self.statements.append(statement)
        del self.statements[:-MAX_STATEMENTS]

    def add(self, statement: str) -> bool:
        """Keep a statement; whether it is new: not the last one again, not too long, without secrets."""
        if not statement.strip() or len(statement) > MAX_STATEMENT_CHARACTERS or _has_secret(statement):
            return False
        if self.statements[-1:] == [statement]:
            return False
        self.statements.append(statement)
        del self.statements[:-MAX_STATEMENTS]
        with contextlib.suppress(OSError):
            lines = "".join(f"{json.dumps(one, ensure_ascii=False)}\n" for one in self.statements)
            # Nobody waits for the disk after each statement.
            write_file(self._path, lines.encode(), durable=False, files=FileLayer())
        return True


def _has_secret(statement: str) -> bool:
    from millstream.streams.connectors.registry import CONNECTORS

    secret = (option for connector in CONNECTORS.values() for option in connector.options if option.secret)
    return any(name.lower() in statement.lower() for name in {option.name.partition("#")[0] for option in secret})
