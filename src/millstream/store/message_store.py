"""The store of one broker: a commit log and its derived files, in one locked directory.

lock            held while a process has the directory open
format          the format of all that is here; a later one is refused before anything is touched
abort           there while the store is open; found at a start it says that the last run did not end cleanly
flushed         up to which log offset the log is on the disk
confirmed       up to which log offset replicas have the log, where there are any (cut/truncation.py)
cut-to          a cut of the log that is under way (cut/truncation.py)
checkpoint      up to which log offset the consume queues are on the disk as well (recovery.py)
manifest        what of this the directory holds, so that a start tells what is missing (manifest.py)
deleted-topics  whose records in the log do not count any more
commitlog/      the log's segments
consumequeue/   TOPIC/QUEUE/ files of entries
index/          runs of the key index
compaction/     TOPIC/QUEUE/ what is left of compacted queues
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Self

from millstream.model.clock import BackedClock, Clock, SystemClock
from millstream.model.errors import StartRefused, StoreError
from millstream.model.message import Address
from millstream.protocol.record import RecordOutline, outline_record
from millstream.protocol.record_encoder import RecordEncoder
from millstream.store.commit_log import CommitLog
from millstream.store.compaction.compacted_queues import CompactedQueues
from millstream.store.compaction.compaction import CompactionOptions
from millstream.store.compaction.pace import CompactionPace
from millstream.store.compactor import COMPACTION, Compactor, take_up
from millstream.store.consume_queue import IndexEntry
from millstream.store.cut.truncation import finish_cut
from millstream.store.damage.integrity import CONFIRMED, LOG, check_no_loss, is_part_there
from millstream.store.damage.log_mending import LogMending
from millstream.store.damage.log_scan import LogScan, in_each_queue, record_at
from millstream.store.deleted_topics import DELETED_TOPICS, DeletedTopics
from millstream.store.directory_lock import DirectoryLock
from millstream.store.durability.checkpoint import CheckpointFile
from millstream.store.durability.checkpoint_writer import CheckpointWriter
from millstream.store.durability.flush_mark import FlushMark
from millstream.store.durability.flusher import Flusher
from millstream.store.durability.health import Health
from millstream.store.durability.visibility import Visibility
from millstream.store.files import FileLayer, FileNotOpened, refusal_name
from millstream.store.index.key_index import DEFAULT_RESULTS, KeyIndex
from millstream.store.log.log_walk import LogWalk
from millstream.store.log_chunk import LogChunk, check_chunk, cut_runs, read_chunk
from millstream.store.log_search import STRETCH_BYTES, MarkedRecords, search_stretch
from millstream.store.manifest import ManifestDocument, StoreManifest
from millstream.store.queue_reader import QueueReader
from millstream.store.queue_table import AnyQueue, QueueTable
from millstream.store.recovery import Recovery, RecoveryReport
from millstream.store.retention import DiskState, RetentionPolicy
from millstream.store.retention_cleaner import RetentionCleaner, RetentionResult
from millstream.store.seed import StoreSeed, checkpoint_at_start
from millstream.store.store_format import check_format, write_format
from millstream.store.store_state import StoreState
from millstream.store.store_times import StoreTimes
from millstream.store.topic_deletion import TopicDeletion
from millstream.store.write_batch import AnyPlace, AnyRecord, AppendedRecord, PendingRecord, WriteBatch

__all__ = ["EVER", "AppendedRecord", "IndexEntry", "MessageStore", "PendingRecord", "RetentionResult", "StoreOptions"]

EVER = 1 << 62
"""Beyond every time and every place in the log: where nothing bounds a search or holds the log back."""

_STORE_HOST = Address("127.0.0.1", 10911)

MAX_INDEXED_BYTES = 32 * 1024 * 1024
"""Log that one checkpoint brings into the key index at most, where the index has to be made again."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class StoreOptions:
    """How a store keeps its files.

    `sync_flush`: nothing is visible before it is on the disk. `replicated`: nor before `confirm` has named it.
    """

    segment_bytes: int = 1024 * 1024 * 1024
    consume_queue_entries: int = 300_000
    sync_flush: bool = False
    replicated: bool = False
    flush_interval_ms: int = 500
    store_host: Address = _STORE_HOST
    retention: RetentionPolicy = field(default_factory=RetentionPolicy)
    compaction: CompactionOptions = field(default_factory=CompactionOptions)


class MessageStore(QueueReader):
    """The log and its queues. `put` and the readers are called from one thread, `flush` from any.

    A write or sync that fails is final: everything but reading raises STORE_FAILED from then on.
    """

    def __init__(self, directory: Path, options: StoreOptions, clock: Clock, files: FileLayer) -> None:
        self._directory = directory
        self.options = options
        self._clock = clock
        self._files = files
        self._mutex = threading.Lock()  # what put and the readers share with other threads
        self._health = Health(directory)
        self._visibility = Visibility()
        self._confirmed = 0
        self.on_written: list[Callable[[], None]] = []
        """Called after each write, in the thread that wrote."""
        self.on_confirmed: list[Callable[[], None]] = []
        """Called when replicas have more of the log than before, in the thread that says so."""
        check_format(directory, files)
        self._manifest = StoreManifest(directory, files)
        try:
            if not files.exists(directory / "lock"):
                # Taking the lock would make the file, and a start that is refused makes nothing.
                self._check()
            self._lock = DirectoryLock(directory, files, names_holder=False)
            try:
                finish_cut(directory, files)
                found = self._check()
                self._lock.name_holder()
                self._recover(found)
            except BaseException:
                self._lock.release()
                raise
        except OSError as error:
            name = refusal_name(error, "DATA_DIRECTORY_NOT_WRITABLE")
            raise StartRefused(name, f"The data directory {directory} cannot be used: {error}.") from error

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

        Raises DATA_DIRECTORY_IN_USE, DATA_DIRECTORY_NOT_WRITABLE, STORE_FORMAT, and DATA_MISSING or LOG_INCOMPLETE
        where the directory lacks something that it had.
        """
        return cls(directory, options or StoreOptions(), clock or SystemClock(), files or FileLayer())

    def _check(self) -> StoreState:
        """Refuse a directory that lacks something, with nothing changed; what it says of itself."""
        found = StoreState.read(self._directory, self._files)
        check_no_loss(found.losses(self._files))
        on_saved = self._manifest.noting(DELETED_TOPICS)
        self._deleted = DeletedTopics(self._directory / DELETED_TOPICS, self._files, on_saved=on_saved)
        return found

    def _recover(self, found: StoreState) -> None:
        options, files, directory, checkpoint = self.options, self._files, self._directory, found.checkpoint
        checkpoint_file = CheckpointFile(directory / "checkpoint", files)
        abort = directory / "abort"
        self.was_clean_stop = not files.exists(abort)
        files.replace(abort, b"")
        write_format(directory, files)
        self._log = CommitLog(directory / "commitlog", options.segment_bytes, files)
        self._queues = QueueTable(directory / "consumequeue", options.consume_queue_entries, files)
        self._compacted = CompactedQueues(directory / "compaction", files, options.compaction)
        super().__init__(self._log, self._queues, self._compacted, self._mutex)
        self.mending = LogMending(self._log, files)
        self._mark = FlushMark(directory / "flushed", files)
        recovery = Recovery(self._log, self._queues, self._deleted, checkpoint, found.flushed)
        self.recovery: RecoveryReport = recovery.run(options.consume_queue_entries)
        self._mark.reset(self._log.end)
        take_up(self._compacted, self._queues, self._deleted, self._log.end, self._manifest)
        self._times = StoreTimes(self.recovery.store_timestamp_ms)
        self._warn_of_time_ahead()
        self._encoder = RecordEncoder(self._times.last_ms, options.store_host)
        self._confirmed = self._log.end
        self._confirm_mark = FlushMark(directory / CONFIRMED, files) if options.replicated else None
        if self._confirm_mark is not None:
            self._hide_unconfirmed(self._confirm_mark, found.confirmed)
        self._flusher = Flusher(self._log, self._mark, self._mutex, self._health)
        self._flusher.on_flushed = self._show
        self._checkpoints = CheckpointWriter(
            self._log,
            self._queues,
            checkpoint_file,
            self._flusher,
            self._health,
            self._clock,
            mutex=self._mutex,
            entries_per_file=options.consume_queue_entries,
            log_offset=checkpoint.log_offset if checkpoint is not None else 0,
            confirmed=lambda: self._confirmed if options.replicated else None,
        )
        self._checkpoints.note_changes((), self._times.last_ms)
        self._index = KeyIndex(directory / "index", self._log, files, counts=self.counts)
        self._checkpoints.following.append(self._extend_index)
        self._compactor = Compactor(
            self, self._queues, self._compacted, self._flusher, BackedClock(self._clock), self._manifest
        )
        self._retainer = RetentionCleaner(
            self,
            self._log,
            self._queues,
            self._deleted,
            self._checkpoints,
            self._compactor,
            self._health,
            self._manifest,
            mutex=self._mutex,
            clock=BackedClock(self._clock),
            policy=options.retention,
            disk=lambda: DiskState(*files.disk(directory)),
        )
        self._deletion = TopicDeletion(
            self._log,
            self._queues,
            self._compacted,
            self._deleted,
            self._checkpoints,
            self._visibility,
            self._health,
            self._manifest,
            mutex=self._mutex,
        )
        if checkpoint is not None and not checkpoint.knows_manifest:
            self._manifest.begin()
        noted = self._manifest.load() or ManifestDocument()
        is_noted = checkpoint is not None and checkpoint.knows_manifest
        if not is_noted or self.recovery.rebuilt_queues:
            self.write_checkpoint()
        self._note_parts(noted)

    def _note_parts(self, noted: ManifestDocument) -> None:
        """Take what is there for what must be there: all of it after the first start, later what a crash left so."""
        compacted = [queue for queue in self._compacted if queue.header is not None]
        parts = [f"{COMPACTION}/{queue.topic}/{queue.queue_id}" for queue in compacted]
        if is_part_there(self._directory / DELETED_TOPICS, self._files):
            parts.append(DELETED_TOPICS)
        if self._confirm_mark is not None:
            parts.append(CONFIRMED)
        self._manifest.note(*parts)
        if not self._log.segments:
            # Until a checkpoint comes the flush mark says that there is a log.
            self._checkpoints.following.append(self._note_log)
        elif noted.log_start != self._log.start or LOG not in noted.parts:
            self._manifest.note_log(LOG, self._log.start)
        if noted.lost and noted.lost[-1][1] > self._log.end:
            # From its end on the log is written again, and all of that must be there again.
            self._manifest.note_lost((start, min(end, self._log.end)) for start, end in noted.lost)

    def _note_log(self, _log_offset: int) -> None:
        """Note the log at the first checkpoint that follows its first segment."""
        if not self._log.segments:
            return
        try:
            self._manifest.note_log(LOG, self._log.start)
        except OSError as error:
            _log.warning("The manifest of %s stays behind for now: %s", self._directory, error)
            return
        self._checkpoints.following.remove(self._note_log)

    def _warn_of_time_ahead(self) -> None:
        ahead_ms = self._times.ahead_ms(self._clock.now_ms())
        if ahead_ms:
            newest = datetime.fromtimestamp(self._times.last_ms / 1000, UTC).isoformat(timespec="seconds")
            error = StoreError(
                "LOG_AHEAD_OF_CLOCK",
                f"The newest message of the log in {self._directory} was stored at {newest}, {ahead_ms / 1000:.1f} s "
                "ahead of this machine's clock; new ones are stored with later times until the clock has caught up.",
            )
            _log.warning("%s", error)

    @property
    def written_log_offset(self) -> int:
        """The log's end: a crash of this process alone loses nothing below it."""
        return self._log.end

    @property
    def log_start(self) -> int:
        """The log offset of the oldest byte that is kept."""
        return self._log.start

    @property
    def failure(self) -> str | None:
        """What made the store refuse all writes for good, in a sentence; None while it takes them."""
        return self._health.failure

    @property
    def flushed_log_offset(self) -> int:
        """Up to where the log is on the disk."""
        return self._flusher.flushed_log_offset

    @property
    def visible_log_offset(self) -> int:
        """Up to where readers see: what the options ask for among written, flushed and confirmed."""
        safe = self.flushed_log_offset if self.options.sync_flush else self._log.end
        return min(safe, self._confirmed) if self.options.replicated else safe

    def confirm(self, log_offset: int) -> None:
        """Note that the replicas have the log up to `log_offset`; it never goes backward."""
        with self._mutex:
            # Nobody can have more than there is: a replica that says so must not hide what comes later.
            log_offset = min(log_offset, self._log.end)
            if log_offset <= self._confirmed:
                return
            self._confirmed = log_offset
            if self._confirm_mark is not None:
                self._confirm_mark.note(log_offset)
            self._show()
        for listener in self.on_confirmed:
            listener()

    @property
    def confirmed_log_offset(self) -> int:
        """Up to where replicas are known to have the log; where there are none, its end at the start."""
        return self._confirmed

    def _hide_unconfirmed(self, mark: FlushMark, confirmed: int | None) -> None:
        """Show no more than was confirmed before: the replicas that a restarted master asks may know less.

        All that a directory holds that was never replicated was acknowledged by its one copy.
        """
        if confirmed is not None:
            self._confirmed = min(confirmed, self._log.end)
        mark.reset(self._confirmed)
        self._visibility.hide_found(self._records_from(max(self._confirmed, self._log.start)))

    def _records_from(self, log_offset: int) -> Iterator[tuple[AnyQueue, RecordOutline, int]]:
        for outline, size_bytes in in_each_queue(LogScan(self._log, log_offset, durable_end=self._log.end)):
            queue = self._queues.find(outline.topic, outline.queue_id)
            if queue is not None and self.counts(outline.topic, outline.log_offset):
                yield queue, outline, size_bytes

    def _show(self) -> None:
        self._visibility.show(self.visible_log_offset)

    def put(self, records: Sequence[AnyRecord], *, despite_watermark: bool = False) -> list[AnyPlace]:
        """Append the records in one write and say where they stand. All of them are stored, or none.

        `despite_watermark` is for what makes room or lets others read: the disk may be filled beyond its watermark.
        They get one store timestamp, which never goes backward. Raises DISK_FULL and FILE_NOT_OPENED, which are not
        final, STORE_FAILED, BODY_TOO_LARGE for a record that no segment can hold, ValueError for one that cannot be
        encoded.
        """
        if not records:
            return []
        with self._mutex:
            self._health.check()
            if self._retainer.is_disk_full and not despite_watermark:
                raise StoreError("DISK_FULL", f"The disk of {self._directory} is filled beyond its watermark.")
            timestamp_ms = self._times.next(self._clock.now_ms(), self._clock.monotonic_s())
            self._encoder.store_timestamp_ms = timestamp_ms
            batch = WriteBatch(self._log, self._queues, self._encoder)
            appended = batch.add(records)
            try:
                self._log.write(batch.runs)
            except FileNotOpened:
                raise
            except OSError as error:
                raise self._health.fail("written", error) from error
            self._times.note_write(timestamp_ms)
            self._commit(batch)
        for listener in self.on_written:
            listener()
        return appended

    def read_chunk(self, log_offset: int, max_bytes: int, end: int = EVER) -> LogChunk:
        """The log's bytes as they are, confirmed or not, up to `end` at most; see `log_chunk.read_chunk`."""
        return read_chunk(self._log, log_offset, max_bytes, min(end, self._log.end))

    def make_seed(self, *, at_end: bool = False) -> StoreSeed:
        """What a store needs beside this one's log, to follow it from its start on; `at_end`: to go on behind it."""
        with self._mutex:
            checkpoint = checkpoint_at_start(
                self.visible_log_offset if at_end else self._log.start,
                self._queues,
                store_timestamp_ms=self._times.last_ms,
                entries_per_file=self.options.consume_queue_entries,
                at_end=at_end,
            )
        return StoreSeed(checkpoint)

    @property
    def deletions(self) -> dict[str, int]:
        """The deleted topics of which the log has records that do not count, and below which log offset they do not."""
        return self._deleted.last_offsets()

    def append_chunk(self, log_offset: int, data: bytes) -> None:
        """Append what another store's `read_chunk` gave. Readers see it once it is confirmed, or at once unreplicated.

        Nothing is written where a record is damaged, RECORD_DAMAGED, or the chunk does not follow the log's end,
        ValueError. Raises DISK_FULL, FILE_NOT_OPENED, STORE_FAILED.
        """
        received = check_chunk(data, log_offset)
        if not received:
            return
        with self._mutex:
            self._health.check()
            runs = cut_runs(self._log, log_offset, data)
            try:
                self._log.write(runs)
            except FileNotOpened:
                raise
            except OSError as error:
                raise self._health.fail("written", error) from error
            reached = self._queues.add_records(received)
            last_ms = max(self._times.last_ms, received[-1][0].store_timestamp_ms)
            self._times.note_write(last_ms)
            self._visibility.hide(self._log.end, [(queue, queue.next_offset) for queue in reached])
            self._show()
            self._checkpoints.note_changes(reached, last_ms)
        for listener in self.on_written:
            listener()

    def _commit(self, batch: WriteBatch) -> None:
        shares = batch.shares.values()
        is_gated = self.options.sync_flush or self.options.replicated
        for share in shares:
            queue = share.queue
            if not share.first_offset:
                self._queues.list_queue(queue)
            share.commit()
            if not is_gated:
                queue.visible_offset = share.next_offset
        if is_gated:
            self._visibility.hide(batch.end, [(share.queue, share.next_offset) for share in shares])
        self._checkpoints.note_changes([share.queue for share in shares], self._times.last_ms)

    def flush(self) -> None:
        """Return when all that was put before is on the disk; now and then a checkpoint is written as well."""
        self.flush_log()
        if self.checkpoint_is_due:
            self.write_checkpoint()

    def flush_log(self) -> None:
        """Return when all records that were put before are on the disk."""
        self._flusher.flush()

    @property
    def checkpoint_is_due(self) -> bool:
        """Whether enough was stored, or enough time has passed, since the last checkpoint."""
        return self._checkpoints.is_due

    def write_checkpoint(self) -> None:
        """Flush, bring the derived files to the disk and note it, so that the next start begins here.

        Raises DISK_FULL, which is not final and costs a longer start at most, and STORE_FAILED.
        """
        self._checkpoints.write()

    @property
    def disk(self) -> DiskState:
        """How large the disk is that the store is on, and what is free of it."""
        return DiskState(*self._files.disk(self._directory))

    @property
    def retention(self) -> RetentionPolicy:
        """What is let go by `retain`; another one counts from the next call."""
        return self._retainer.policy

    @retention.setter
    def retention(self, policy: RetentionPolicy) -> None:
        self._retainer.policy = policy

    @property
    def is_disk_full(self) -> bool:
        """Whether messages are refused because the disk is filled beyond its watermark."""
        return self._retainer.is_disk_full

    @property
    def pins(self) -> list[Callable[[], int]]:
        """Each gives the first log offset that something still needs; retention leaves it and what follows."""
        return self._retainer.pins

    def find_by_key(
        self, topic: str, key: str, begin_ms: int = 0, end_ms: int = EVER, max_results: int = DEFAULT_RESULTS
    ) -> list[memoryview]:
        """Records of the topic with the key or unique key, stored in that time (both ends included), newest first.

        At most `max_results` and 64. Searches files, so not for the event loop's thread. Fit for any other.
        """
        found = self._index.find(topic, key, begin_ms, end_ms, max_results, visible_log_offset=self.visible_log_offset)
        records = (self.record_at(log_offset) for log_offset in found)
        return [record for record in records if record is not None and self._is_kept(record)]

    def _is_kept(self, record: memoryview) -> bool:
        """Whether the record's topic has not let it go before the log does."""
        outline = outline_record(record)
        return outline.queue_offset >= self.min_offset(outline.topic, outline.queue_id)

    def record_at(self, log_offset: int, *, verify: bool = True) -> memoryview | None:
        """The record at a log offset; None where no visible record begins, or (if `verify`) where it is damaged.

        Who has just read its message need not verify it again.
        """
        segment = self._log.segment_at(log_offset)
        if segment is None or not 0 <= log_offset < self.visible_log_offset:
            return None
        try:
            return record_at(self._log.view(segment), log_offset - segment.start, log_offset, verify=verify)
        except FileNotFoundError:
            return None

    def search(self, log_offset: int, mark: bytes, max_bytes: int = STRETCH_BYTES) -> MarkedRecords:
        """Visible records with the mark in a stretch of the log; see `log_search.search_stretch`."""
        return search_stretch(self._log, log_offset, self.visible_log_offset, mark, max_bytes)

    def walk_log(self, begin: int, end: int) -> LogWalk:
        """The visible log from `begin` to before `end`, with records of deleted topics.

        Fit for any thread.
        """
        return LogWalk(self._log, begin, min(end, self.visible_log_offset))

    def counts(self, topic: str, log_offset: int) -> bool:
        """Whether a record of the topic there is not of a topic of that name that was deleted since."""
        return log_offset >= self._deleted.log_offset(topic)

    def counted_from(self, topic: str) -> int:
        """The log offset from which on the topic's records count, see `counts`; 0 if it was never deleted."""
        return self._deleted.log_offset(topic)

    def _extend_index(self, log_offset: int) -> None:
        """The index can wait where the disk does not take it: what it lacks is searched in the log itself."""
        try:
            self._index.extend(log_offset, max_log_bytes=MAX_INDEXED_BYTES)
        except OSError as error:
            _log.warning("The key index of %s stays behind for now: %s", self._directory, error)

    def retain(self, time_to_live_ms: Mapping[str, int] | None = None) -> RetentionResult:
        """Let old messages go; see `RetentionCleaner.retain`."""
        retained = self._retainer.retain(time_to_live_ms or {})
        self._index.trim(retained.log_start)
        return retained

    def compact(self, topics: Collection[str], pace: CompactionPace | None = None) -> int:
        """Compact those queues of the topics for which it is worth its work; see `Compactor.compact`."""
        return self._compactor.compact(topics, pace)

    @property
    def topics(self) -> list[str]:
        """The names of all topics that have a queue."""
        return list({queue.topic: None for queue in self._queues})

    def delete_topic(self, topic: str) -> None:
        """Drop the topic's queues for good; see `delete_topics`."""
        self.delete_topics([topic])

    def delete_topics(self, topics: Sequence[str], *, log_offset: int | None = None) -> None:
        """Drop the topics' queues for good; their records stay in the log and do not count any more.

        A topic of such a name that is made later starts at offset 0. Waits for a checkpoint that is under way. Fit for
        any thread where nobody uses the topics meanwhile.

        `log_offset` is for a replica, which hears of a deletion in the log: where in the log the topics were deleted,
        at which a record begins. Records from there on count and stay. A crash on the way can leave it undone in part:
        it is to be asked for again until it has returned, and asking twice does no harm. ValueError behind the log's
        end.
        """
        self._deletion.delete(topics, log_offset, self.visible_log_offset)

    def close(self) -> None:
        """Flush, write a checkpoint and let others have the directory. Closing twice is no error.

        Raises STORE_FAILED if the disk does not take it; the directory is free then as well.
        """
        if self._health.is_closed:
            return
        try:
            if self._health.failure is None:
                self.write_checkpoint()
                self._files.remove(self._directory / "abort")
        finally:
            self._health.is_closed = True
            self._index.close()
            self._mark.close()
            if self._confirm_mark is not None:
                self._confirm_mark.close()
            self._log.close()
            self._queues.close()
            self._compacted.close()
            self._lock.release()
