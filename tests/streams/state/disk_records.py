"""What a power failure would take of a directory: files and names that no `fsync` has confirmed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

__all__ = ["Disk", "recorded_disk"]


class Disk:
    """What was synced, by inode: the size of a file, the names in a directory."""

    def __init__(self) -> None:
        self._sizes: dict[int, int] = {}
        self._names: dict[int, set[tuple[str, int]]] = {}

    def sync(self, descriptor: int) -> None:
        """Note what is on the disk from here on."""
        path = Path(f"/proc/self/fd/{descriptor}")
        found = path.stat()
        if path.is_dir():
            self._names[found.st_ino] = _entries(path)
        else:
            self._sizes[found.st_ino] = found.st_size

    def lost(self, directory: Path) -> list[str]:
        """What would be gone or cut below the directory, by path; locks and unfinished files may go."""
        gone = []
        for path in sorted(directory.rglob("*")):
            name, inode = path.name, path.stat().st_ino
            if name.startswith(".") or name.endswith("lock"):
                continue
            is_named = (name, inode) in self._names.get(path.parent.stat().st_ino, set())
            is_whole = path.is_dir() or self._sizes.get(inode) == path.stat().st_size
            if not (is_named and is_whole):
                gone.append(str(path.relative_to(directory)))
        return gone


@contextmanager
def recorded_disk() -> Iterator[Disk]:
    """A block in which each `os.fsync` is noted."""
    disk, sync = Disk(), os.fsync

    def recorded(descriptor: int) -> None:
        sync(descriptor)
        disk.sync(descriptor)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", recorded)
        yield disk


def _entries(directory: Path) -> set[tuple[str, int]]:
    return {(one.name, one.stat().st_ino) for one in directory.iterdir()}
