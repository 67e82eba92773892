"""Twins of the file layer: one waits for no disk, one keeps a record, one fails on demand, one dies."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from millstream.store.files import FileLayer

__all__ = ["Died", "FailingFiles", "HastyFiles", "MortalFiles", "Operation", "RecordingFiles"]


class Operation(NamedTuple):
    """One call: what, on which file (its path below the data directory), and how many bytes."""

    name: str
    path: Path
    size_bytes: int = 0


class HastyFiles(FileLayer):
    """Does not wait for the disk, for tests that open stores by the hundred and cut no power."""

    def fdatasync(self, descriptor: int) -> None:
        pass

    def fsync(self, descriptor: int) -> None:
        pass

    def sync_directory(self, path: Path) -> None:
        pass

    def sync_file_system(self, path: Path) -> None:
        pass


class RecordingFiles(FileLayer):
    """Keeps every write and sync in `operations`, in order, and which file each descriptor is of."""

    def __init__(self) -> None:
        self.operations: list[Operation] = []
        self.paths: dict[int, Path] = {}

    def open(self, path: Path, *, create: bool = False) -> int:
        descriptor = super().open(path, create=create)
        self.paths[descriptor] = path
        return descriptor

    def pwrite(self, descriptor: int, data: bytes | bytearray | memoryview, position: int) -> None:
        super().pwrite(descriptor, data, position)
        self.operations.append(Operation("pwrite", self.paths[descriptor], len(data)))

    def fdatasync(self, descriptor: int) -> None:
        super().fdatasync(descriptor)
        self.operations.append(Operation("sync", self.paths[descriptor]))

    def fsync(self, descriptor: int) -> None:
        super().fsync(descriptor)
        self.operations.append(Operation("sync", self.paths[descriptor]))

    def rename(self, source: Path, target: Path) -> None:
        super().rename(source, target)
        self.operations.append(Operation("rename", target))

    def sync_directory(self, path: Path) -> None:
        super().sync_directory(path)
        self.operations.append(Operation("sync directory", path))

    def of_log(self, *names: str) -> list[str]:
        """The names of the operations on the log's segments, or of those named."""
        return [
            operation.name
            for operation in self.operations
            if operation.path.parent.name == "commitlog" and (not names or operation.name in names)
        ]


class FailingFiles(HastyFiles):
    """Raises the error number that `errors` holds for a call's name, as often as it is there."""

    def __init__(self) -> None:
        self.errors: dict[str, int] = {}
        self.before_sync: Callable[[], None] = lambda: None

    def _check(self, name: str) -> None:
        if name in self.errors:
            raise OSError(self.errors[name], os.strerror(self.errors[name]))

    def pwrite(self, descriptor: int, data: bytes | bytearray | memoryview, position: int) -> None:
        self._check("pwrite")
        super().pwrite(descriptor, data, position)

    def fdatasync(self, descriptor: int) -> None:
        self.before_sync()
        self._check("sync")

    def fsync(self, descriptor: int) -> None:
        self.fdatasync(descriptor)

    def preallocate(self, descriptor: int, position: int, length: int) -> None:
        self._check("preallocate")
        super().preallocate(descriptor, position, length)


class Died(BaseException):
    """The process is gone."""


class MortalFiles(HastyFiles):
    """Dies before the call that changes something for the `life`-th time, and loses what no sync confirmed."""

    def __init__(self, life: int, undone: bool) -> None:
        self._life = life
        self._undone = undone
        self._paths: dict[int, Path] = {}
        self._unsynced: set[Path] = set()
        self._renamed: list[tuple[Path, Path, bytes | None]] = []

    def _live(self) -> None:
        self._life -= 1
        if self._life == 0:
            self._lose()
        if self._life <= 0:
            raise Died

    def _lose(self) -> None:
        for descriptor in self._paths:
            super().close(descriptor)
        for source, target, before in reversed(self._renamed if self._undone else []):
            target.replace(source)
            if before is not None:
                target.write_bytes(before)
        for path in self._unsynced:
            if path.exists():
                path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])

    def open(self, path: Path, *, create: bool = False) -> int:
        descriptor = super().open(path, create=create)
        self._paths[descriptor] = path
        return descriptor

    def close(self, descriptor: int) -> None:
        if self._life > 0:
            del self._paths[descriptor]
            super().close(descriptor)

    def truncate(self, descriptor: int, length: int) -> None:
        self._live()
        super().truncate(descriptor, length)

    def pwrite(self, descriptor: int, data: bytes | bytearray | memoryview, position: int) -> None:
        self._live()
        super().pwrite(descriptor, data, position)
        self._unsynced.add(self._paths[descriptor])

    def fsync(self, descriptor: int) -> None:
        self._live()
        self._unsynced.discard(self._paths[descriptor])

    def rename(self, source: Path, target: Path) -> None:
        self._live()
        before = target.read_bytes() if target.exists() else None
        super().rename(source, target)
        self._renamed.append((source, target, before))
        if source in self._unsynced:
            self._unsynced.add(target)

    def sync_directory(self, path: Path) -> None:
        self._live()
        self._renamed = [one for one in self._renamed if one[1].parent != path]

    def discard(self, path: Path) -> None:
        self._live()
        super().discard(path)
