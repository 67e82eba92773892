"""The lock that keeps a second process out of a data directory."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from millstream.model.errors import StartRefused
from millstream.store.files import FileLayer, refusal_name

__all__ = ["DirectoryLock"]

_PID_BYTES = 20


class DirectoryLock:
    """`flock` on the file `lock` of the directory, which also names the process that holds it.

    The system frees it when the process ends, however that happens. Without `names_holder` taking the lock changes
    nothing in a directory that has the file.
    """

    def __init__(self, directory: Path, files: FileLayer, *, names_holder: bool = True) -> None:
        self._files = files
        self._directory = directory
        try:
            files.make_directory(directory)
            self._descriptor = files.open(directory / "lock", create=True)
        except OSError as error:
            raise _refusal(directory, error) from error
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            holder = files.pread(self._descriptor, _PID_BYTES, 0).decode("ascii", "replace").strip() or "unknown"
            files.close(self._descriptor)
            raise StartRefused(
                "DATA_DIRECTORY_IN_USE", f"The data directory {directory} is in use by the process {holder}."
            ) from None
        if names_holder:
            self.name_holder()

    def name_holder(self) -> None:
        """Write this process's number into the file, for those who find it locked. Where that fails the lock is free
        again, and it raises as the lock's making does."""
        try:
            # Padded, so that a shorter number leaves nothing of the one before it.
            self._files.pwrite(self._descriptor, b"%-*d\n" % (_PID_BYTES - 1, os.getpid()), 0)
        except OSError as error:
            self.release()
            raise _refusal(self._directory, error) from error

    def release(self) -> None:
        """Let others have the directory. Doing it twice is no error."""
        if self._descriptor >= 0:
            self._files.close(self._descriptor)
            self._descriptor = -1


def _refusal(directory: Path, error: OSError) -> StartRefused:
    name = refusal_name(error, "DATA_DIRECTORY_NOT_WRITABLE")
    return StartRefused(name, f"The data directory {directory} cannot be written: {error.strerror}.")
