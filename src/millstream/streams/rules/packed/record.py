"""A record of packed hits: a readable header, and rows compressed together.

Its layout is ours: magic (4 bytes), version (1), length of the head (4) and CRC-32 of all that follows (4), big-endian;
the head as MessagePack; the rows as `rows` groups them, compressed with zstd.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final
from zlib import crc32

import msgspec
import pyarrow as pa

from millstream.streams.errors import RuleError
from millstream.streams.rules.packed.rows import decode_grouped, encode_grouped

__all__ = ["MAX_ROWS", "MAX_UNPACKED_BYTES", "BatchEnd", "RowsHead", "head_of", "pack", "pack_end", "unpack"]

_VERSION: Final = 1
"""What this release writes, and the newest that it reads."""

MAX_ROWS: Final = 1_000
"""Rows of one record, at most: what one damaged or repeated record costs, and the memory that packing takes."""

MAX_UNPACKED_BYTES: Final = 256 * 2**20
"""Bytes of the unpacked rows of a record: a broken length must not take a worker's memory."""

_MAGIC: Final = b"MSPH"
_PREFIX: Final = struct.Struct(">4sBII")


class RowsHead(msgspec.Struct, frozen=True, tag="rows", array_like=True):
    """Where rows come from: offsets `first` to `last` of the source's `queue`, in micro-batch `batch_id` of `origin`.

    `rows` is how many hits they stand for. `shape` names what is done to rows of its kind; `number` counts the records
    of a shape, queue and task from 0, so (`last`, `number`) only grows. `newest_us` is the newest event time in it,
    `watermark_us` how far event time had come before the micro-batch (None where that is not known).
    """

    origin: str
    batch_id: int
    queue: str
    shape: str
    first: int
    last: int
    number: int
    rows: int
    newest_us: int | None = None
    watermark_us: int | None = None
    unpacked_bytes: int = 0


class BatchEnd(msgspec.Struct, frozen=True, tag="end", array_like=True):
    """The end of micro-batch `batch_id` of `origin` in the topic's queue `into`; it has one in each of `queues`.

    `times_us` is the newest event time of each of the source's queues that had events in it.
    """

    origin: str
    batch_id: int
    into: str
    queues: tuple[str, ...]
    times_us: dict[str, int]
    watermark_us: int | None = None


Head = RowsHead | BatchEnd

_DECODER: Final = msgspec.msgpack.Decoder(Head)


def pack(head: RowsHead, rows: pa.RecordBatch, keys: Sequence[str], told: Sequence[str] = ()) -> bytes:
    """The record of the rows, grouped by `keys`; columns of `told` have one value in all rows of a key.

    The order of rows that share a key is kept.
    """
    plain = encode_grouped(rows, keys, told)
    compressed = pa.Codec("zstd").compress(plain, asbytes=True)
    return _frame(msgspec.structs.replace(head, unpacked_bytes=len(plain)), compressed)


def pack_end(end: BatchEnd) -> bytes:
    """The record of a micro-batch's end."""
    return _frame(end, b"")


def head_of(record: bytes | memoryview) -> Head:
    """The head of a record whose checksum is right. Raises RuleError RULE_HITS_BROKEN."""
    return _split_frame(record)[0]


def unpack(record: bytes | memoryview) -> tuple[Head, pa.RecordBatch | None]:
    """The head and the rows, those of each key together; None for an end. Raises RuleError RULE_HITS_BROKEN."""
    head, compressed = _split_frame(record)
    if isinstance(head, BatchEnd):
        return head, None
    if not 0 <= head.unpacked_bytes <= MAX_UNPACKED_BYTES:
        raise _broken_record(
            f"its rows would take {head.unpacked_bytes:,} bytes, and {MAX_UNPACKED_BYTES:,} are the most"
        )
    try:
        plain = pa.Codec("zstd").decompress(compressed, head.unpacked_bytes, asbytes=True)
        return head, decode_grouped(plain)
    except (pa.ArrowException, OSError, ValueError, KeyError) as error:
        raise _broken_record(f"its rows cannot be unpacked: {error}") from None


def _frame(head: Head, rest: bytes) -> bytes:
    text = msgspec.msgpack.encode(head)
    return _PREFIX.pack(_MAGIC, _VERSION, len(text), crc32(rest, crc32(text))) + text + rest


def _split_frame(record: bytes | memoryview) -> tuple[Head, memoryview]:
    view = memoryview(record)
    if len(view) < _PREFIX.size:
        raise _broken_record(f"it has {len(view)} bytes, and {_PREFIX.size} are the least")
    magic, version, head_bytes, checksum = _PREFIX.unpack_from(view)
    if magic != _MAGIC:
        raise _broken_record(f"it begins with {magic!r}, not {_MAGIC!r}: something else writes to the topic")
    if not 1 <= version <= _VERSION:
        raise _broken_record(f"its version is {version}, and this release reads 1 to {_VERSION}")
    rest = view[_PREFIX.size :]
    if crc32(rest) != checksum:
        raise _broken_record(f"its checksum is {crc32(rest):08x}, and {checksum:08x} was written")
    try:
        return _DECODER.decode(rest[:head_bytes]), rest[head_bytes:]
    except msgspec.MsgspecError as error:
        raise _broken_record(f"its head cannot be read: {error}") from None


def _broken_record(cause: str) -> RuleError:
    return RuleError("RULE_HITS_BROKEN", f"A record of hits cannot be read: {cause}.")
