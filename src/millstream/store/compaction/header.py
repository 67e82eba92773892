"""The header of a generation: the range it covers, as a checksummed document.

    8 bytes magic | uint32 format version | uint32 length | JSON document | uint32 CRC-32 of all bytes before it

The seal is the same for every version to come, so a newer release's file is told from a damaged one: its seal is whole.
"""

from __future__ import annotations

import struct
from pathlib import Path
from zlib import crc32

import msgspec

from millstream.model.errors import StoreError
from millstream.store.files import FileLayer

__all__ = ["FORMAT_VERSION", "MAX_HEADER_BYTES", "GenerationHeader", "decode_header", "encode_header", "load_header"]

FORMAT_VERSION = 1
"""Of the header, and with it of the index rows and of the data."""

MAX_HEADER_BYTES = 64 * 1024
"""A longer file is no header."""

_MAGIC = b"MSCOMPCT"
_HEAD = struct.Struct(">8sII")
_SEAL = struct.Struct(">I")


class GenerationHeader(msgspec.Struct, frozen=True, kw_only=True):
    """One generation: the last record of each key among the queue offsets from `min_offset` up to `end_offset`.

    `forgotten_end` lies behind the last tombstone that was dropped; who read below it earlier and has not yet read up
    to it may have missed a deletion. `oldest_mark_ms` is since when the oldest tombstone is kept, 0 without any.
    """

    number: int
    topic: str
    queue_id: int
    min_offset: int
    end_offset: int
    forgotten_end: int
    rows: int
    data_bytes: int
    index_crc: int
    oldest_mark_ms: int
    written_at_ms: int
    read_records: int
    """Records of the log that went into this generation, over those of the one before."""


def encode_header(header: GenerationHeader) -> bytes:
    """The sealed document."""
    document = msgspec.json.encode(header)
    content = _HEAD.pack(_MAGIC, FORMAT_VERSION, len(document)) + document
    return content + _SEAL.pack(crc32(content))


def decode_header(content: bytes, path: Path) -> GenerationHeader | None:
    """The header, or None if the document is damaged. Raises STORE_FORMAT for a whole one of another version."""
    if not _HEAD.size + _SEAL.size <= len(content) <= MAX_HEADER_BYTES:
        return None
    magic, version, length = _HEAD.unpack_from(content)
    end = len(content) - _SEAL.size
    if magic != _MAGIC or _HEAD.size + length != end or _SEAL.unpack_from(content, end)[0] != crc32(content[:end]):
        return None
    if version != FORMAT_VERSION:
        raise StoreError("STORE_FORMAT", f"{path} has the format {version}, not {FORMAT_VERSION}.")
    try:
        return msgspec.json.decode(content[_HEAD.size : end], type=GenerationHeader)
    except msgspec.DecodeError as error:
        raise StoreError("STORE_FORMAT", f"{path} cannot be read: {error}.") from None


def load_header(path: Path, files: FileLayer) -> GenerationHeader | None:
    """The header in a file, or None if the file is missing or damaged. Raises STORE_FORMAT."""
    if not files.exists(path):
        return None
    with files.open_descriptor(path) as descriptor:
        content = files.pread(descriptor, MAX_HEADER_BYTES + 1, 0)
    return decode_header(content, path)
