"""Locks between processes of a machine: `flock` on files, released when a process ends."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

__all__ = ["FileLock", "hold_lock"]


class FileLock:
    """A held lock of the file `path`, which is made where it is not there."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path = path
        self._descriptor: int | None = descriptor

    @classmethod
    def take(cls, path: Path, *, shared: bool = False, wait: bool = True) -> FileLock | None:
        """The lock; None where another process holds it and `wait` is False. Any number may hold it `shared`.

        Raises OSError where the file cannot be made.
        """
        while True:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            try:
                fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | (0 if wait else fcntl.LOCK_NB))
            except BlockingIOError:
                os.close(descriptor)
                return None
            except BaseException:
                os.close(descriptor)
                raise
            if _is_still(path, descriptor):
                return cls(path, descriptor)
            # Its file was removed while we waited; who comes next makes another one.
            os.close(descriptor)

    def release(self) -> None:
        """Let others have it."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)


@contextlib.contextmanager
def hold_lock(path: Path) -> Iterator[None]:
    """A block that one process at a time runs; it waits for the others."""
    lock = FileLock.take(path)
    assert lock is not None
    try:
        yield
    finally:
        lock.release()


def _is_still(path: Path, descriptor: int) -> bool:
    try:
        there = path.stat()
    except FileNotFoundError:
        return False
    ours = os.fstat(descriptor)
    return (there.st_dev, there.st_ino) == (ours.st_dev, ours.st_ino)
