"""Atomic file replacement: readers see the old or the new file, also after a kill or power failure.

All that streams keep in whole files is written here. The steps go through the narrow file layer of the store, so that
the same twins record and break them.
"""

from __future__ import annotations

import errno
import os
import re
from pathlib import Path
from typing import Final

from millstream.store.files import FileLayer

__all__ = ["JOB_FILES", "PRIVATE_FILES", "JobFiles", "create_file", "discard_unfinished", "write_file"]

_UNFINISHED = re.compile(r"\..+\.\d+\.[0-9a-f]{8}|.+\.tmp")
"""Names of files that a writer had not finished; those that end with `.tmp` are of earlier releases."""

_WITHOUT_LINKS: Final = frozenset({errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EXDEV})
"""What `link` says where a file system has no second names for files."""


class JobFiles(FileLayer):
    """Files of a job: the umask of who started it decides who may read them."""

    file_mode = 0o666
    directory_mode = 0o777


JOB_FILES: Final = JobFiles()
"""What writes files where no other layer is given."""

PRIVATE_FILES: Final = FileLayer()
"""What writes files for their owner alone, as those that may hold keys of access."""


def write_file(path: Path, content: bytes, *, durable: bool = True, files: FileLayer = JOB_FILES) -> None:
    """Put `content` in the place of `path`, at once; missing directories are made.

    When it returns, the file outlives a power failure. With `durable=False` it outlives only the process: for what can
    be made again, and for what stands and falls with Spark's log of micro-batches, which is not synced either. A
    process that is killed leaves a file behind whose name begins with a dot; see `discard_unfinished`. Raises OSError.
    """
    unfinished = _write_unfinished(path, content, durable, files)
    try:
        files.rename(unfinished, path)
    except OSError:
        files.discard(unfinished)
        raise
    if durable:
        files.sync_directory(path.parent)


def create_file(path: Path, content: bytes, *, files: FileLayer = JOB_FILES) -> bool:
    """Whether the file was made, with `content`; False where there is one already, which stays as it is.

    Either way the file that is there outlives a power failure when this returns. Of several writers one makes it; where
    the file system has no hard links the last one does. Missing directories are made. Raises OSError.
    """
    unfinished = _write_unfinished(path, content, True, files)
    is_made = True
    try:
        os.link(unfinished, path)
    except FileExistsError:
        is_made = False
    except OSError as error:
        if error.errno not in _WITHOUT_LINKS:
            raise
        is_made = not files.exists(path)
        if is_made:
            files.rename(unfinished, path)
    finally:
        files.discard(unfinished)
    # Also where another writer made it: that one may have died before it synced the name.
    files.sync_directory(path.parent)
    return is_made


def discard_unfinished(directory: Path, *, files: FileLayer = JOB_FILES) -> None:
    """Remove what writers that were killed left in `directory`. Call it where nobody else writes there."""
    for name in files.names(directory):
        if _UNFINISHED.fullmatch(name):
            files.discard(directory / name)


def _write_unfinished(path: Path, content: bytes, durable: bool, files: FileLayer) -> Path:
    # Synced also for a file that is not: a durable one that comes to lie beside it relies on the directory.
    files.make_directory(path.parent)
    unfinished = path.with_name(f".{path.name}.{os.getpid()}.{os.urandom(4).hex()}")
    try:
        with files.open_descriptor(unfinished, create=True) as descriptor:
            files.pwrite(descriptor, content, 0)
            if durable:
                files.fsync(descriptor)
    except OSError:
        files.discard(unfinished)
        raise
    return unfinished
