"""Schedules compactions: periodically, and before retention deletes records that they still need."""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection
from typing import Final

from millstream.model.clock import Clock
from millstream.model.errors import StoreError
from millstream.protocol.record import outline_record
from millstream.store.compaction.compacted_queue import CompactedQueue
from millstream.store.compaction.compacted_queues import CompactedQueues
from millstream.store.compaction.pace import CompactionPace
from millstream.store.deleted_topics import DeletedTopics
from millstream.store.durability.flusher import Flusher
from millstream.store.manifest import StoreManifest
from millstream.store.queue_reader import QueueReader
from millstream.store.queue_table import QueueTable

__all__ = ["COMPACTION", "Compactor", "forget_compacted", "take_up"]

COMPACTION: Final = "compaction"
"""The folder of a store with what is left of compacted queues, `TOPIC/QUEUE` below it."""

_log = logging.getLogger(__name__)


def take_up(
    compacted: CompactedQueues, queues: QueueTable, deleted: DeletedTopics, log_end: int, manifest: StoreManifest
) -> None:
    """Go on, at a start, with the compacted queues that are on the disk; those of deleted topics are removed.

    A queue of which the log has nothing left goes on behind its generation. Raises STORE_FORMAT.
    """
    for topic, queue_id in compacted.on_disk():
        found = queues.find(topic, queue_id)
        queue = compacted.obtain(topic, queue_id, found.min_offset if found is not None else 0)
        if _first_log_offset(queue, log_end) < deleted.log_offset(topic):
            forget_compacted(manifest, compacted, {topic})
            compacted.remove_topic(topic)
            continue
        found = queues.obtain(topic, queue_id)
        if found.next_offset < queue.end_offset:
            found.skip_to(queue.end_offset, log_end)
            found.visible_offset = found.next_offset


def forget_compacted(manifest: StoreManifest, compacted: CompactedQueues, topics: Collection[str]) -> None:
    """Let the manifest not ask for the topics' compacted queues any more, before they go."""
    manifest.forget(f"{COMPACTION}/{topic}/{queue_id}" for topic, queue_id in compacted.on_disk() if topic in topics)


def _first_log_offset(taken: CompactedQueue, log_end: int) -> int:
    """Where the first record that can be read of the generation stood in the log; its end if there is none."""
    generation = taken.generation()
    if generation is None:
        return log_end
    for entry in generation.entries(0, generation.header.rows):
        try:
            return outline_record(generation.read(entry)).log_offset
        except StoreError:
            continue
    return log_end


class Compactor:
    """Compacts the queues of one store; called from one thread at a time, beside puts and reads."""

    def __init__(
        self,
        reader: QueueReader,
        queues: QueueTable,
        compacted: CompactedQueues,
        flusher: Flusher,
        clock: Clock,
        manifest: StoreManifest,
    ) -> None:
        self._reader = reader
        self._queues = queues
        self._compacted = compacted
        self._flusher = flusher
        self._clock = clock
        self._manifest = manifest
        self._compacting = threading.Lock()

    def compact(self, topics: Collection[str], pace: CompactionPace | None = None) -> int:
        """Compact those queues of the topics for which it is worth its work, with the pauses of `pace`; how many were.

        What fails is said in the log and left for the next time. Raises STORE_FAILED where the log cannot be flushed.
        """
        due = []
        for queue in list(self._queues):
            if queue.topic in topics:
                compacted = self._compacted.obtain(queue.topic, queue.queue_id, queue.min_offset)
                end = queue.visible_offset
                if compacted.is_due(end, self._clock.now_ms()):
                    due.append((compacted, end))
        if due:
            # No generation covers what a power failure could take back.
            self._flusher.flush()
        return sum(self._compact(compacted, end, pace) for compacted, end in due)

    def leave(self, log_offset: int) -> bool:
        """Compact what compacted queues have before the log offset; whether the log may forget it."""
        for taken in list(self._compacted):
            queue = self._queues.find(taken.topic, taken.queue_id)
            if queue is None:
                continue
            end = self._reader.log_queue(queue).first_offset_in_log(log_offset)
            if end > taken.end_offset and not (self._compact(taken, end) and taken.end_offset >= end):
                return False
        return True

    def _compact(self, taken: CompactedQueue, end_offset: int, pace: CompactionPace | None = None) -> bool:
        queue = self._queues.find(taken.topic, taken.queue_id)
        if queue is None:
            return False
        try:
            with self._compacting:
                header = taken.compact(self._reader.log_queue(queue), end_offset, self._clock.now_ms(), pace)
                if header is not None:
                    # Before the log may forget what it holds.
                    self._manifest.note(f"{COMPACTION}/{taken.topic}/{taken.queue_id}")
        except (OSError, StoreError) as error:
            _log.error("Queue %d of %s stays uncompacted for now: %s", taken.queue_id, taken.topic, error)
            return False
        return header is not None
