"""The first 16 bytes of each file of the timer store: `8 bytes magic | uint32 format version | uint32 CRC-32 of both`.

The head is the same for every version to come, so a newer release's file is told from a damaged one: its checksum fits.
"""

from __future__ import annotations

import struct
from pathlib import Path
from zlib import crc32

from millstream.model.errors import StoreError

__all__ = ["FORMAT_VERSION", "HEAD_BYTES", "file_head", "is_whole_head"]

FORMAT_VERSION = 1
"""Of the timer files and of their checkpoint."""

_HEAD = struct.Struct("<8sII")
HEAD_BYTES = _HEAD.size
_CHECKED_BYTES = HEAD_BYTES - 4


def file_head(magic: bytes) -> bytes:
    """The head of a file of this release."""
    checked = _HEAD.pack(magic, FORMAT_VERSION, 0)[:_CHECKED_BYTES]
    return checked + crc32(checked).to_bytes(4, "little")


def is_whole_head(content: bytes, magic: bytes, path: Path) -> bool:
    """Whether the content begins with the head of this release. Raises STORE_FORMAT for that of another one."""
    if len(content) < HEAD_BYTES:
        return False
    found, version, checksum = _HEAD.unpack_from(content)
    if found != magic or checksum != crc32(content[:_CHECKED_BYTES]):
        return False
    if version != FORMAT_VERSION:
        raise StoreError("STORE_FORMAT", f"{path} has the format {version}, not {FORMAT_VERSION}.")
    return True
