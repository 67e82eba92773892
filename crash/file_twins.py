"""Twins of the file layer: one that waits for no disk, one that keeps a record, one that fails on demand."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from millstream.store.files import FileLayer

__all__ = ["FailingFiles", "HastyFiles", "Operation", "RecordingFiles"]


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
