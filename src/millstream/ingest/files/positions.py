"""Saves how far each file was read, so that a restart continues there.

A file is known by device and inode, and by checksums of its first bytes and of those before the position: an inode is
given away again, and a file may be emptied and written again.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final
from zlib import crc32

import msgspec

from millstream.ingest.files.sources import FileKey, TailSource
from millstream.model.errors import StartRefused
from millstream.store.directory_lock import DirectoryLock
from millstream.store.files import FileLayer

__all__ = [
    "HEAD_BYTES",
    "MAX_POSITIONS_BYTES",
    "FilePosition",
    "PositionBook",
    "PositionsDocument",
    "anchor_of",
    "is_copy",
]

HEAD_BYTES: Final = 256
"""First bytes of a file that go into its checksum."""

_ANCHOR_BYTES: Final = 64
"""Bytes before the position that do."""

MAX_POSITIONS_BYTES: Final = 64 * 1024 * 1024
"""Bytes of the file of offsets at most: more than 200,000 files."""

_MIN_COPY_BYTES: Final = HEAD_BYTES
"""Bytes that must have been read of a file before another one with the same bytes is taken for its copy."""

_VERSION: Final = 1


class FilePosition(msgspec.Struct, frozen=True):
    """How far one file was read: `offset` counts bytes of its plain text, all before it is acknowledged."""

    path: str
    device: int
    inode: int
    offset: int
    head_bytes: int
    head_crc32: int
    anchor_crc32: int | None
    """None for packed files, which nobody writes again."""

    @property
    def key(self) -> FileKey:
        """Which file it is."""
        return FileKey(self.device, self.inode)

    def fits(self, source: TailSource) -> bool:
        """Whether the source has those bytes before the position. Raises BrokenFile, OSError."""
        size = source.size_bytes()
        if size is not None and size < self.offset:
            return False
        head = source.read_at(0, self.head_bytes)
        if len(head) != self.head_bytes or crc32(head) != self.head_crc32:
            return False
        return self.anchor_crc32 is None or self.anchor_crc32 == anchor_of(source, self.offset)


class PositionsDocument(msgspec.Struct, frozen=True):
    """What the file holds: files that are followed, and those that are gone, of which copies may turn up."""

    version: int = _VERSION
    files: Sequence[FilePosition] = ()
    gone: Sequence[FilePosition] = ()


def anchor_of(source: TailSource, offset: int) -> int:
    """The checksum of the bytes before `offset`."""
    begin = max(0, offset - _ANCHOR_BYTES)
    return crc32(source.read_at(begin, offset - begin))


class PositionBook:
    """The positions of one directory, which no other process has meanwhile. Raises StartRefused."""

    def __init__(self, directory: Path, files: FileLayer | None = None) -> None:
        self._files = files or FileLayer()
        self._path = directory / "positions.json"
        self._lock = DirectoryLock(directory, self._files)
        try:
            self.read = self._read()
        except BaseException:
            self._lock.release()
            raise

    def save(self, positions: PositionsDocument) -> None:
        """Replace what the file holds; a crash leaves the old content or the new one. Raises OSError."""
        self._files.replace(self._path, msgspec.json.encode(positions))

    def close(self) -> None:
        """Let others have the directory."""
        self._lock.release()

    def _read(self) -> PositionsDocument:
        path = self._path
        try:
            with path.open("rb") as file:
                content = file.read(MAX_POSITIONS_BYTES + 1)
        except FileNotFoundError:
            return PositionsDocument()
        except OSError as error:
            raise _unreadable(path, error.strerror or str(error)) from None
        if len(content) > MAX_POSITIONS_BYTES:
            raise _unreadable(path, f"it has over {MAX_POSITIONS_BYTES:,} bytes")
        try:
            positions = msgspec.json.decode(content, type=PositionsDocument)
        except msgspec.MsgspecError as error:
            raise _unreadable(path, str(error)) from None
        if positions.version != _VERSION:
            raise _unreadable(path, f"it is of version {positions.version}, and this release reads {_VERSION}")
        return positions


def is_copy(position: FilePosition, source: TailSource) -> bool:
    """Whether the source begins as a file did that was read so far: rotation may copy or pack what it moves."""
    return position.offset >= _MIN_COPY_BYTES and position.anchor_crc32 is not None and position.fits(source)


def _unreadable(path: Path, why: str) -> StartRefused:
    return StartRefused("INGEST_POSITIONS", f"The positions in {path} cannot be read: {why}.")
