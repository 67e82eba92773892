"""Storage of operator state: whole files by name, in a local directory or a shared store."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from millstream.streams.state.atomic_file import write_file

__all__ = ["LocalStateFiles", "StateFiles"]


class StateFiles(Protocol):
    """Files of one operator. A file is there whole or not at all, and is never changed, only replaced.

    Every call raises OSError where the place fails; the task fails then, and Spark tries it again.
    """

    @property
    def location(self) -> str:
        """The place, for messages."""
        ...

    def sizes(self) -> dict[str, int]:
        """The names of all files with their bytes; none where nothing was written."""
        ...

    def read(self, name: str) -> bytes:
        """The content. Raises FileNotFoundError."""
        ...

    def write(self, name: str, content: bytes) -> None:
        """Put a file in the place of one of that name."""
        ...

    def delete(self, name: str) -> None:
        """Remove a file, if it is there."""
        ...


@dataclass(frozen=True, slots=True)
class LocalStateFiles:
    """Files in `directory`, made by the first write. Not synced: they stand and fall with Spark's log beside them."""

    directory: Path

    @property
    def location(self) -> str:
        return str(self.directory)

    def sizes(self) -> dict[str, int]:
        found = {}
        try:
            with os.scandir(self.directory) as entries:
                for entry in entries:
                    if not entry.name.startswith("."):
                        found[entry.name] = _size(entry)
        except FileNotFoundError:
            return {}
        return {name: size for name, size in found.items() if size is not None}

    def read(self, name: str) -> bytes:
        return (self.directory / name).read_bytes()

    def write(self, name: str, content: bytes) -> None:
        write_file(self.directory / name, content, durable=False)

    def delete(self, name: str) -> None:
        (self.directory / name).unlink(missing_ok=True)


def _size(entry: os.DirEntry[str]) -> int | None:
    """The bytes of a file; None of a directory, and of a file that another task has removed meanwhile."""
    try:
        return entry.stat().st_size if entry.is_file() else None
    except FileNotFoundError:
        return None
