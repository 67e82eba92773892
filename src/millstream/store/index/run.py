"""Runs of the key index: immutable files with the sorted entries of one log range.

    the head (`file_head.py`) |
    uint32 level | uint64 entries | uint64 begin | uint64 end | int64 begin ms | int64 end ms | uint32 CRC-32 so far |
    blocks: up to 255 entries | uint32 CRC-32 of them, started from the block's number

Integers are big-endian. The file is named by the log offsets where its range begins and ends. An entry is
`uint32 hash | uint64 log offset | uint32 store time in s`, and the entries are in the order of their bytes.
"""

from __future__ import annotations

import re
import struct
from bisect import bisect_left
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from millstream.model.errors import StoreError
from millstream.protocol.checksum import crc32
from millstream.store.file_head import HEAD_BYTES, file_head, is_whole_head
from millstream.store.files import FileLayer

__all__ = [
    "BLOCK_BYTES",
    "BLOCK_ENTRIES",
    "ENTRY",
    "ENTRY_BYTES",
    "FORMAT_VERSION",
    "HEADER_BYTES",
    "PARTIAL_SUFFIX",
    "KeyRun",
    "RunReader",
    "RunSpan",
    "is_partial_run",
    "is_run",
    "key_hash",
    "load_run",
    "pack_header",
    "run_path",
    "seal_block",
    "stored_seconds",
    "topic_seed",
]

FORMAT_VERSION = 1
ENTRY = struct.Struct(">IQI")
ENTRY_BYTES = ENTRY.size
BLOCK_ENTRIES = 255
"""Entries under one checksum: what a reader takes from the disk at a time."""

BLOCK_BYTES = BLOCK_ENTRIES * ENTRY_BYTES + 4
PARTIAL_SUFFIX = ".tmp"

_MAGIC = b"MSKEYRUN"
_FIELDS = struct.Struct(">IQQQqq")
_CHECKSUM = struct.Struct(">I")
HEADER_BYTES = HEAD_BYTES + _FIELDS.size + _CHECKSUM.size
_MAX_SECONDS = 2**32 - 1
_NAME = re.compile(r"\d{20}-\d{20}", re.ASCII)


def topic_seed(topic: bytes) -> int:
    """What the hashes of a topic's keys start from: the CRC-32 of `topic#`."""
    return crc32(topic + b"#")


def key_hash(topic: bytes, key: bytes) -> int:
    """What an entry holds of a key of a topic: the CRC-32 of `topic#key`."""
    return crc32(key, topic_seed(topic))


def stored_seconds(timestamp_ms: int) -> int:
    """What an entry holds of a time. Times beyond its range are at one of its ends, so that the order is kept."""
    return min(max(timestamp_ms // 1000, 0), _MAX_SECONDS)


def is_run(name: str) -> bool:
    """Whether a file of this name is a run."""
    return _NAME.fullmatch(name) is not None


def is_partial_run(name: str) -> bool:
    """Whether a file of this name is a run that was not finished."""
    return name.endswith(PARTIAL_SUFFIX) and is_run(name.removesuffix(PARTIAL_SUFFIX))


def run_path(directory: Path, begin: int, end: int) -> Path:
    """The file of the run over a range of the log."""
    return directory / f"{begin:020}-{end:020}"


@dataclass(frozen=True, slots=True)
class RunSpan:
    """What a run covers: the records from the log offset `begin` up to `end`, stored from `begin_ms` to `end_ms`.

    `level` is 0 for a run that was made from the log, one more for every merge.
    """

    begin: int
    end: int
    begin_ms: int
    end_ms: int
    level: int = 0


def pack_header(span: RunSpan, entries: int) -> bytes:
    """The first bytes of a run's file."""
    fields = _FIELDS.pack(span.level, entries, span.begin, span.end, span.begin_ms, span.end_ms)
    header = file_head(_MAGIC, FORMAT_VERSION) + fields
    return header + _CHECKSUM.pack(crc32(header))


def seal_block(number: int, entries: bytes | memoryview) -> bytes:
    """A block's entries with their checksum."""
    return b"".join((entries, _CHECKSUM.pack(crc32(entries, number))))


class KeyRun:
    """One run. `is_damaged` is set by whoever finds that it cannot be read; it is not used from then on."""

    def __init__(self, path: Path, span: RunSpan, entries: int) -> None:
        self.path = path
        self.span = span
        self.entries = entries
        self.is_damaged = False

    @property
    def blocks(self) -> int:
        """The number of blocks."""
        return -(-self.entries // BLOCK_ENTRIES)

    @contextmanager
    def open_reader(self, files: FileLayer) -> Iterator[RunReader]:
        """A reader of the file, which is closed at the end. FileNotFoundError if it was merged or removed."""
        with files.open_descriptor(self.path) as descriptor:
            yield RunReader(self, descriptor, files)


class RunReader:
    """Reads an open run block by block, each checked. Raises RECORD_DAMAGED, and OSError for errors of the disk."""

    def __init__(self, run: KeyRun, descriptor: int, files: FileLayer) -> None:
        self.run = run
        self._descriptor = descriptor
        self._files = files

    def block(self, number: int) -> bytes:
        """The entries of a block, packed."""
        entries = min(BLOCK_ENTRIES, self.run.entries - number * BLOCK_ENTRIES)
        size = entries * ENTRY_BYTES
        block = self._files.pread(self._descriptor, size + 4, HEADER_BYTES + number * BLOCK_BYTES)
        packed = block[:size]
        if len(block) < size + 4 or block[size:] != _CHECKSUM.pack(crc32(packed, number)):
            raise StoreError("RECORD_DAMAGED", f"Block {number} of the key index file {self.run.path} is damaged.")
        return packed

    def newest(self, wanted_hash: int) -> Iterator[tuple[int, int]]:
        """Log offset and store time in s of each entry of the hash, newest first."""
        first = wanted_hash.to_bytes(4, "big")
        number = bisect_left(range(self.run.blocks), True, key=lambda at: self.block(at)[:4] > first) - 1
        while number >= 0:
            block = self.block(number)
            for position in range(len(block) - ENTRY_BYTES, -1, -ENTRY_BYTES):
                found, log_offset, stored_s = ENTRY.unpack_from(block, position)
                if found < wanted_hash:
                    return
                if found == wanted_hash:
                    yield log_offset, stored_s
            number -= 1


def load_run(path: Path, files: FileLayer) -> KeyRun | None:
    """The run in a file, or None if its header or its size is damaged. Blocks are not looked at.

    Raises STORE_FORMAT for a version that this release does not know.
    """
    with files.open_descriptor(path) as descriptor:
        header, size = files.pread(descriptor, HEADER_BYTES, 0), files.size(descriptor)
    if not is_whole_head(header, _MAGIC, FORMAT_VERSION, path):
        return None
    if len(header) < HEADER_BYTES or header[-4:] != _CHECKSUM.pack(crc32(header[:-4])):
        return None
    level, entries, begin, end, begin_ms, end_ms = _FIELDS.unpack_from(header, HEAD_BYTES)
    run = KeyRun(path, RunSpan(begin, end, begin_ms, end_ms, level), entries)
    whole_size = HEADER_BYTES + entries * ENTRY_BYTES + run.blocks * 4
    return run if size == whole_size and path.name == run_path(path.parent, begin, end).name else None
