"""Recovery at startup: makes log and consume queues consistent, however the last run ended.

1. The checkpoint says what the consume queues had; one that is missing or does not fit the log is made again from it.
2. The log is scanned from the checkpoint on, the entries are added, and the torn end is cut off at the first bytes that
   are no whole record.

The time is bounded by what was written since the checkpoint, unless a consume queue has to be made again.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass

from millstream.model.errors import StoreError
from millstream.protocol.record import MIN_RECORD_BYTES, outline_record, verify_record
from millstream.store.commit_log import CommitLog
from millstream.store.consume_queue import LOST_TAGS_CODE, IndexEntry, QueueExtent, tags_code
from millstream.store.damage.log_scan import LogScan, entry_of, in_each_queue, is_named_by
from millstream.store.deleted_topics import DeletedTopics
from millstream.store.durability.checkpoint import StoreCheckpoint
from millstream.store.light_queue import LightEntry
from millstream.store.queue_table import AnyQueue, QueueTable, QueueTail

__all__ = ["Recovery", "RecoveryReport"]

_CHECKED_ENTRIES = 8
"""Last entries of each consume queue that are compared with the log at a start."""

MAX_ENTRIES_IN_MEMORY = 500_000
"""Entries that a scan gathers before it writes them to the consume queues' files."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RecoveryReport:
    """What a start found: records behind the checkpoint, consume queues made again, damaged places met in the log."""

    scanned_records: int
    rebuilt_queues: int
    damaged_places: int
    store_timestamp_ms: int
    damage: tuple[tuple[int, int], ...] = ()
    """The first of these places, from which log offset to which. What queues have of them are entries of lost records,
    or nothing."""


class Recovery:
    """One start of a store. `checkpoint` is None where there was none that can be read.

    `flushed` is a log offset up to which the log is known to have been on the disk, 0 where nothing is known.
    """

    def __init__(
        self,
        log: CommitLog,
        queues: QueueTable,
        deleted: DeletedTopics,
        checkpoint: StoreCheckpoint | None,
        flushed: int,
    ) -> None:
        self._log = log
        self._queues = queues
        self._deleted = deleted
        self._checkpoint = checkpoint
        self._flushed = min(flushed, log.end_of_segments)
        self._store_timestamp_ms = checkpoint.store_timestamp_ms if checkpoint is not None else 0
        self._entries_in_memory = 0
        self._damaged_places = 0
        self._damage: list[tuple[int, int]] = []

    def run(self, entries_per_file: int) -> RecoveryReport:
        """Recover; afterwards the log is cut behind its last whole record, on the disk, and all of it is visible."""
        checkpoint = self._checkpoint
        rebuilt = 0
        start = self._log.start
        if checkpoint is not None:
            rebuilt = self._restore_queues(checkpoint, entries_per_file)
            start = max(checkpoint.log_offset, start)
        else:
            self._queues.remove_unlisted_files()
        records, end = self._read_log(start)
        self._log.sync_from(start)
        self._log.cut(end)
        self._deleted.limit(end)
        for queue in self._queues:
            queue.visible_offset = queue.next_offset
            if self._log.start:
                # A crash may have stopped retention between the log and its queues.
                queue.trim(queue.first_offset_in_log(self._log.start))
        # Behind the log's end is what a crash left of the last write, or what was never written.
        damage = tuple((first, min(last, end)) for first, last in sorted({*self._damage}) if first < end)
        report = RecoveryReport(records, rebuilt, self._damaged_places, self._store_timestamp_ms, damage)
        _log.info("The store is open at log offset %d: %s", end, report)
        return report

    def _read_log(self, start: int) -> tuple[int, int]:
        """Take in the log from `start` on: the number of its records, and where it ends.

        What was on the disk may have been damaged since, and damage must not cost what follows it. Behind that the log
        ends at the first bytes that are no record: they are what a crash made of the last write.
        """
        records = 0
        if self._checkpoint is None and not self._flushed:
            scan = LogScan(self._log, start, durable_end=self._log.end_of_segments)
            return self._apply(scan, None), scan.end_of_records
        if self._flushed > start:
            records = self._apply(LogScan(self._log, start, durable_end=self._flushed), None)
            start = self._flushed
        scan = LogScan(self._log, start)
        records += self._apply(scan, None)
        return records, scan.position

    def _restore_queues(self, checkpoint: StoreCheckpoint, entries_per_file: int) -> int:
        """Take over the consume queues that the checkpoint names; the number of those that had to be made again."""
        unfit: dict[AnyQueue, QueueExtent] = {}
        for queue in self._listed_queues(checkpoint):
            if checkpoint.entries_per_file != entries_per_file or not self._fits(queue, checkpoint.log_offset):
                unfit[queue] = queue.extent
        self._queues.remove_unlisted_files()
        if unfit:
            self._rebuild(unfit, checkpoint.log_offset)
        return len(unfit)

    def _listed_queues(self, checkpoint: StoreCheckpoint) -> Iterator[AnyQueue]:
        """The queues that the checkpoint names, but for those of deleted topics."""
        for topic in {**checkpoint.queues, **checkpoint.batch_queues}:
            if self._deleted.log_offset(topic) >= checkpoint.log_offset:
                continue
            for queue_id, offsets in checkpoint.queues.get(topic, {}).items():
                queue = self._queues.obtain(topic, queue_id)
                queue.start_at(QueueExtent(*offsets))
                yield queue
            for queue_id, extent in checkpoint.batch_queues.get(topic, {}).items():
                queue = self._queues.obtain(topic, queue_id, holds_batches=True)
                queue.start_at(QueueExtent(*extent))
                yield queue

    def _fits(self, queue: AnyQueue, log_end: int) -> bool:
        """Whether the queue's last entries are there, follow one another to its end and lead to its records."""
        try:
            entries = queue.last_entries(_CHECKED_ENTRIES)
        except StoreError:
            return False
        following = entries[0].queue_offset if entries else queue.min_offset
        for entry in entries:
            if entry.queue_offset != following or not self._leads_to_record(queue.topic, entry, log_end):
                return False
            following += entry.message_count
        return following == queue.next_offset

    def _leads_to_record(self, topic: str, entry: IndexEntry, log_end: int) -> bool:
        if not 0 <= entry.log_offset <= entry.log_offset + entry.size_bytes <= log_end:
            return False
        if not entry.size_bytes:
            return entry.tags_code == LOST_TAGS_CODE
        if entry.size_bytes < MIN_RECORD_BYTES:
            return False
        record = self._log.slice(entry.log_offset, entry.size_bytes)
        if record is None or not is_named_by(record, entry):
            return False
        # A damaged record is the readers' matter; making the queue again would not mend it.
        if not verify_record(record):
            return True
        outline = outline_record(record)
        is_listed = not isinstance(entry, LightEntry) or (topic, entry.queue_offset) in outline.light_places
        return is_listed and tags_code(outline.tag) == entry.tags_code

    def _rebuild(self, unfit: dict[AnyQueue, QueueExtent], log_end: int) -> None:
        _log.warning("Consume queues that are missing or do not fit the log are made again: %d", len(unfit))
        for queue in unfit:
            self._queues.remove_queue_files(queue.topic, queue.queue_id)
            queue.start_at(QueueExtent(0, 0))
        self._apply(LogScan(self._log, self._log.start, durable_end=log_end), {*unfit})
        for queue, extent in unfit.items():
            queue.skip_to(extent.next_offset, log_end)
            queue.visible_offset = queue.next_offset
            queue.trim(extent.min_offset)

    def _apply(self, scan: LogScan, wanted: set[AnyQueue] | None) -> int:
        """Add the scan's records to their queues, or to the `wanted` ones only; the number of records seen."""
        count, last = 0, -1
        for outline, size_bytes in in_each_queue(scan):
            topic, queue_id, _, log_offset, stored_ms, _, batch_count, _ = outline
            if log_offset > last:
                count, last = count + 1, log_offset
            if stored_ms > self._store_timestamp_ms:
                self._store_timestamp_ms = stored_ms
            if log_offset < self._deleted.log_offset(topic):
                continue
            queue = self._queues.obtain(topic, queue_id, holds_batches=batch_count is not None)
            if wanted is None or queue in wanted:
                queue.add(entry_of(outline, size_bytes), stored_ms)
                self._bound_memory()
        self._damaged_places += scan.damaged
        self._damage += scan.damage
        return count

    def _bound_memory(self) -> None:
        self._entries_in_memory += 1
        if self._entries_in_memory >= MAX_ENTRIES_IN_MEMORY:
            tails = [QueueTail.of(queue) for queue in self._queues if queue.entry_files.tail]
            self._queues.write_tails(tails)
            for tail in tails:
                tail.forget()
            self._entries_in_memory = 0
