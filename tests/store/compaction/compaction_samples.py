"""What the tests of compaction put in and read out: a queue of a log in memory, and files that fail after some time."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from crash.file_twins import HastyFiles

from millstream.model.errors import StoreError
from millstream.model.message import Address, OutgoingMessage
from millstream.protocol.changelog import ChangelogDecoder, key_of_record
from millstream.protocol.record import RecordParts, encode_record, split_record
from millstream.store.compaction.compacted_queue import CompactedQueue
from millstream.store.compaction.compaction import CompactionOptions
from millstream.store.compaction.generation import CompactedEntry
from millstream.store.compaction.source import QueueSource
from millstream.store.consume_queue import IndexEntry, tags_code

__all__ = [
    "RETENTION_MS",
    "CrashingFiles",
    "LogQueue",
    "Table",
    "content",
    "key_and_body",
    "opened",
    "readable",
    "record",
]

RETENTION_MS = 100
_HOST = Address("127.0.0.1", 10911)


def record(queue_offset: int, key: str | None, body: bytes, *, tag: str | None = None, queue_id: int = 0) -> bytes:
    properties = {} if key is None else {"KEYS": key}
    if tag:
        properties["TAGS"] = tag
    message = OutgoingMessage("prices", body, properties, born_host=_HOST)
    return encode_record(
        message,
        queue_id=queue_id,
        queue_offset=queue_offset,
        log_offset=1_000_000 + queue_offset * 1000,
        store_timestamp_ms=1_700_000_000_000 + queue_offset,
        store_host=_HOST,
    )


class LogQueue:
    """The ordinary queue of a compacted one. Damaged records are in `damaged`, by queue offset."""

    def __init__(self, *puts: tuple[str | None, bytes]) -> None:
        self.records: list[bytes] = []
        self.first = 0
        self.damaged: set[int] = set()
        for key, body in puts:
            self.put(key, body)

    def put(self, key: str | None, body: bytes, *, tag: str | None = None) -> int:
        self.records.append(record(len(self.records), key, body, tag=tag))
        return len(self.records) - 1

    def min_offset(self) -> int:
        return self.first

    def end_offset(self) -> int:
        return len(self.records)

    def entries(self, queue_offset: int, max_count: int) -> list[IndexEntry]:
        first = max(queue_offset, self.first)
        return [
            IndexEntry(number, 1_000_000 + number * 1000, len(self.records[number]), tags_code(self._tag(number)))
            for number in range(first, min(first + max_count, len(self.records)))
        ]

    def _tag(self, number: int) -> str | None:
        return "paid" if b"TAGS\1paid" in self.records[number] else None

    def read(self, entry: IndexEntry) -> memoryview:
        if entry.queue_offset < self.first or entry.queue_offset in self.damaged:
            raise StoreError("RECORD_DAMAGED", f"The record at {entry.queue_offset} is damaged.")
        found = self.records[entry.queue_offset]
        assert (entry.log_offset, entry.size_bytes) == (1_000_000 + entry.queue_offset * 1000, len(found))
        return memoryview(found)


class CrashingFiles(HastyFiles):
    """From the operation number `left` on every change of a file fails, as if the process had ended there."""

    def __init__(self, left: int) -> None:
        self.left = left

    def _check(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise OSError(errno.EIO, "the process is gone")

    def open(self, path: Path, *, create: bool = False) -> int:
        if create:
            self._check()
        return super().open(path, create=create)

    def pwrite(self, descriptor: int, data: bytes | bytearray | memoryview, position: int) -> None:
        if self.left == 0 and len(data) > 1:
            os.pwrite(descriptor, memoryview(data)[: len(data) // 2], position)
        self._check()
        super().pwrite(descriptor, data, position)

    def truncate(self, descriptor: int, length: int) -> None:
        self._check()
        super().truncate(descriptor, length)

    def fsync(self, descriptor: int) -> None:
        self._check()

    def rename(self, source: Path, target: Path) -> None:
        self._check()
        super().rename(source, target)

    def sync_directory(self, path: Path) -> None:
        self._check()

    def remove(self, path: Path) -> None:
        self._check()
        super().remove(path)

    def remove_tree(self, path: Path, *, sync: bool = True) -> None:
        for number, entry in enumerate(self.entries(path)):
            self._check()
            if number % 2 == 0 and entry.is_file():
                entry.unlink()
        super().remove_tree(path, sync=sync)


def opened(
    directory: Path, source: LogQueue, *, files: HastyFiles | None = None, max_keys: int = 1000, max_records: int = 1000
) -> CompactedQueue:
    """The queue in the directory after a start."""
    options = CompactionOptions(RETENTION_MS, key_of_record, max_keys, max_records)
    queue = CompactedQueue("prices", 0, directory, files or HastyFiles(), options)
    queue.recover(source.min_offset())
    return queue


def key_and_body(found: memoryview) -> tuple[str | None, bytes]:
    parts: RecordParts = split_record(found)
    key = key_of_record(parts)
    return (None if key is None else key.decode(), bytes(parts.body))


class Table:
    """A state store that reads a queue from its start on, as pulls do.

    It begins anew where a tombstone that it has not met may be gone: the header in use says so.
    """

    def __init__(self) -> None:
        self.state: dict[bytes, bytes] = {}
        self.restarts = 0
        self._changelog = ChangelogDecoder()
        self._forgotten_end = 0

    @property
    def next_offset(self) -> int:
        return self._changelog.next_offset

    def read(self, queue: CompactedQueue, source: QueueSource, max_records: int) -> bool:
        """Apply the next changes; whether there were any."""
        forgotten_end = queue.header.forgotten_end if queue.header is not None else 0
        if forgotten_end > self._forgotten_end:
            if 0 < self.next_offset < forgotten_end:
                self._changelog = ChangelogDecoder()
                self.state.clear()
                self.restarts += 1
            self._forgotten_end = forgotten_end
        entries = queue.entries(self.next_offset, max_records, source)
        for change in self._changelog.changes(read_entry(entry, source) for entry in entries):
            if change.value is None:
                self.state.pop(change.key, None)
            else:
                self.state[change.key] = bytes(change.value)
        return bool(entries)

    def read_all(self, queue: CompactedQueue, source: QueueSource, max_records: int) -> None:
        while self.read(queue, source, max_records):
            pass


def read_entry(entry: IndexEntry, source: QueueSource) -> memoryview:
    return entry.generation.read(entry) if isinstance(entry, CompactedEntry) else source.read(entry)


def readable(queue: CompactedQueue, source: LogQueue, queue_offset: int = 0) -> dict[int, bytes | None]:
    """Every record from the offset on as a reader gets it, by queue offset; None for one that is named as damaged."""
    found: dict[int, bytes | None] = {}
    for entry in queue.entries(queue_offset, 1_000_000, source):
        assert entry.queue_offset not in found
        try:
            found[entry.queue_offset] = bytes(read_entry(entry, source))
        except StoreError as error:
            if error.name != "RECORD_DAMAGED":
                raise
            found[entry.queue_offset] = None
    assert list(found) == sorted(found)
    return found


def content(queue: CompactedQueue, source: LogQueue, queue_offset: int = 0) -> dict[int, tuple[str | None, bytes]]:
    """Key and body of every record from the offset on; none may be damaged."""
    read = readable(queue, source, queue_offset)
    assert None not in read.values()
    return {number: key_and_body(memoryview(found)) for number, found in read.items() if found is not None}
