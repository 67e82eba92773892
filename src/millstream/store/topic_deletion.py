"""Deletes topics from a store: removes their queues, and ignores their records in the log."""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection, Sequence

from millstream.store.commit_log import CommitLog
from millstream.store.compaction.compacted_queues import CompactedQueues
from millstream.store.compactor import forget_compacted
from millstream.store.damage.log_scan import LogScan, entry_of, in_each_queue
from millstream.store.deleted_topics import DeletedTopics
from millstream.store.durability.checkpoint_writer import CheckpointWriter
from millstream.store.durability.health import Health
from millstream.store.durability.visibility import Visibility
from millstream.store.manifest import StoreManifest
from millstream.store.queue_table import QueueTable

__all__ = ["TopicDeletion"]

_log = logging.getLogger(__name__)


class TopicDeletion:
    """The deletions of one store; fit for any thread where nobody uses the topics meanwhile."""

    def __init__(
        self,
        log: CommitLog,
        queues: QueueTable,
        compacted: CompactedQueues,
        deleted: DeletedTopics,
        checkpoints: CheckpointWriter,
        visibility: Visibility,
        health: Health,
        manifest: StoreManifest,
        *,
        mutex: threading.Lock,
    ) -> None:
        self._log = log
        self._queues = queues
        self._compacted = compacted
        self._deleted = deleted
        self._checkpoints = checkpoints
        self._visibility = visibility
        self._health = health
        self._manifest = manifest
        self._mutex = mutex

    def delete(self, topics: Sequence[str], log_offset: int | None, visible_log_offset: int) -> None:
        """Drop the topics' queues; see `MessageStore.delete_topics`. Waits for a checkpoint that is under way."""
        with self._checkpoints.writing:
            with self._mutex:
                self._health.check()
                end = self._log.end
                place = end if log_offset is None else log_offset
                if place > end:
                    raise ValueError(f"the log ends at {end}: nothing can be deleted as of {place}")
                # A deletion that stands behind the place has done more than this one.
                gone = {topic for topic in topics if self._deleted.log_offset(topic) <= place}
                self._note(topics, gone, place)
                self._checkpoints.forget(gone)
                for topic in gone:
                    self._compacted.remove_topic(topic)
                self._queues.forget_topics(gone)
                if place < end:
                    self._take_in(gone, place, visible_log_offset)
            # A queue of such a name that is made meanwhile has no files before the next checkpoint, which waits.
            try:
                self._queues.remove_files(gone)
            except OSError as error:
                _log.warning("Files of %d deleted topics stay until the next start: %s", len(gone), error)
        if place < self._checkpoints.log_offset:
            # It names the queues as they were; a deletion at its place or behind it a start knows by itself.
            self._checkpoints.write()

    def _note(self, topics: Sequence[str], gone: Collection[str], place: int) -> None:
        try:
            self._deleted.add(topics, place)
            forget_compacted(self._manifest, self._compacted, gone)
        except OSError as error:
            raise self._health.refusal("cleared of a topic", error) from error

    def _take_in(self, topics: Collection[str], log_offset: int, visible_log_offset: int) -> None:
        """Give the topics the queues that the log's records from there on make."""
        found = []
        for outline, size_bytes in in_each_queue(LogScan(self._log, log_offset, durable_end=self._log.end)):
            if outline.topic in topics and outline.log_offset >= self._deleted.log_offset(outline.topic):
                holds_batches = outline.batch_count is not None
                queue = self._queues.obtain(outline.topic, outline.queue_id, holds_batches=holds_batches)
                queue.add(entry_of(outline, size_bytes), outline.store_timestamp_ms)
                queue.visible_offset = queue.next_offset
                found.append((queue, outline, size_bytes))
        self._visibility.hide_found(each for each in found if each[1].log_offset + each[2] > visible_log_offset)
        self._checkpoints.note_changes({queue for queue, _, _ in found}, 0)
