"""One compaction: merges the previous generation and newer records into the next generation, in small steps.

1. gather: a row for each record of the log that the generation before does not cover
2. choose: which rows outlive it (`LatestByKey`)
3. copy the old records that stay, then the new ones
4. sync, seal, switch

Nothing that readers use is touched before the switch; a crash or an error on the way leaves only a directory without a
header, which the next start removes.

Which records outlive a compaction: the last one of each key, found with a bounded number of keys in memory.

The keys are taken in ranges of their hashes. A pass keeps the last record of every key of its range; when it meets too
many, it gives the upper half of the range to the next pass. So memory is bounded, and time grows by a look at the
rows (not at the records) for each further pass.

Writing the next generation, in order: first data and index, then the header that says they are whole.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from millstream.model.errors import StoreError
from millstream.protocol.changelog import KeyOf, key_of_record
from millstream.protocol.checksum import crc32
from millstream.protocol.record import split_record
from millstream.store.compaction.generation import Generation, map_file
from millstream.store.compaction.header import GenerationHeader, encode_header
from millstream.store.compaction.row import HASH_OF_ROW, LOST_KEY, ROW, ROW_BYTES, key_hash, lost_row
from millstream.store.compaction.source import QueueSource
from millstream.store.consume_queue import IndexEntry
from millstream.store.files import FileLayer

__all__ = [
    "BUFFER_BYTES",
    "CHUNK_RECORDS",
    "DEFAULT_RETENTION_MS",
    "MAX_KEYS_IN_MEMORY",
    "MAX_ROUND_RECORDS",
    "AppendedFile",
    "Assignment",
    "Compaction",
    "CompactionOptions",
    "GenerationWriter",
    "LatestByKey",
]

BUFFER_BYTES = 1024 * 1024
"""Bytes that a file gathers before it writes them, over those of one record."""


class AppendedFile:
    """A file that is written once from its start on, through a buffer. `crc` is of all that was appended."""

    def __init__(self, path: Path, files: FileLayer) -> None:
        self.size_bytes = 0
        self.crc = 0
        self._files = files
        self._buffer = bytearray()
        self._written_bytes = 0
        self._descriptor: int | None = files.open(path, create=True)
        try:
            files.truncate(self._descriptor, 0)
        except OSError:
            self.close()
            raise

    def append(self, data: bytes | bytearray | memoryview) -> None:
        """Put `data` at the end."""
        self._buffer += data
        self.size_bytes += len(data)
        if len(self._buffer) >= BUFFER_BYTES:
            self.write()

    def write(self) -> None:
        """Hand what was appended to the system, so that other descriptors see it."""
        assert self._descriptor is not None
        if self._buffer:
            self._files.pwrite(self._descriptor, self._buffer, self._written_bytes)
            self.crc = crc32(self._buffer, self.crc)
            self._written_bytes = self.size_bytes
            self._buffer.clear()

    def sync(self) -> None:
        """Return when all that was appended is on the disk."""
        self.write()
        assert self._descriptor is not None
        self._files.fsync(self._descriptor)

    def close(self) -> None:
        """Close the file. Closing twice is no error."""
        if self._descriptor is not None:
            descriptor, self._descriptor = self._descriptor, None
            self._files.close(descriptor)


class GenerationWriter:
    """The directory of one generation to be. Errors of the disk are `OSError`."""

    def __init__(self, directory: Path, files: FileLayer) -> None:
        self.directory = directory
        self._files = files
        files.make_directory(directory)
        self.data = AppendedFile(directory / "data", files)
        try:
            self.index = AppendedFile(directory / "index", files)
        except OSError:
            self.data.close()
            raise

    def sync(self) -> None:
        """Return when data and index are on the disk."""
        self.data.sync()
        self.index.sync()
        self.close()

    def finish(self, header: GenerationHeader) -> None:
        """Seal what was synced; a start that finds this header may use the generation."""
        self._files.replace(self.directory / "header", encode_header(header))

    def close(self) -> None:
        """Close the files."""
        self.data.close()
        self.index.close()


MAX_KEYS_IN_MEMORY = 262_144
"""Keys that one pass holds: about 40 MB."""


class LatestByKey:
    """Which rows of the generation before (`keep_old`) and of the new ones (`keep_new`) stay: one byte a row."""

    def __init__(self, old_rows: memoryview, new_rows: memoryview, max_keys: int = MAX_KEYS_IN_MEMORY) -> None:
        self.keep_old = bytearray(b"\1" * (len(old_rows) // ROW_BYTES))
        self.keep_new = bytearray(len(new_rows) // ROW_BYTES)
        self.passes = 0
        self._old_rows = old_rows
        self._new_rows = new_rows
        self._max_keys = max(max_keys, 1)

    def choose(self, chunk_rows: int) -> Generator[int]:
        """Fill both; after at most `chunk_rows` rows each, yields the number of rows looked at."""
        low: bytes | None = b""
        while low is not None:
            low = yield from self._choose_from(low, chunk_rows)
            self.passes += 1

    def _choose_from(self, low: bytes, chunk_rows: int) -> Generator[int, None, bytes | None]:
        """One pass over the hashes from `low` on; where the next one starts, or None behind the last."""
        high: bytes | None = None
        last: dict[bytes, int] = {}
        for first, hashes in _hashes(self._new_rows, chunk_rows):
            for number, (key,) in enumerate(hashes, start=first):
                if key < low or (high is not None and key >= high):
                    continue
                if key == LOST_KEY:
                    self.keep_new[number] = 1
                    continue
                last[key] = number
                if len(last) > self._max_keys:
                    high = sorted(last)[len(last) // 2]
                    last = {key: number for key, number in last.items() if key < high}
            yield number + 1 - first
        for number in last.values():
            self.keep_new[number] = 1
        for first, hashes in _hashes(self._old_rows, chunk_rows):
            for number, (key,) in enumerate(hashes, start=first):
                if key in last:
                    self.keep_old[number] = 0
            yield number + 1 - first
        return high


def _hashes(rows: memoryview, chunk_rows: int) -> Iterator[tuple[int, Iterator[tuple[bytes]]]]:
    chunk_bytes = chunk_rows * ROW_BYTES
    for start in range(0, len(rows), chunk_bytes):
        yield start // ROW_BYTES, HASH_OF_ROW.iter_unpack(rows[start : start + chunk_bytes])


CHUNK_RECORDS = 1024
"""Records between two looks at whether a step is over."""

MAX_ROUND_RECORDS = 16 * 1024 * 1024
"""Records of the log that one compaction takes; it keeps one byte in memory for each. The next one goes on there."""

DEFAULT_RETENTION_MS = 24 * 3600 * 1000
"""How long a tombstone is kept after a compaction first met it."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class CompactionOptions:
    """How queues are compacted. `key_of` must give the same key for a record for ever."""

    tombstone_retention_ms: int = DEFAULT_RETENTION_MS
    key_of: KeyOf = key_of_record
    max_keys: int = MAX_KEYS_IN_MEMORY
    max_round_records: int = MAX_ROUND_RECORDS


@dataclass(frozen=True, slots=True)
class Assignment:
    """What to compact and where to: the part of the queue from the end of `before` (None: `start`) up to `end`."""

    number: int
    topic: str
    queue_id: int
    directory: Path
    before: Generation | None
    end_offset: int
    now_ms: int


class Compaction:
    """A compaction under way. `step` and `abandon` may be called from any thread.

    An error ends it: `OSError` of the disk, RECORD_DAMAGED where the log lost a record while it was read. Its files
    are removed as far as the disk allows, and the generation before stays in use.
    """

    def __init__(
        self,
        assignment: Assignment,
        source: QueueSource,
        options: CompactionOptions,
        files: FileLayer,
        switch: Callable[[GenerationHeader], None],
    ) -> None:
        self.is_over = False
        self.header: GenerationHeader | None = None
        self._assignment = assignment
        self._source = source
        self._options = options
        self._files = files
        self._switch = switch
        self._mutex = threading.Lock()
        self._chunk_records = CHUNK_RECORDS
        self._oldest_mark_ms = 0
        self._lost = 0
        self._keyless = 0
        before = assignment.before
        self._start = before.header.end_offset if before is not None else source.min_offset()
        end = min(assignment.end_offset, self._start + options.max_round_records, source.end_offset())
        self._end = max(end, self._start)
        self._forgotten_end = before.header.forgotten_end if before is not None else 0
        self._pieces = self._run()

    @property
    def end_offset(self) -> int:
        """Up to which queue offset it goes."""
        return self._end

    def step(self, max_records: int) -> bool:
        """Go on for about `max_records` records; whether it is over. `header` is the new generation's then."""
        with self._mutex:
            self._chunk_records = max(1, min(max_records, CHUNK_RECORDS))
            try:
                while not self.is_over and max_records > 0:
                    max_records -= next(self._pieces)
            except StopIteration:
                self._end_here()
            except BaseException:
                self._end_here()
                raise
            return self.is_over

    def abandon(self) -> None:
        """Give up, after the step that is under way; what was written so far is removed. Nothing if it is over."""
        with self._mutex:
            self._pieces.close()
            self._end_here()

    def _end_here(self) -> None:
        self.is_over = True
        # Whoever keeps this shall not keep the files of the generation before, which the switch has removed.
        self._assignment = replace(self._assignment, before=None)

    def _run(self) -> Generator[int]:
        writer = GenerationWriter(self._assignment.directory, self._files)
        try:
            new_rows = yield from self._gather(writer.directory / "gathered")
            before = self._assignment.before
            survivors = LatestByKey(before.index if before else memoryview(b""), new_rows, self._options.max_keys)
            yield from survivors.choose(self._chunk_records)
            if before is not None:
                yield from self._copy_old(before, survivors.keep_old, writer)
            yield from self._copy_new(new_rows, survivors.keep_new, writer)
            self._files.remove(writer.directory / "gathered")
            header = self._seal(writer)
        except BaseException:
            writer.close()
            with contextlib.suppress(OSError):
                self._files.remove_tree(writer.directory)
            raise
        # An error in here leaves the sealed directory: the disk may name it as the one in use already.
        self._switch(header)
        self.header = header

    def _gather(self, path: Path) -> Generator[int, None, memoryview]:
        gathered = AppendedFile(path, self._files)
        try:
            queue_offset = self._start
            while queue_offset < self._end:
                entries = self._source.entries(queue_offset, min(self._chunk_records, self._end - queue_offset))
                entries = [entry for entry in entries if entry.queue_offset < self._end]
                if not entries:
                    # The log forgot the rest under our hands; the next compaction names what it lost.
                    break
                if entries[0].queue_offset > queue_offset:
                    self._name_gap(queue_offset, entries[0].queue_offset)
                for entry in entries:
                    gathered.append(self._row_of(entry))
                queue_offset = entries[-1].queue_offset + 1
                yield len(entries)
            self._end = min(queue_offset, self._end)
            gathered.write()
        finally:
            gathered.close()
        if self._lost or self._keyless:
            _log.error("%s: %d records are damaged, %d have no key", self._name, self._lost, self._keyless)
        return map_file(path, self._files)

    def _row_of(self, entry: IndexEntry) -> bytes:
        """A row with the log offset in the place of the position; nothing for a record that does not count."""
        queue_offset, log_offset, size_bytes, tags_code = entry[:4]
        try:
            record = self._source.read(entry) if size_bytes else None
        except StoreError as error:
            if error.name != "RECORD_DAMAGED":
                raise
            record = None
        if record is None:
            self._lost += 1
            return lost_row(queue_offset, self._assignment.now_ms)
        parts = split_record(record)
        key = self._options.key_of(parts)
        if key is None:
            self._keyless += 1
            return b""
        marked_ms = 0 if len(parts.body) else self._assignment.now_ms
        return ROW.pack(queue_offset, log_offset, size_bytes, tags_code, marked_ms, key_hash(key))

    @property
    def _name(self) -> str:
        return f"compaction of {self._assignment.topic}/{self._assignment.queue_id}"

    def _name_gap(self, start: int, end: int) -> None:
        _log.error("%s: the log no longer has the queue offsets from %d up to %d", self._name, start, end)

    def _copy_old(self, before: Generation, keep: bytearray, writer: GenerationWriter) -> Generator[int]:
        """Copy what stays of the generation before, unread: each record carries its own checksum."""
        first = 0
        while first < len(keep):
            chunk = before.index[first * ROW_BYTES : (first + self._chunk_records) * ROW_BYTES]
            self._copy_rows(chunk, keep[first : first + len(chunk) // ROW_BYTES], before.data, writer)
            first += len(chunk) // ROW_BYTES
            yield len(chunk) // ROW_BYTES

    def _copy_rows(self, rows: memoryview, keep: bytearray, data: memoryview, writer: GenerationWriter) -> None:
        run_start = run_end = 0
        for (queue_offset, position, size_bytes, tags_code, marked_ms, key), stays in zip(
            ROW.iter_unpack(rows), keep, strict=True
        ):
            if not stays or self._forgets(queue_offset, marked_ms):
                continue
            if position + size_bytes > len(data) or not size_bytes:
                marked_ms = marked_ms or self._assignment.now_ms
                self._add_row(writer, lost_row(queue_offset, marked_ms), marked_ms)
                continue
            if position != run_end or run_end - run_start >= BUFFER_BYTES:
                writer.data.append(data[run_start:run_end])
                run_start = position
            run_end = position + size_bytes
            new_position = writer.data.size_bytes + position - run_start
            row = ROW.pack(queue_offset, new_position, size_bytes, tags_code, marked_ms, key)
            self._add_row(writer, row, marked_ms)
        writer.data.append(data[run_start:run_end])

    def _forgets(self, queue_offset: int, marked_ms: int) -> bool:
        if not marked_ms or self._assignment.now_ms - marked_ms < self._options.tombstone_retention_ms:
            return False
        self._forgotten_end = max(self._forgotten_end, queue_offset + 1)
        return True

    def _copy_new(self, rows: memoryview, keep: bytearray, writer: GenerationWriter) -> Generator[int]:
        first = 0
        while first < len(keep):
            chunk = rows[first * ROW_BYTES : (first + self._chunk_records) * ROW_BYTES]
            for number, (queue_offset, log_offset, size_bytes, tags_code, marked_ms, key) in enumerate(
                ROW.iter_unpack(chunk), start=first
            ):
                if not keep[number]:
                    continue
                position = writer.data.size_bytes
                if size_bytes:
                    writer.data.append(self._source.read(IndexEntry(queue_offset, log_offset, size_bytes, tags_code)))
                self._add_row(
                    writer, ROW.pack(queue_offset, position, size_bytes, tags_code, marked_ms, key), marked_ms
                )
            first += len(chunk) // ROW_BYTES
            yield len(chunk) // ROW_BYTES

    def _add_row(self, writer: GenerationWriter, row: bytes, marked_ms: int) -> None:
        writer.index.append(row)
        if marked_ms and (not self._oldest_mark_ms or marked_ms < self._oldest_mark_ms):
            self._oldest_mark_ms = marked_ms

    def _seal(self, writer: GenerationWriter) -> GenerationHeader:
        assignment, before = self._assignment, self._assignment.before
        writer.sync()
        header = GenerationHeader(
            number=assignment.number,
            topic=assignment.topic,
            queue_id=assignment.queue_id,
            min_offset=before.header.min_offset if before is not None else self._start,
            end_offset=self._end,
            forgotten_end=self._forgotten_end,
            rows=writer.index.size_bytes // ROW_BYTES,
            data_bytes=writer.data.size_bytes,
            index_crc=writer.index.crc,
            oldest_mark_ms=self._oldest_mark_ms,
            written_at_ms=assignment.now_ms,
            read_records=self._end - self._start,
        )
        writer.finish(header)
        return header
