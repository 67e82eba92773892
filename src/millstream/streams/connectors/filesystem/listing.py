"""The files of a directory in the order in which they were seen: a position is how many of them were read.

The list lies in the job's checkpoint, because a file keeps its place whatever comes or goes later.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import msgspec

from millstream.streams.errors import JobError
from millstream.streams.state.atomic_file import write_file

__all__ = ["FoundFile", "Listing", "checked_directory"]

_HIDDEN = (".", "_")


class FoundFile(msgspec.Struct, frozen=True):
    """One file, and how large it was when it was seen."""

    path: str
    size_bytes: int


class Listing:
    """The list in `file`; `path` is a directory (with all below it) or one file, `pattern` what whole paths look like.

    Names that begin with a dot or an underscore are passed over, as those of files in the making.
    """

    def __init__(self, file: Path, path: Path, pattern: str) -> None:
        self._file = file
        self._path = path
        self._pattern = re.compile(pattern) if pattern else None
        self.files: list[FoundFile] = self._read()
        self._known = {found.path for found in self.files}

    def look(self) -> None:
        """Add what is new, the oldest files first."""
        new = [path for path in self.candidates() if str(path) not in self._known]
        if not new:
            return
        seen = sorted((path.stat().st_mtime_ns, str(path), path.stat().st_size) for path in new)
        self.files += [FoundFile(path, size) for _, path, size in seen]
        self._known.update(path for _, path, _ in seen)
        write_file(self._file, msgspec.json.encode(self.files))

    def _read(self) -> list[FoundFile]:
        try:
            return msgspec.json.decode(self._file.read_bytes(), type=list[FoundFile])
        except (FileNotFoundError, IsADirectoryError):
            return []

    def candidates(self) -> Iterator[Path]:
        """What is there now, in no order."""
        if self._path.is_file():
            yield self._path
            return
        for directory, names, files in os.walk(self._path):
            # A column may be called _day; its directories are no hidden ones.
            names[:] = [name for name in names if not name.startswith(_HIDDEN) or "=" in name]
            for name in files:
                path = Path(directory) / name
                if not name.startswith(_HIDDEN) and (self._pattern is None or self._pattern.fullmatch(str(path))):
                    yield path


def checked_directory(path: Path, table: str) -> None:
    """Raise JobError JOB_FAILED where there is nothing to read and nothing is waited for."""
    if not path.exists():
        words = f"The table {table} reads {path}, which does not exist."
        raise JobError("JOB_FAILED", words, remedy="Correct 'path', or wait for it with 'source.monitor-interval'.")
