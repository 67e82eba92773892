"""One record of a generation in its index: 52 bytes, sorted by queue offset, big-endian.

    int64 queue offset | int64 position in the data | int32 size | int64 tags code | int64 marked at | 16 bytes key hash

`marked at` is 0 for a value. For a tombstone, and for a lost record (size 0, tags code -1), it is when a compaction
first met it; a time of retention later it is dropped. The time of the record itself would not do: a reader that took
the key's old value just before the first compaction must still meet the tombstone. The hash lets the next compaction
tell keys apart without reading the old data.
"""

from __future__ import annotations

import struct
from hashlib import blake2b

from millstream.store.consume_queue import LOST_TAGS_CODE

__all__ = [
    "HASH_OF_ROW",
    "LOST_KEY",
    "OFFSET_OF_ROW",
    "ROW",
    "ROW_BYTES",
    "key_hash",
    "lost_row",
]

ROW = struct.Struct(">qqiqq16s")
ROW_BYTES = ROW.size
OFFSET_OF_ROW = struct.Struct(">q")
HASH_OF_ROW = struct.Struct(">36x16s")

_HASH_BYTES = 16
LOST_KEY = bytes(_HASH_BYTES)
"""In the place of the hash where a record is lost, and its key with it."""


def key_hash(key: bytes) -> bytes:
    """What stands for the key: 16 bytes, so that no two keys are taken for one."""
    return blake2b(key, digest_size=_HASH_BYTES).digest()


def lost_row(queue_offset: int, marked_at_ms: int) -> bytes:
    """The row of a record that was found damaged."""
    return ROW.pack(queue_offset, 0, 0, LOST_TAGS_CODE, marked_at_ms, LOST_KEY)
