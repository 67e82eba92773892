"""Tables of a broker's state without a store: their changes go to a file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from millstream.broker.state.state_log import StateChange
from millstream.broker.state.state_table import StateTable


class FileLog:
    """The changes of all tables of a directory, one list a line. `failure` is raised in place of the next append."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / "changes"
        self.failure: Exception | None = None

    def append(self, changes: Sequence[StateChange], *, durable: bool = True) -> None:
        if self.failure is not None:
            failure, self.failure = self.failure, None
            raise failure
        with self._path.open("ab") as file:
            file.write(msgspec.json.encode(changes) + b"\n")

    def changes(self) -> list[StateChange]:
        if not self._path.exists():
            return []
        lines = self._path.read_bytes().splitlines()
        return [change for line in lines for change in msgspec.json.decode(line, type=list[StateChange])]


def load_table(table: StateTable[Any, Any], directory: Path) -> FileLog:
    """Load a table as a start does: its document, then the changes."""
    log = FileLog(directory)
    table.load()
    table.apply(change for change in log.changes() if change.kind == table.kind)
    table.bind(log)
    return log
