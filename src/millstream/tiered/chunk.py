"""A chunk: an immutable object that holds records of one queue, or (then it is called a pack) of many.

    MSCHUNK1 | blocks and key tables | footer | uint32 footer bytes | uint32 CRC-32 of the footer | MSCHUNK1

A block is a zstd frame of whole records with their bytes as in the log, so positions, checksums and ids stay what they
were. A key table is a zstd frame of (hash, block, record) for the keys of one part, sorted. The footer is a zstd frame
of `ChunkFooter` as MessagePack. The integers at the end are big-endian. Blocks and key tables have their CRC-32 in the
footer, so that a change of any byte is found before it is served.
"""

from __future__ import annotations

import struct
import sys
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from millstream.model.errors import StoreError
from millstream.protocol.checksum import crc32
from millstream.tiered.queue_records import KEY_BUCKETS, PartRecords, RawBlock, share_out_keys, split_records

if sys.version_info >= (3, 14):
    from compression.zstd import ZstdDecompressor, ZstdError, compress
else:
    from backports.zstd import ZstdDecompressor, ZstdError, compress

__all__ = [
    "MAX_BLOCK_BYTES",
    "MAX_FOOTER_BYTES",
    "TAIL_BYTES",
    "BlockInfo",
    "ChunkFooter",
    "ChunkPart",
    "KeyTable",
    "damage_of",
    "decode_block",
    "decode_footer",
    "decode_key_table",
    "encode_chunk",
    "find_block",
    "find_keys",
    "find_log_offset",
    "find_time",
    "footer_range",
    "pack_frame",
    "unpack_frame",
]

MAGIC: Final = b"MSCHUNK1"

MAX_BLOCK_BYTES: Final = 8 * 1024 * 1024
"""Bytes of records of one block at most: of the largest record, and of what stands before it."""

MAX_FOOTER_BYTES: Final = 32 * 1024 * 1024
"""Bytes of a footer at most, before and after it is unpacked."""

MAX_KEYS: Final = 16 * 1024 * 1024
"""Entries of a key table at most; what is longer is damaged."""

TAIL_BYTES: Final = 16
"""Bytes behind the footer."""

_MANY_KEYS: Final = 4096
"""Keys that are sorted in one list, and that are worked on between two pauses."""

_LEVEL: Final = 1
"""Of zstd: 2 and more take twice the time for a few hundredths of the size."""

_TAIL: Final = struct.Struct(">II8s")
_KEY: Final = struct.Struct(">III")
_KEY_PLACES: Final = (0, 1, 2, 3, 6, 7, 10, 11)
"""Where in an entry the bytes of a key of `PartRecords` stand."""


class BlockInfo(msgspec.Struct, frozen=True, array_like=True):
    """A block in the object, and what it holds. `next_queue_offset` is behind its last message."""

    position: int
    size_bytes: int
    raw_bytes: int
    checksum: int
    records: int
    first_queue_offset: int
    next_queue_offset: int
    first_log_offset: int
    last_log_offset: int
    first_stored_ms: int
    last_stored_ms: int


class KeyTable(msgspec.Struct, frozen=True, array_like=True):
    """Where the keys of a part lie in the object, and how many entries they have."""

    position: int
    size_bytes: int
    checksum: int
    entries: int


class ChunkPart(msgspec.Struct, frozen=True, array_like=True):
    """One queue's share of a chunk; its blocks by queue offset, one at least."""

    topic: str
    queue_id: int
    blocks: tuple[BlockInfo, ...]
    keys: KeyTable | None = None

    @property
    def first_queue_offset(self) -> int:
        """The queue offset of its first message."""
        return self.blocks[0].first_queue_offset

    @property
    def next_queue_offset(self) -> int:
        """The queue offset behind its last message."""
        return self.blocks[-1].next_queue_offset


class ChunkFooter(msgspec.Struct, frozen=True, array_like=True):
    """What an object says of itself: from which broker, in which epoch, and from where to where of its log."""

    cluster: str
    broker: str
    epoch: int
    log_begin: int
    log_end: int
    parts: tuple[ChunkPart, ...]


def encode_chunk(
    parts: Iterable[PartRecords],
    *,
    cluster: str,
    broker: str,
    epoch: int,
    log_begin: int,
    log_end: int,
    pause: Callable[[], None] = lambda: None,
) -> tuple[bytes, ChunkFooter]:
    """The object's bytes and its footer. ValueError without records, or for a record that is too long.

    `pause` is called between pieces of the work.
    """
    pieces, position = [MAGIC], len(MAGIC)
    described: list[ChunkPart] = []
    for part in parts:
        blocks: list[BlockInfo] = []
        for block in part.blocks:
            frame, info = _encode_block(block, position)
            pieces.append(frame)
            blocks.append(info)
            position += info.size_bytes
        if not blocks:
            raise ValueError(f"the part of {part.topic}/{part.queue_id} has no records")
        table = None
        if part.keys:
            frame = pack_frame(_key_entries(part.keys, pause))
            table = KeyTable(position, len(frame), crc32(frame), len(part.keys))
            pieces.append(frame)
            position += len(frame)
        described.append(ChunkPart(part.topic, part.queue_id, tuple(blocks), table))
    if not described:
        raise ValueError("a chunk has one part at least")
    footer = ChunkFooter(cluster, broker, epoch, log_begin, log_end, tuple(described))
    packed = pack_frame(msgspec.msgpack.encode(footer))
    pieces += (packed, _TAIL.pack(len(packed), crc32(packed), MAGIC))
    return b"".join(pieces), footer


def _encode_block(block: RawBlock, position: int) -> tuple[bytes, BlockInfo]:
    if len(block.raw) > MAX_BLOCK_BYTES:
        raise ValueError(f"a record of {len(block.raw)} bytes is longer than {MAX_BLOCK_BYTES}")
    frame = pack_frame(block.raw)
    info = BlockInfo(
        position,
        len(frame),
        len(block.raw),
        crc32(frame),
        block.records,
        block.first_queue_offset,
        block.next_queue_offset,
        block.first_log_offset,
        block.last_log_offset,
        block.first_stored_ms,
        block.last_stored_ms,
    )
    return frame, info


def _key_entries(keys: list[int], pause: Callable[[], None]) -> bytes:
    """The entries of a key table, in order."""
    if len(keys) < _MANY_KEYS:
        return bytes(_pack_keys(sorted(keys)))
    buckets: list[list[int]] = [[] for _ in range(KEY_BUCKETS)]
    for start in range(0, len(keys), _MANY_KEYS):
        share_out_keys(keys, start, min(start + _MANY_KEYS, len(keys)), buckets)
        pause()
    entries, waiting = [], 0
    for bucket in buckets:
        bucket.sort()
        entries.append(_pack_keys(bucket))
        waiting += len(bucket)
        if waiting >= _MANY_KEYS:
            waiting = 0
            pause()
    return b"".join(entries)


def _pack_keys(keys: list[int]) -> bytearray:
    """Sorted keys as entries. Moves bytes by their places, as no object is made for a key so."""
    packed = array("Q", keys)
    if sys.byteorder == "little":
        packed.byteswap()
    places, entries = packed.tobytes(), bytearray(_KEY.size * len(keys))
    for source, target in enumerate(_KEY_PLACES):
        entries[target :: _KEY.size] = places[source :: packed.itemsize]
    return entries


def footer_range(key: str, size_bytes: int, tail: bytes) -> tuple[int, int]:
    """Where the footer of an object lies, by its last TAIL_BYTES bytes. Raises CHUNK_DAMAGED."""
    if len(tail) != TAIL_BYTES or size_bytes < len(MAGIC) + TAIL_BYTES:
        raise damage_of(key, f"it has {size_bytes} bytes")
    length, _, magic = _TAIL.unpack(tail)
    end = size_bytes - TAIL_BYTES
    if magic != MAGIC or not 0 < length <= min(end - len(MAGIC), MAX_FOOTER_BYTES):
        raise damage_of(key, "its end is not that of a chunk")
    return end - length, end


def decode_footer(key: str, packed: bytes, tail: bytes) -> ChunkFooter:
    """The footer from its bytes and the object's last TAIL_BYTES. Raises CHUNK_DAMAGED."""
    _, checksum, _ = _TAIL.unpack(tail)
    if crc32(packed) != checksum:
        raise damage_of(key, "its footer fails its checksum")
    try:
        return msgspec.msgpack.decode(unpack_frame(packed, MAX_FOOTER_BYTES), type=ChunkFooter)
    except (ValueError, msgspec.MsgspecError) as error:
        raise damage_of(key, f"its footer cannot be read: {error}") from error


def decode_block(
    key: str, info: BlockInfo, frame: bytes, let_others_run: Callable[[], None] = lambda: None
) -> list[memoryview]:
    """The records of a block, each verified by its own checksum as well. Raises CHUNK_DAMAGED.

    `let_others_run` is called between the steps of it.
    """
    if len(frame) != info.size_bytes or crc32(frame) != info.checksum:
        raise damage_of(key, f"its block at {info.position} fails its checksum")
    if info.raw_bytes > MAX_BLOCK_BYTES:
        raise damage_of(key, f"its block at {info.position} says that it has {info.raw_bytes} bytes")
    let_others_run()
    try:
        raw = unpack_frame(frame, info.raw_bytes)
        let_others_run()
        records = split_records(raw)
    except ValueError as error:
        raise damage_of(key, f"its block at {info.position} cannot be read: {error}") from error
    if records is None or len(records) != info.records:
        raise damage_of(key, f"a record in its block at {info.position} fails its checksum")
    return records


def decode_key_table(key: str, table: KeyTable, frame: bytes) -> bytes:
    """The entries of a key table, for `find_keys`. Raises CHUNK_DAMAGED."""
    if len(frame) != table.size_bytes or crc32(frame) != table.checksum or table.entries > MAX_KEYS:
        raise damage_of(key, f"its key table at {table.position} fails its checksum")
    try:
        entries = unpack_frame(frame, table.entries * _KEY.size)
    except ValueError as error:
        raise damage_of(key, f"its key table at {table.position} cannot be read: {error}") from error
    if len(entries) != table.entries * _KEY.size:
        raise damage_of(key, f"its key table at {table.position} has another length than its footer says")
    return entries


def find_keys(entries: bytes, key_hash: int) -> list[tuple[int, int]]:
    """Block and record numbers of a key's records. Equal hashes of other keys are among them."""
    count = len(entries) // _KEY.size
    numbers = range(count)
    first = bisect_left(numbers, key_hash, key=lambda number: _KEY.unpack_from(entries, number * _KEY.size)[0])
    found = []
    for number in range(first, count):
        found_hash, block, record = _KEY.unpack_from(entries, number * _KEY.size)
        if found_hash != key_hash:
            break
        found.append((block, record))
    return found


def find_block(part: ChunkPart, queue_offset: int) -> int | None:
    """The number of the block with that message, else of the one that follows; None where none does."""
    number = bisect_right(part.blocks, queue_offset, key=lambda block: block.next_queue_offset)
    return number if number < len(part.blocks) else None


def find_time(part: ChunkPart, stored_ms: int) -> BlockInfo | None:
    """The first block with a message that was stored at that time or later; None where all were before."""
    return next((block for block in part.blocks if block.last_stored_ms >= stored_ms), None)


def find_log_offset(part: ChunkPart, log_offset: int) -> BlockInfo | None:
    """The one block of the part that may have the record of a log offset; None where none has."""
    number = bisect_left(part.blocks, log_offset, key=lambda block: block.last_log_offset)
    found = part.blocks[number] if number < len(part.blocks) else None
    return found if found is not None and found.first_log_offset <= log_offset else None


def pack_frame(content: bytes) -> bytes:
    """The content as one zstd frame."""
    return compress(content, _LEVEL)


def unpack_frame(frame: bytes, max_bytes: int) -> bytes:
    """The content of one whole frame; ValueError where it is longer than allowed, cut, or followed by more."""
    decompressor = ZstdDecompressor()
    try:
        found: bytes = decompressor.decompress(frame, max_length=max_bytes + 1)
    except ZstdError as error:
        raise ValueError(str(error)) from error
    if len(found) > max_bytes or not decompressor.eof or decompressor.unused_data:
        raise ValueError(f"it is no single frame of {max_bytes} bytes at most")
    return found


def damage_of(key: str, why: str) -> StoreError:
    """The error for an object that is not what it should be: CHUNK_DAMAGED."""
    return StoreError("CHUNK_DAMAGED", f"The object {key!r} is damaged: {why}.")
