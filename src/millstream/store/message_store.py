"""The store of one broker: a commit log and the consume queues derived from it, in one locked directory.

lock            held while a process has the directory open
abort           there while the store is open; found at a start it says that the last run did not end cleanly
checkpoint      up to which log offset everything is on the disk (recovery.py)
deleted-topics  whose records in the log do not count any more
commitlog/      the log's segments
consumequeue/   TOPIC/QUEUE/ files of entries
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from millstream.model.clock import Clock, SystemClock
from millstream.model.errors import StartRefused, StoreError
from millstream.model.message import Address
from millstream.protocol.record import MIN_RECORD_BYTES, store_timestamp_ms, verify_record
from millstream.store.checkpoint import Checkpoint, CheckpointFile
from millstream.store.commit_log import CommitLog
from millstream.store.consume_queue import ConsumeQueue, IndexEntry
from millstream.store.deleted_topics import DeletedTopics
from millstream.store.directory_lock import DirectoryLock
from millstream.store.files import FileLayer, is_disk_full
from millstream.store.log_scan import is_named_by
from millstream.store.queue_table import QueueTable
from millstream.store.recovery import Recovery, RecoveryReport
from millstream.store.write_batch import AppendedRecord, PendingRecord, WriteBatch

__all__ = ["AppendedRecord", "IndexEntry", "MessageStore", "PendingRecord", "StoreOptions"]

CHECKPOINT_LOG_BYTES = 16 * 1024 * 1024
"""Log written since the last checkpoint that makes a flush write the next one; bounds a start's scan."""

CHECKPOINT_INTERVAL_S = 10.0
"""Time since the last checkpoint after which a flush writes the next one."""
_STORE_HOST = Address("127.0.0.1", 10911)

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class StoreOptions:
    """How a store keeps its files. `sync_flush`: nothing is visible before it is on the disk."""

    segment_bytes: int = 1024 * 1024 * 1024
    consume_queue_entries: int = 300_000
    sync_flush: bool = False
    flush_interval_ms: int = 500
    store_host: Address = _STORE_HOST


class MessageStore:
    """The log and its queues. `put` and the readers are called from one thread, `flush` from any.

    A write or sync that fails is final: everything but reading raises STORE_FAILED from then on.
    """

    def __init__(self, directory: Path, options: StoreOptions, clock: Clock, files: FileLayer) -> None:
        self._directory = directory
        self.options = options
        self._clock = clock
        self._files = files
        self._mutex = threading.Lock()  # what put and the readers share with a flush in another thread
        self._flush_mutex = threading.Lock()  # one sync of the log at a time
        self._checkpoint_mutex = threading.Lock()  # the files of the consume queues; taken before the others
        self._failure: str | None = None
        self._is_closed = False
        self._flushed: int = 0
        self._unflushed: deque[tuple[int, list[tuple[ConsumeQueue, int]]]] = deque()
        self._lock = DirectoryLock(directory, files)
        try:
            self._recover()
        except OSError as error:
            self._lock.release()
            name = "DISK_FULL" if is_disk_full(error) else "DATA_DIRECTORY_NOT_WRITABLE"
            raise StartRefused(name, f"The data directory {directory} cannot be used: {error}.") from error
        except BaseException:
            self._lock.release()
            raise

    @classmethod
    def open(
        cls,
        directory: Path,
        options: StoreOptions | None = None,
        *,
        clock: Clock | None = None,
        files: FileLayer | None = None,
    ) -> Self:
        """The store in `directory`, recovered.

        Raises DATA_DIRECTORY_IN_USE, DATA_DIRECTORY_NOT_WRITABLE, STORE_FORMAT.
        """
        return cls(directory, options or StoreOptions(), clock or SystemClock(), files or FileLayer())

    def _recover(self) -> None:
        options, files = self.options, self._files
        abort = self._directory / "abort"
        self.was_clean_stop = not files.exists(abort)
        files.replace(abort, b"")
        self._deleted = DeletedTopics(self._directory / "deleted-topics", files)
        self._checkpoint_file = CheckpointFile(self._directory / "checkpoint", files)
        checkpoint = self._checkpoint_file.load()
        self._log = CommitLog(self._directory / "commitlog", options.segment_bytes, files)
        self._queues = QueueTable(self._directory / "consumequeue", options.consume_queue_entries, files)
        recovery = Recovery(self._log, self._queues, self._deleted, checkpoint)
        self.recovery: RecoveryReport = recovery.run(options.consume_queue_entries)
        self._last_timestamp_ms = self.recovery.store_timestamp_ms
        self._flushed = self._log.end
        self._checkpoint_offset = checkpoint.log_offset if checkpoint is not None else 0
        self._checkpoint_s = self._clock.monotonic_s()
        if checkpoint is None or self.recovery.rebuilt_queues:
            self.write_checkpoint()

    @property
    def written_log_offset(self) -> int:
        """The log's end: a crash of this process alone loses nothing below it."""
        return self._log.end

    @property
    def flushed_log_offset(self) -> int:
        """Up to where the log is on the disk."""
        return self._flushed

    @property
    def visible_log_offset(self) -> int:
        """Up to where readers see: what is flushed under `sync_flush`, otherwise what is written."""
        return self._flushed if self.options.sync_flush else self._log.end

    def put(self, records: Sequence[PendingRecord]) -> list[AppendedRecord]:
        """Append the records in one write and say where they stand. All of them are stored, or none.

        They get one store timestamp, which never goes backward. Raises DISK_FULL, which is not final, STORE_FAILED,
        BODY_TOO_LARGE for a record that no segment can hold, ValueError for one that cannot be encoded.
        """
        if not records:
            return []
        with self._mutex:
            self._check_open()
            timestamp_ms = max(self._clock.now_ms(), self._last_timestamp_ms)
            batch = WriteBatch(self._log, self.options.store_host, timestamp_ms)
            queues: dict[tuple[str, int], ConsumeQueue] = {}
            for message, queue_id in records:
                key = (message.topic, queue_id)
                queue = queues.get(key)
                if queue is None:
                    queue = queues[key] = self._queues.find(*key) or self._queues.unlisted(*key)
                batch.add(message, queue)
            try:
                self._log.write(batch.runs)
            except OSError as error:
                raise self._fail("written", error) from error
            self._last_timestamp_ms = timestamp_ms
            self._commit(batch)
            return batch.appended

    def _commit(self, batch: WriteBatch) -> None:
        ends = []
        for queue, entries in batch.entries.items():
            if not queue.next_offset:
                self._queues.list_queue(queue)
            queue.tail += b"".join(entries)
            if self.options.sync_flush:
                ends.append((queue, queue.next_offset))
            else:
                queue.visible_offset = queue.next_offset
        if ends:
            self._unflushed.append((batch.end, ends))

    def _fail(self, what: str, error: OSError) -> StoreError:
        self._failure = f"The log in {self._directory} could not be {what}: {error.strerror or error}."
        return StoreError("STORE_FAILED", self._failure)

    def _refusal(self, what: str, error: OSError) -> StoreError:
        """The error for files that the log can do without for a while: a full disk is not final."""
        if is_disk_full(error):
            return StoreError("DISK_FULL", f"The log in {self._directory} could not be {what}: {error.strerror}.")
        return self._fail(what, error)

    def _check_open(self) -> None:
        if self._failure is not None:
            raise StoreError("STORE_FAILED", self._failure)
        if self._is_closed:
            raise StoreError("STORE_FAILED", f"The store in {self._directory} is closed.")

    def flush(self) -> None:
        """Return when all that was put before is on the disk; now and then a checkpoint is written as well."""
        self.flush_log()
        if self.checkpoint_is_due:
            self.write_checkpoint()

    def flush_log(self) -> None:
        """Return when all records that were put before are on the disk."""
        with self._flush_mutex:
            with self._mutex:
                self._check_open()
                end = self._log.end
                segments = self._log.take_unsynced()
            try:
                self._log.sync(segments)
            except OSError as error:
                raise self._fail("flushed", error) from error
            with self._mutex:
                self._flushed = end
                while self._unflushed and self._unflushed[0][0] <= end:
                    for queue, next_offset in self._unflushed.popleft()[1]:
                        queue.visible_offset = next_offset

    @property
    def checkpoint_is_due(self) -> bool:
        """Whether enough was stored, or enough time has passed, since the last checkpoint."""
        behind = self._flushed - self._checkpoint_offset
        waited_s = self._clock.monotonic_s() - self._checkpoint_s
        return behind >= CHECKPOINT_LOG_BYTES or (behind > 0 and waited_s >= CHECKPOINT_INTERVAL_S)

    def write_checkpoint(self) -> None:
        """Flush, bring the consume queues to the disk and note it, so that the next start begins here.

        Raises DISK_FULL, which is not final and costs a longer start at most, and STORE_FAILED.
        """
        with self._checkpoint_mutex:
            with self._mutex:
                checkpoint = self._checkpoint_now()
                tails = [(queue, queue.tail_offset, bytes(queue.tail)) for queue in self._queues if queue.tail]
            self.flush_log()
            try:
                for queue, first, packed in tails:
                    queue.write(first, packed)
                self._checkpoint_file.save(checkpoint)
            except OSError as error:
                raise self._refusal("followed by its consume queues", error) from error
            with self._mutex:
                for queue, _, packed in tails:
                    queue.forget_written(len(packed))
            self._checkpoint_offset = checkpoint.log_offset
            self._checkpoint_s = self._clock.monotonic_s()

    def _checkpoint_now(self) -> Checkpoint:
        queues: dict[str, dict[int, tuple[int, int]]] = {}
        for queue in self._queues:
            queues.setdefault(queue.topic, {})[queue.queue_id] = (queue.min_offset, queue.next_offset)
        return Checkpoint(
            log_offset=self._log.end,
            store_timestamp_ms=self._last_timestamp_ms,
            entries_per_file=self.options.consume_queue_entries,
            queues=queues,
        )

    def min_offset(self, topic: str, queue_id: int) -> int:
        """The first offset of the queue; 0 for a queue that does not exist."""
        queue = self._queues.find(topic, queue_id)
        return queue.min_offset if queue is not None else 0

    def max_offset(self, topic: str, queue_id: int) -> int:
        """The offset behind the last visible record of the queue; 0 for a queue that does not exist."""
        queue = self._queues.find(topic, queue_id)
        return queue.visible_offset if queue is not None else 0

    def last_store_timestamp_ms(self, topic: str, queue_id: int) -> int:
        """When the last visible record of the queue was stored; 0 for a queue that holds nothing."""
        queue = self._queues.find(topic, queue_id)
        if queue is None or queue.visible_offset <= queue.min_offset:
            return 0
        return self._store_timestamp_at(queue, queue.visible_offset - 1)

    def entries(self, topic: str, queue_id: int, queue_offset: int, max_count: int) -> list[IndexEntry]:
        """At most `max_count` visible entries from `queue_offset`, or from the queue's first one if that is later."""
        queue = self._queues.find(topic, queue_id)
        if queue is None:
            return []
        with self._mutex:
            return queue.entries(queue_offset, max_count)

    def read(self, entry: IndexEntry) -> memoryview:
        """The whole record of an entry, not copied, its checksum verified. Raises RECORD_DAMAGED. Fit for any thread.

        The view stays readable as long as it is held, and keeps its segment mapped.
        """
        record = self._log.slice(entry.log_offset, entry.size_bytes)
        if record is None or not verify_record(record) or not is_named_by(record, entry):
            raise StoreError(
                "RECORD_DAMAGED",
                f"The record of {entry.size_bytes} bytes at log offset {entry.log_offset} is damaged or missing.",
            )
        return record

    def offset_by_time(self, topic: str, queue_id: int, timestamp_ms: int, *, upper: bool = False) -> int:
        """The first offset stored at `timestamp_ms` or later, or the queue's maximum if there is none.

        `upper` asks for the last offset stored at that time or earlier instead, or the minimum if there is none.
        """
        queue = self._queues.find(topic, queue_id)
        if queue is None:
            return 0
        low, high = queue.min_offset, queue.visible_offset
        while low < high:
            middle = (low + high) // 2
            stored_ms = self._store_timestamp_at(queue, middle)
            if stored_ms < timestamp_ms or (upper and stored_ms == timestamp_ms):
                low = middle + 1
            else:
                high = middle
        return max(low - 1, queue.min_offset) if upper else low

    def _store_timestamp_at(self, queue: ConsumeQueue, queue_offset: int) -> int:
        with self._mutex:
            entry = queue.entry(queue_offset)
        # The entry of a lost record leads to the next whole one, which keeps the times in order.
        record = self._log.slice(entry.log_offset, MIN_RECORD_BYTES)
        return store_timestamp_ms(record) if record is not None else 0

    def delete_topic(self, topic: str) -> None:
        """Drop the topic's queues for good; its records stay in the log and do not count any more.

        A topic of that name that is made later starts at offset 0. Waits for a flush that is under way.
        """
        with self._checkpoint_mutex, self._mutex:
            self._check_open()
            try:
                self._deleted.add(topic, self._log.end)
            except OSError as error:
                raise self._refusal("cleared of a topic", error) from error
            try:
                self._queues.remove_topic(topic)
            except OSError as error:
                _log.warning("Files of the deleted topic %s stay until the next start: %s", topic, error)

    def close(self) -> None:
        """Flush, write a checkpoint and let others have the directory. Closing twice is no error.

        Raises STORE_FAILED if the disk does not take it; the directory is free then as well.
        """
        if self._is_closed:
            return
        try:
            if self._failure is None:
                self.write_checkpoint()
                self._files.remove(self._directory / "abort")
        finally:
            self._is_closed = True
            self._log.close()
            self._queues.close()
            self._lock.release()
