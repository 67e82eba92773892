"""An object store in a directory, for example on a network file system that all brokers share."""

from __future__ import annotations

import errno
import itertools
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from millstream.store.files import FileLayer
from millstream.tiered.objects import (
    MAX_DELETED_KEYS,
    ObjectExists,
    ObjectInfo,
    ObjectNotFound,
    ObjectStoreAway,
    ObjectStoreDenied,
    check_key,
    check_range,
)

__all__ = ["DirectoryObjects"]

_PARTIAL: Final = ".partial"
"""What the names of files end with that are not whole yet; no key does."""

PARTIAL_S: Final = 24 * 60 * 60
"""Seconds after which the file of a put is one that a crash left; a list of objects that comes by it removes it."""

_DENIED: Final = frozenset({errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EISDIR, errno.EEXIST})
_MS: Final = 1_000_000


class DirectoryObjects:
    """Keys are paths below `directory`. A put is on the disk when it returns; a crash leaves none or all of it.

    Without `creates` a directory that is not there is none that this machine sees: ObjectStoreDenied.
    """

    def __init__(self, directory: Path, files: FileLayer | None = None, *, creates: bool = True) -> None:
        self._directory = directory
        self._files = files or FileLayer()
        self._numbers = itertools.count()
        with _meaning(str(directory)):
            if creates:
                self._files.make_directory(directory)
            elif not self._files.exists(directory):
                raise ObjectStoreDenied(f"there is no directory {directory} here")

    def put(self, key: str, data: bytes, *, create_only: bool = False) -> None:
        """See `ObjectStore`."""
        path = self._path(key)
        files = self._files
        # Puts of one key at a time, in this process and others, each have a file of their own.
        partial = path.with_name(f"{path.name}.{os.getpid()}-{next(self._numbers)}{_PARTIAL}")
        with _meaning(key):
            files.make_directory(path.parent)
            try:
                with files.open_descriptor(partial, create=True) as descriptor:
                    files.pwrite(descriptor, data, 0)
                    files.fsync(descriptor)
                if create_only:
                    files.link(partial, path)
                else:
                    files.rename(partial, path)
            except FileExistsError:
                raise ObjectExists(key) from None
            finally:
                files.discard(partial)
            files.sync_directory(path.parent)

    def get(self, key: str, start: int = 0, end: int | None = None) -> bytes:
        """See `ObjectStore`."""
        with self._open_object(key) as descriptor:
            start, end = check_range(key, self._files.size(descriptor), start, end)
            return self._read(key, descriptor, start, end)

    def get_many(self, key: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """See `ObjectStore`."""
        with self._open_object(key) as descriptor:
            size_bytes = self._files.size(descriptor)
            checked = [check_range(key, size_bytes, start, end) for start, end in ranges]
            return [self._read(key, descriptor, start, end) for start, end in checked]

    def head(self, key: str) -> ObjectInfo:
        """See `ObjectStore`."""
        with _meaning(key):
            return _info(key, self._path(key))

    def delete(self, keys: Sequence[str]) -> None:
        """See `ObjectStore`. Directories that are empty then stay."""
        if len(keys) > MAX_DELETED_KEYS:
            raise ValueError(f"{len(keys)} keys are more than {MAX_DELETED_KEYS}")
        for key in keys:
            path = self._path(key)
            with _meaning(key):
                if self._files.exists(path):
                    self._files.remove(path)

    def list(self, prefix: str, after: str = "") -> Iterator[ObjectInfo]:
        """See `ObjectStore`."""
        with _meaning(prefix):
            keys = sorted(key for key in self._keys(prefix) if key.startswith(prefix) and key > after)
        for key in keys:
            # Whatever is removed while its list is read was not there, as in other stores.
            try:
                info = self.head(key)
            except ObjectNotFound:
                continue
            yield info

    def close(self) -> None:
        """See `ObjectStore`."""

    def _path(self, key: str) -> Path:
        return self._directory / check_key(key)

    @contextmanager
    def _open_object(self, key: str) -> Iterator[int]:
        with _meaning(key):
            descriptor = self._files.open_to_read(self._path(key))
            try:
                yield descriptor
            finally:
                self._files.close(descriptor)

    def _read(self, key: str, descriptor: int, start: int, end: int) -> bytes:
        parts, position = [], start
        while position < end:
            part = self._files.pread(descriptor, end - position, position)
            if not part:
                raise ObjectStoreAway(f"the object {key!r} ends at {position}, before {end}")
            parts.append(part)
            position += len(part)
        return b"".join(parts)

    def _keys(self, prefix: str) -> Iterator[str]:
        """The keys of the directory that the prefix names last, and below it."""
        above = prefix.rpartition("/")[0]
        for parent, _, names in os.walk(self._directory / above if above else self._directory):
            place = Path(parent).relative_to(self._directory).as_posix()
            for name in names:
                if name.endswith(_PARTIAL):
                    self._discard_old(Path(parent, name))
                else:
                    yield name if place == "." else f"{place}/{name}"

    def _discard_old(self, partial: Path) -> None:
        """Remove what a put left that was cut off long ago."""
        try:
            if partial.stat().st_mtime < time.time() - PARTIAL_S:
                self._files.discard(partial)
        except OSError:
            # Its own put was quicker, or the directory takes no change now: the next list comes here again.
            return


def _info(key: str, path: Path) -> ObjectInfo:
    found = path.stat()
    return ObjectInfo(key, found.st_size, found.st_mtime_ns // _MS)


@contextmanager
def _meaning(key: str) -> Iterator[None]:
    """The error of the object store for one of the operating system."""
    try:
        yield
    except FileNotFoundError:
        raise ObjectNotFound(key) from None
    except OSError as error:
        cause = f"{key}: {error.strerror or error}"
        raise (ObjectStoreDenied(cause) if error.errno in _DENIED else ObjectStoreAway(cause)) from error
