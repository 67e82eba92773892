"""The first 16 bytes of a file: `8 bytes magic | uint32 format version | uint32 CRC-32 of both`, big-endian.

The head is the same for every version to come, so a newer release's file is told from a damaged one: its checksum fits.
"""

from __future__ import annotations

import struct
from pathlib import Path
from zlib import crc32

from millstream.model.errors import StoreError

__all__ = ["HEAD_BYTES", "file_head", "is_whole_head"]

_CHECKED = struct.Struct(">8sI")
_CHECKSUM = struct.Struct(">I")
HEAD_BYTES = _CHECKED.size + _CHECKSUM.size


def file_head(magic: bytes, version: int) -> bytes:
    """The head of a file of that kind and version."""
    checked = _CHECKED.pack(magic, version)
    return checked + _CHECKSUM.pack(crc32(checked))


def is_whole_head(content: bytes, magic: bytes, version: int, path: Path) -> bool:
    """Whether the content begins with that head. Raises STORE_FORMAT for a head of another version."""
    if len(content) < HEAD_BYTES:
        return False
    found, found_version = _CHECKED.unpack_from(content)
    if found != magic or _CHECKSUM.unpack_from(content, _CHECKED.size)[0] != crc32(content[: _CHECKED.size]):
        return False
    if found_version != version:
        raise StoreError("STORE_FORMAT", f"{path} has the format {found_version}, not {version}.")
    return True
