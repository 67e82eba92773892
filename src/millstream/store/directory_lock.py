"""The lock that keeps two processes out of one data directory."""

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

    The system frees it when the process ends, however that happens.
    """

    def __init__(self, directory: Path, files: FileLayer) -> None:
        self._files = files
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
        try:
            # Padded, so that a shorter number leaves nothing of the one before it.
            files.pwrite(self._descriptor, b"%-*d\n" % (_PID_BYTES - 1, os.getpid()), 0)
        except OSError as error:
            files.close(self._descriptor)
            raise _refusal(directory, error) from error

    def release(self) -> None:
        """Let others have the directory."""
        self._files.close(self._descriptor)


def _refusal(directory: Path, error: OSError) -> StartRefused:
    name = refusal_name(error, "DATA_DIRECTORY_NOT_WRITABLE")
    return StartRefused(name, f"The data directory {directory} cannot be written: {error.strerror}.")
