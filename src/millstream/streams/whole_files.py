"""Files that are whole or not there: who reads, also after a process was killed, finds what was there or all of it."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["make_directory", "put", "sync_directory"]


def put(file: Path, content: bytes, *, synced: bool = False) -> None:
    """Put `content` in the place of `file`, whose directory is made; where `synced`, it outlives the machine's crash.

    What a process that was killed has not finished begins with a dot and ends with its number. Raises OSError.
    """
    named = make_directory(file.parent)
    unfinished = file.with_name(f".{file.name}.{os.getpid()}")
    with unfinished.open("wb") as out:
        out.write(content)
        if synced:
            out.flush()
            os.fsync(out.fileno())
    unfinished.replace(file)
    if synced:
        for directory in (file.parent, *named):
            sync_directory(directory)


def sync_directory(directory: Path) -> None:
    """Return when the names in the directory outlive the machine's crash. Raises OSError."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_directory(directory: Path) -> list[Path]:
    """Make the directory and those above it; those that have a new name in them, which nothing has synced yet."""
    named = []
    missing = directory
    while not missing.is_dir():
        missing = missing.parent
        named.append(missing)
    directory.mkdir(parents=True, exist_ok=True)
    return named
