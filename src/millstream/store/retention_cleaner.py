"""Deletes old messages in an order that is safe for readers: queues first, then the log, then files."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from typing import NamedTuple

from millstream.model.clock import Clock
from millstream.protocol.record import MIN_RECORD_BYTES, store_timestamp_ms
from millstream.store.commit_log import CommitLog, LogSegment
from millstream.store.compactor import Compactor
from millstream.store.deleted_topics import DeletedTopics
from millstream.store.durability.checkpoint_writer import CheckpointWriter
from millstream.store.durability.health import Health
from millstream.store.manifest import StoreManifest
from millstream.store.queue_reader import QueueReader
from millstream.store.queue_table import AnyQueue, QueueTable
from millstream.store.retention import DiskState, RetentionPolicy, SegmentAge, expired_segments

__all__ = ["RetentionCleaner", "RetentionResult"]

_log = logging.getLogger(__name__)


class RetentionResult(NamedTuple):
    """What one round of retention did."""

    removed_segments: int
    log_start: int
    is_disk_full: bool


class RetentionCleaner:
    """Retention of one store; `retain` is called from one thread at a time. `disk` tells how full it is."""

    def __init__(
        self,
        reader: QueueReader,
        log: CommitLog,
        queues: QueueTable,
        deleted: DeletedTopics,
        checkpoints: CheckpointWriter,
        compactor: Compactor,
        health: Health,
        manifest: StoreManifest,
        *,
        mutex: threading.Lock,
        clock: Clock,
        policy: RetentionPolicy,
        disk: Callable[[], DiskState],
    ) -> None:
        self.is_disk_full = False
        self._trimmed: dict[AnyQueue, int] = {}
        self.pins: list[Callable[[], int]] = []
        self._reader = reader
        self._log = log
        self._queues = queues
        self._deleted = deleted
        self._checkpoints = checkpoints
        self._compactor = compactor
        self._health = health
        self._manifest = manifest
        self._mutex = mutex
        self._clock = clock
        self.policy = policy
        self._disk = disk

    def retain(self, time_to_live_ms: Mapping[str, int]) -> RetentionResult:
        """Remove what the retention policy lets go, and of the named topics all that is older than their own time.

        Compacted queues keep what compaction leaves of them. Messages refused for a disk filled beyond its watermark
        are taken again once there is room. Raises STORE_FAILED.
        """
        self._health.check()
        self._remove_trimmed_files()
        for topic, keep_ms in time_to_live_ms.items():
            self._expire(topic, self._clock.now_ms() - keep_ms)
        removable = self._removable_segments()
        ages = [SegmentAge(segment.end - segment.start, self._last_timestamp_of(segment)) for segment in removable]
        count = expired_segments(ages, self._clock.now_ms(), self._disk(), self.policy)
        removed = 0
        try:
            for segment in removable[:count]:
                if not self._compactor.leave(segment.end):
                    break
                self._remove(segment)
                removed += 1
            if removed:
                self._deleted.prune(self._log.start)
        except OSError as error:
            raise self._health.refusal("rid of old messages", error) from error
        self.is_disk_full = self._disk().is_beyond(self.policy.full_used_ratio, self.policy.full_free_bytes)
        return RetentionResult(removed, self._log.start, self.is_disk_full)

    def _removable_segments(self) -> list[LogSegment]:
        kept_from = min([self._checkpoints.log_offset, *(pin() for pin in self.pins)])
        return [segment for segment in self._log.segments if segment.end <= kept_from]

    def _last_timestamp_of(self, segment: LogSegment) -> int:
        """When the records of a full segment were stored at the latest: the next segment's first record tells."""
        following = self._log.slice(segment.end, MIN_RECORD_BYTES)
        stored_ms = store_timestamp_ms(following) if following is not None else 0
        return stored_ms or self._clock.now_ms()

    def _remove(self, segment: LogSegment) -> None:
        for queue in list(self._queues):
            with self._mutex:
                self._trim(queue, queue.first_offset_in_log(segment.end))
        self._manifest.note_log_start(segment.end)
        with self._mutex:
            dropped = self._log.drop_oldest()
        self._log.remove(dropped)
        _log.info("Removed the log from %d to %d, whose time is over.", dropped.start, dropped.end)

    def _expire(self, topic: str, before_ms: int) -> None:
        for queue in [queue for queue in self._queues if queue.topic == topic]:
            if self._reader.is_compacted(topic, queue.queue_id):
                continue
            first = self._reader.offset_by_time(topic, queue.queue_id, before_ms)
            with self._mutex:
                self._trim(queue, first)

    def _trim(self, queue: AnyQueue, min_offset: int) -> None:
        if min_offset > queue.min_offset:
            queue.trim(min_offset)
            self._checkpoints.note_changes((queue,), 0)
            self._trimmed[queue] = self._checkpoints.begun

    def _remove_trimmed_files(self) -> None:
        """Remove the files of queues of which a checkpoint says that they begin later: a start looks for what it names.

        What a crash leaves of them goes when the queue is trimmed the next time.
        """
        for queue, begun in list(self._trimmed.items()):
            with self._mutex:
                # A queue of a deleted topic has given its directory to the one of a topic of that name.
                is_deleted = self._queues.find(queue.topic, queue.queue_id) is not queue
                if is_deleted or self._checkpoints.saved > begun:
                    del self._trimmed[queue]
                    if not is_deleted:
                        queue.remove_trimmed_files()
