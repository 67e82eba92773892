"""The flush mark: the synced end of the log, by which a start tells damage from a torn tail.

Below the mark a record that fails its checksum is damaged; behind it the log may end anywhere. The mark itself is not
synced: after kill -9 it is exact, after a power failure it may be an older one, which is true as well.

Two slots of 512 bytes take turns: `8 bytes magic | uint64 log offset | uint32 CRC-32`, big-endian.
"""

from __future__ import annotations

import struct
from pathlib import Path
from zlib import crc32

from millstream.store.files import FileLayer

__all__ = ["FlushMark"]

_MAGIC = b"MSFLUSH1"
_CONTENT = struct.Struct(">8sQ")
_CHECKSUM = struct.Struct(">I")
_SLOT_BYTES = 512


class FlushMark:
    """The mark in its file. Not safe for use by several threads at once."""

    def __init__(self, path: Path, files: FileLayer) -> None:
        self._path = path
        self._files = files
        self._descriptor: int | None = None
        self._slot = 0

    def load(self) -> int:
        """The greatest offset that was noted; 0 where nothing can be read."""
        if not self._files.exists(self._path):
            return 0
        content = self._files.read_all(self._path)
        return max(_offset(content[start : start + _SLOT_BYTES]) for start in (0, _SLOT_BYTES))

    def reset(self, log_offset: int) -> None:
        """Note the offset in place of all that was noted before; it is on the disk when this returns."""
        self.close()
        self._files.replace(self._path, _slot(log_offset) * 2)
        self._descriptor = self._files.open(self._path)

    def note(self, log_offset: int) -> None:
        """Note what a sync has reached. `reset` comes first."""
        assert self._descriptor is not None
        self._slot ^= 1
        self._files.pwrite(self._descriptor, _slot(log_offset), self._slot * _SLOT_BYTES)

    def close(self) -> None:
        """Close the file."""
        if self._descriptor is not None:
            self._files.close(self._descriptor)
            self._descriptor = None


def _slot(log_offset: int) -> bytes:
    content = _CONTENT.pack(_MAGIC, log_offset)
    return (content + _CHECKSUM.pack(crc32(content))).ljust(_SLOT_BYTES, b"\0")


def _offset(slot: bytes) -> int:
    if len(slot) < _CONTENT.size + _CHECKSUM.size:
        return 0
    magic, log_offset = _CONTENT.unpack_from(slot)
    is_whole = magic == _MAGIC and _CHECKSUM.unpack_from(slot, _CONTENT.size)[0] == crc32(slot[: _CONTENT.size])
    return int(log_offset) if is_whole else 0
