"""The file layer: every open, write, sync, rename and map of the store goes through one `FileLayer`.

Tests put a recording or a faulty twin in its place; nothing else of the store calls `os` for files.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import mmap
import os
import shutil
from collections import OrderedDict
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Final

from millstream.model.errors import StoreError

__all__ = ["FileLayer", "FileNotOpened", "OpenFiles", "SharedFiles", "is_disk_full", "refusal_name"]

_OWN_FILE_MODE: Final = 0o600
_OWN_DIRECTORY_MODE: Final = 0o700
_PARTIAL_SUFFIX = ".tmp"


_PASSING: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})
"""Why a file cannot be opened for now: the process's descriptors, the system's, the memory."""


class FileNotOpened(StoreError, OSError):
    """A file could not be opened or mapped for want of descriptors or memory: nothing was done to it, and that passes.

    It is both kinds of error: who can do without a file goes on as after any error of the disk, and who cannot answers
    FILE_NOT_OPENED. A write or a sync never raises it.
    """

    def __init__(self, path: Path, error: OSError) -> None:
        super().__init__("FILE_NOT_OPENED", f"{path} cannot be opened for now: {error.strerror}.")
        self.errno, self.strerror = error.errno, error.strerror


def is_disk_full(error: OSError) -> bool:
    """Whether the error says that there is no room, which can pass, and not that the disk has failed."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT)


def refusal_name(error: OSError, otherwise: str) -> str:
    """The catalogue's name for an error of the disk: DISK_FULL or FILE_NOT_OPENED, which pass, else `otherwise`."""
    if isinstance(error, FileNotOpened):
        return error.name
    return "DISK_FULL" if is_disk_full(error) else otherwise


@contextlib.contextmanager
def _opening(path: Path) -> Iterator[None]:
    """FileNotOpened where what is done inside, which must be no write or sync, fails for a cause that passes."""
    try:
        yield
    except OSError as error:
        if error.errno in _PASSING:
            raise FileNotOpened(path, error) from error
        raise


@cache
def _syncfs() -> Callable[[int], int] | None:
    """Linux's syncfs, for which Python has no call of its own."""
    try:
        found = ctypes.CDLL(None, use_errno=True).syncfs
    except (OSError, AttributeError):
        return None
    found.argtypes, found.restype = (ctypes.c_int,), ctypes.c_int
    return found


class FileLayer:
    """The operating system's files. Errors are `OSError`, of which `FileNotOpened` passes; lengths are bytes.

    What it makes is for its owner alone: messages are nobody else's business, and some files hold secrets. What is
    there keeps the mode that it has.
    """

    file_mode = _OWN_FILE_MODE
    """Who may read and write a file that is made."""

    directory_mode = _OWN_DIRECTORY_MODE
    """Who may look into a directory that is made."""

    def open(self, path: Path, *, create: bool = False) -> int:
        """A descriptor for reading and writing; `create` makes the file if it is not there."""
        with _opening(path):
            return os.open(path, os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0), self.file_mode)

    def open_to_read(self, path: Path) -> int:
        """A descriptor of a file or directory that this process need not be allowed to write."""
        with _opening(path):
            return os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def close(self, descriptor: int) -> None:
        os.close(descriptor)

    def size(self, descriptor: int) -> int:
        return os.fstat(descriptor).st_size

    def pwrite(self, descriptor: int, data: bytes | bytearray | memoryview, position: int) -> None:
        """Write all of `data` at `position`."""
        written = os.pwrite(descriptor, data, position)
        while written < len(data):
            written += os.pwrite(descriptor, memoryview(data)[written:], position + written)

    def pread(self, descriptor: int, length: int, position: int) -> bytes:
        """The bytes at `position`, fewer than `length` at the file's end."""
        return os.pread(descriptor, length, position)

    def fdatasync(self, descriptor: int) -> None:
        """Return when the file's data is on the disk."""
        getattr(os, "fdatasync", os.fsync)(descriptor)

    def fsync(self, descriptor: int) -> None:
        """Return when the file's data, size and other metadata are on the disk."""
        os.fsync(descriptor)

    def truncate(self, descriptor: int, length: int) -> None:
        """Make the file `length` bytes long, with zeros where it grows."""
        os.ftruncate(descriptor, length)

    def preallocate(self, descriptor: int, position: int, length: int) -> None:
        """Reserve room on the disk, so that writing there later neither fails for want of room nor moves the size.

        Where the system has no such call nothing is reserved.
        """
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(descriptor, position, length)

    def map(self, descriptor: int) -> memoryview:
        """The whole file (not empty), read-only and not copied. What is written to the file later shows in it."""
        return memoryview(mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ))

    def map_file(self, path: Path) -> memoryview:
        """The whole of a file that this process need not be allowed to write, read-only and not copied.

        It stays readable after the file was removed.
        """
        descriptor = self.open_to_read(path)
        try:
            with _opening(path):
                return self.map(descriptor) if self.size(descriptor) else memoryview(b"")
        finally:
            os.close(descriptor)

    def rename(self, source: Path, target: Path) -> None:
        """Give the file another name; a file of that name is replaced in one step."""
        source.replace(target)

    def link(self, source: Path, target: Path) -> None:
        """Give a file a second name, or the other name a copy where the file system has no such links."""
        try:
            os.link(source, target)
        except FileExistsError:
            raise
        except OSError:
            shutil.copyfile(source, target)
            with self.open_descriptor(target) as descriptor:
                self.fsync(descriptor)

    def sync_directory(self, path: Path) -> None:
        """Return when the directory's entries are on the disk."""
        descriptor = self.open_to_read(path)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def sync_file_system(self, path: Path) -> None:
        """Return when all that was written to the file system of `path` is on the disk.

        For thousands of small files at once; where the system has no such call every file system is synced.
        """
        syncfs = _syncfs()
        if syncfs is None:
            os.sync()
            return
        descriptor = self.open_to_read(path)
        try:
            if syncfs(descriptor):
                number = ctypes.get_errno()
                raise OSError(number, os.strerror(number), str(path))
        finally:
            os.close(descriptor)

    def make_directory(self, path: Path, *, sync: bool = True) -> None:
        """Make the directory and those above it; it may be there already.

        With `sync` its entry is on the disk when this returns.
        """
        if path.is_dir():
            return
        self.make_directory(path.parent, sync=sync)
        path.mkdir(mode=self.directory_mode, exist_ok=True)
        if sync:
            self.sync_directory(path.parent)

    def entries(self, path: Path) -> list[Path]:
        """What is in the directory, sorted by name; nothing if there is no such directory."""
        with _opening(path):
            return sorted(path.iterdir()) if path.is_dir() else []

    def disk(self, path: Path) -> tuple[int, int]:
        """Bytes of the disk that `path` is on, and those that are free for this process."""
        found = os.statvfs(path)
        return found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize

    def names(self, path: Path) -> list[str]:
        """The names of what is in the directory, in no order; nothing if there is no such directory."""
        try:
            with _opening(path):
                return os.listdir(path)
        except FileNotFoundError:
            return []

    def exists(self, path: Path) -> bool:
        return path.exists()

    def read_all(self, path: Path) -> bytes:
        """The whole of a small file."""
        with _opening(path):
            return path.read_bytes()

    def remove(self, path: Path) -> None:
        """Remove the file if it is there, and return when that is on the disk."""
        path.unlink(missing_ok=True)
        self.sync_directory(path.parent)

    def discard(self, path: Path) -> None:
        """Remove the file if it is there; after a crash it may be there again."""
        path.unlink(missing_ok=True)

    def remove_tree(self, path: Path, *, sync: bool = True) -> None:
        """Remove the directory with all that is in it, if it is there.

        With `sync` that is on the disk when this returns; without it the caller syncs the directory that it was in.
        """
        if path.is_dir():
            with _opening(path):
                shutil.rmtree(path)
            if sync:
                self.sync_directory(path.parent)

    @contextlib.contextmanager
    def open_descriptor(self, path: Path, *, create: bool = False) -> Iterator[int]:
        """A descriptor that is closed at the end of the block."""
        descriptor = self.open(path, create=create)
        try:
            yield descriptor
        finally:
            self.close(descriptor)

    def replace(self, path: Path, content: bytes) -> None:
        """Put a file with `content` at `path` so that a crash leaves the old file or the new one, never a mixture."""
        partial = path.with_name(path.name + _PARTIAL_SUFFIX)
        with self.open_descriptor(partial, create=True) as descriptor:
            self.truncate(descriptor, 0)
            self.pwrite(descriptor, content, 0)
            self.fsync(descriptor)
        self.rename(partial, path)
        self.sync_directory(path.parent)


class SharedFiles(FileLayer):
    """Files that others of the machine may read, as what jobs of several users look up."""

    file_mode = 0o644
    directory_mode = 0o755


class OpenFiles:
    """Descriptors of files that are read again and again; the least recently used is closed beyond `limit`.

    Paths are text here: a store with very many queues looks very many of them up. Not safe for use by several threads
    at once.
    """

    def __init__(self, files: FileLayer, limit: int) -> None:
        self._files = files
        self._limit = limit
        self._descriptors: OrderedDict[str, int] = OrderedDict()

    def descriptor(self, path: str) -> int:
        """The descriptor of an existing file; it stays open until others push it out or it is forgotten."""
        found = self._descriptors.get(path)
        if found is not None:
            self._descriptors.move_to_end(path)
            return found
        try:
            opened = self._files.open(Path(path))
        except FileNotOpened:
            if not self._descriptors:
                raise
            # What is only kept for later makes room for what is wanted now.
            self.close()
            opened = self._files.open(Path(path))
        self._descriptors[path] = opened
        if len(self._descriptors) > self._limit:
            self._files.close(self._descriptors.popitem(last=False)[1])
        return opened

    def forget(self, directory: Path) -> None:
        """Close what is open under `directory`."""
        start = f"{directory}/"
        for path in [path for path in self._descriptors if path.startswith(start)]:
            self._files.close(self._descriptors.pop(path))

    def forget_file(self, path: Path) -> None:
        """Close one file if it is open."""
        descriptor = self._descriptors.pop(str(path), None)
        if descriptor is not None:
            self._files.close(descriptor)

    def close(self) -> None:
        """Close everything."""
        while self._descriptors:
            self._files.close(self._descriptors.popitem()[1])
