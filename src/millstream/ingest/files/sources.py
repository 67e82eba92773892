"""Opens a file for reading: a plain file at any position, a compressed one from its beginning."""

from __future__ import annotations

import gzip
import os
import sys
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

if sys.version_info >= (3, 14):
    from compression.zstd import ZstdError, ZstdFile
else:
    from backports.zstd import ZstdError, ZstdFile

__all__ = ["PACKED_SUFFIXES", "BrokenFile", "FileKey", "PackedFile", "PlainFile", "TailSource", "open_source"]

PACKED_SUFFIXES: Final = (".gz", ".zst")

_SKIP_BYTES: Final = 1024 * 1024


class BrokenFile(Exception):
    """A packed file that ends too early or is damaged. `may_grow` where more of it may come."""

    def __init__(self, words: str, *, may_grow: bool) -> None:
        super().__init__(words)
        self.may_grow = may_grow


@dataclass(frozen=True, slots=True, order=True)
class FileKey:
    """Which file it is, whatever its name."""

    device: int
    inode: int

    @classmethod
    def of(cls, found: os.stat_result) -> FileKey:
        """The key of what `stat` found."""
        return cls(found.st_dev, found.st_ino)


class TailSource(Protocol):
    """What a tail reads from. Offsets count bytes of the plain text."""

    key: FileKey
    is_packed: bool

    def size_bytes(self) -> int | None:
        """How long the plain text is now; None where nobody knows."""
        ...

    def read_at(self, offset: int, size_bytes: int) -> bytes:
        """Bytes from `offset` on; fewer or none at the end. Raises BrokenFile, OSError."""
        ...

    def close(self) -> None: ...


def open_source(path: Path) -> TailSource:
    """The file at `path`, packed if its name ends so. Raises OSError."""
    return PackedFile(path) if path.name.endswith(PACKED_SUFFIXES) else PlainFile(path)


class PlainFile:
    """A descriptor, which stays with its file when that is renamed or deleted."""

    is_packed = False

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        self.key = FileKey.of(os.fstat(self._descriptor))

    def size_bytes(self) -> int:
        """How long the file is now."""
        return os.fstat(self._descriptor).st_size

    def read_at(self, offset: int, size_bytes: int) -> bytes:
        """Bytes from `offset` on."""
        return os.pread(self._descriptor, size_bytes, offset)

    def close(self) -> None:
        """Close the file."""
        os.close(self._descriptor)


class PackedFile:
    """A file packed by gzip or zstd, unpacked piece by piece; going back starts over."""

    is_packed = True

    def __init__(self, path: Path) -> None:
        self._path = path
        self._raw = path.open("rb")
        self.key = FileKey.of(os.fstat(self._raw.fileno()))
        self._plain = self._begin()
        self._offset = 0
        self._broken_at_bytes: int | None = None

    def size_bytes(self) -> None:
        """Nobody knows before its end."""

    def read_at(self, offset: int, size_bytes: int) -> bytes:
        """The plain bytes from `offset` on."""
        packed_bytes = os.fstat(self._raw.fileno()).st_size
        if self._broken_at_bytes == packed_bytes:
            return b""
        if offset < self._offset or self._broken_at_bytes is not None:
            self._plain, self._offset, self._broken_at_bytes = self._begin(), 0, None
        try:
            while self._offset < offset:
                skipped = self._plain.read1(min(_SKIP_BYTES, offset - self._offset))
                if not skipped:
                    return b""
                self._offset += len(skipped)
            data = self._plain.read1(size_bytes)
        except EOFError:
            self._broken_at_bytes = packed_bytes
            raise BrokenFile(f"{self._path} ends in the middle", may_grow=True) from None
        except (zlib.error, gzip.BadGzipFile, ZstdError) as error:
            raise BrokenFile(f"{self._path} is damaged: {error}", may_grow=False) from None
        self._offset += len(data)
        return data

    def close(self) -> None:
        """Close the file."""
        self._raw.close()

    def _begin(self) -> gzip.GzipFile | ZstdFile:
        self._raw.seek(0)
        if self._path.name.endswith(".gz"):
            return gzip.GzipFile(fileobj=self._raw)
        return ZstdFile(self._raw)
