"""A log file of bounded size: when it is full, it is rotated once."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

__all__ = ["MAX_LOG_BYTES", "MAX_TAIL_LINES", "BoundedLog", "last_lines"]

MAX_LOG_BYTES: Final = 10 * 1024 * 1024
"""Bytes of one file of a driver's log; there are two at most, the old one has the ending `.1`."""

MAX_TAIL_LINES: Final = 10_000
"""Lines that can be asked for at most."""

_TAIL_BYTES: Final = 1024 * 1024


class BoundedLog:
    """Appends to `path`. Who closes it twice makes no error."""

    def __init__(self, path: Path, *, limit_bytes: int = MAX_LOG_BYTES) -> None:
        self._path = path
        self._limit_bytes = limit_bytes
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("ab")

    def write(self, data: bytes) -> None:
        """Append; a piece is never parted between two files."""
        if self._file.tell() and self._file.tell() + len(data) > self._limit_bytes:
            self._file.close()
            os.replace(self._path, self._path.with_name(f"{self._path.name}.1"))
            self._file = self._path.open("ab")
        self._file.write(data)
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def last_lines(path: Path, count: int) -> list[str]:
    """The last lines of the log at `path`, of its last MiB at most; none where there is no log."""
    data = b""
    for file in (path, path.with_name(f"{path.name}.1")):
        if data.count(b"\n") >= count or len(data) >= _TAIL_BYTES or not file.exists():
            break
        with file.open("rb") as log:
            end = log.seek(0, os.SEEK_END)
            log.seek(max(0, end - _TAIL_BYTES))
            data = log.read(_TAIL_BYTES) + data
    lines = data.decode(errors="replace").splitlines()
    return lines[-min(count, MAX_TAIL_LINES) :] if count > 0 else []
