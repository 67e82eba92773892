"""What of the timer files counts, and what of the log they cover: the one file that makes all others valid.

After the head (`file_head.py`), little-endian: `int64 covered queue offset | int64 covered log offset | int64 number of
the next file | int64 count of rows`, a row of `int64 hour | int64 base offset | int64 file number | int64 size |
int64 CRC-32` for each file, then `uint32 CRC-32` of all bytes before it.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

from millstream.store.file_head import HEAD_BYTES, file_head, is_whole_head

__all__ = [
    "CHECKPOINT_MAGIC",
    "FORMAT_VERSION",
    "TimerCheckpoint",
    "TimerFile",
    "decode_checkpoint",
    "encode_checkpoint",
]

FORMAT_VERSION = 1
"""Of the checkpoint, and with it of the timer files."""

CHECKPOINT_MAGIC = b"MSTMRCHK"

_FIELDS = struct.Struct("<qqqq")
_ROW = struct.Struct("<qqqqq")
_SEAL = struct.Struct("<I")


class TimerFile(NamedTuple):
    """One file of an hour's timers, and how much of it counts. `base_offset` is that of its hour (see `Hour`)."""

    hour: int
    base_offset: int
    number: int
    size_bytes: int
    checksum: int


class TimerCheckpoint(NamedTuple):
    """The files hold all that was scheduled below the one offset and not done below the other."""

    covered_queue_offset: int
    covered_log_offset: int
    next_file_number: int
    files: tuple[TimerFile, ...]


def encode_checkpoint(checkpoint: TimerCheckpoint) -> bytes:
    """The content of the checkpoint's file."""
    *fields, rows = checkpoint
    content = b"".join(
        [
            file_head(CHECKPOINT_MAGIC, FORMAT_VERSION),
            _FIELDS.pack(*fields, len(rows)),
            *(_ROW.pack(*row) for row in rows),
        ]
    )
    return content + _SEAL.pack(crc32(content))


def decode_checkpoint(content: bytes, path: Path) -> TimerCheckpoint | None:
    """The checkpoint, or None if it is damaged. Raises STORE_FORMAT for one of another version."""
    if not is_whole_head(content, CHECKPOINT_MAGIC, FORMAT_VERSION, path):
        return None
    end = len(content) - _SEAL.size
    rows_start = HEAD_BYTES + _FIELDS.size
    if end < rows_start or _SEAL.unpack_from(content, end)[0] != crc32(content[:end]):
        return None
    covered_queue_offset, covered_log_offset, next_file_number, count = _FIELDS.unpack_from(content, HEAD_BYTES)
    if rows_start + count * _ROW.size != end:
        return None
    rows = tuple(TimerFile(*row) for row in _ROW.iter_unpack(content[rows_start:end]))
    return TimerCheckpoint(covered_queue_offset, covered_log_offset, next_file_number, rows)
