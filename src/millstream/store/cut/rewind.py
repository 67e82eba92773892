"""Rewinds checkpoints to an earlier log offset, for a truncation of the log.

A queue's next offset there is that of its first record behind it. So only what is cut off is read, unless what the
checkpoint says is no help: then queues are made again from the log's start.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Self

import msgspec

from millstream.store.commit_log import CommitLog
from millstream.store.damage.log_scan import LogScan, in_each_queue
from millstream.store.deleted_topics import DeletedTopics
from millstream.store.durability.checkpoint import StoreCheckpoint

__all__ = ["LogTail", "restart_checkpoint", "rewind_checkpoint"]

Place = tuple[str, int]
"""Topic and queue number."""


@dataclass(slots=True)
class LogTail:
    """The records from a log offset on, to the log's end."""

    first: dict[Place, int] = field(default_factory=dict)
    """The queue offset of each queue's first record."""

    counts: dict[Place, int] = field(default_factory=dict)
    """The records of each queue that the checkpoint knows of."""

    is_damaged: bool = False
    """Whether a record may be missing among them."""

    @classmethod
    def read(cls, log: CommitLog, start: int, end: int, checkpoint_offset: int) -> Self:
        """The records from `start`, at which one begins, to `end`; the checkpoint knows of those below its offset."""
        tail = cls()
        scan = LogScan(log, start, durable_end=end)
        for outline, _ in in_each_queue(scan):
            place = outline.topic, outline.queue_id
            tail.first.setdefault(place, outline.queue_offset)
            if outline.log_offset < checkpoint_offset:
                tail.counts[place] = tail.counts.get(place, 0) + 1
            # Behind the last record are zeros, which are no damage.
            tail.is_damaged = scan.damaged > 0
        tail.is_damaged |= scan.end_of_records < checkpoint_offset
        return tail


def rewind_checkpoint(checkpoint: StoreCheckpoint, tail: LogTail, log_offset: int) -> StoreCheckpoint:
    """The checkpoint as it was at a log offset before its own; `tail` is all that stands between the two.

    It counts where the tail is not damaged and holds no deletion of a topic.
    """
    queues: dict[str, dict[int, tuple[int, int]]] = {}
    batch_queues: dict[str, dict[int, tuple[int, int, int, int]]] = {}
    for topic, extents in checkpoint.queues.items():
        for queue_id, (min_offset, next_offset) in extents.items():
            end = tail.first.get((topic, queue_id), next_offset)
            if end:
                queues.setdefault(topic, {})[queue_id] = (min(min_offset, end), end)
    for topic, batch_extents in checkpoint.batch_queues.items():
        for queue_id, (min_offset, next_offset, min_number, next_number) in batch_extents.items():
            end = tail.first.get((topic, queue_id), next_offset)
            number = next_number - tail.counts.get((topic, queue_id), 0)
            if end:
                extent = (min_offset, end, min_number, number) if min_offset < end else (end, end, number, number)
                batch_queues.setdefault(topic, {})[queue_id] = extent
    return msgspec.structs.replace(checkpoint, log_offset=log_offset, queues=queues, batch_queues=batch_queues)


def restart_checkpoint(
    log: CommitLog, present: StoreCheckpoint | None, deleted: DeletedTopics, log_offset: int
) -> StoreCheckpoint:
    """A checkpoint at the log's start, from which the next start makes all queues again up to `log_offset`.

    A queue begins at its first record that is left. One of which nothing is left goes on at the offset of the first
    record that is cut off, or where it ended: no offset is ever given twice. `deleted` says what is deleted before
    `log_offset`. Reads the whole log.
    """
    first: dict[Place, int] = {}
    batches: set[Place] = set()
    for outline, _ in in_each_queue(LogScan(log, log.start, durable_end=log.end_of_segments)):
        if outline.log_offset >= deleted.log_offset(outline.topic):
            place = outline.topic, outline.queue_id
            first.setdefault(place, outline.queue_offset)
            if outline.batch_count is not None:
                batches.add(place)
    for topic, queues in {} if present is None else present.queues.items():
        for queue_id, (_, following) in queues.items():
            first.setdefault((topic, queue_id), following)
    for topic, extents in {} if present is None else present.batch_queues.items():
        for queue_id, extent in extents.items():
            first.setdefault((topic, queue_id), extent[1])
            batches.add((topic, queue_id))
    singles: dict[str, dict[int, tuple[int, int]]] = {}
    several: dict[str, dict[int, tuple[int, int, int, int]]] = {}
    for (topic, queue_id), offset in first.items():
        if not offset:
            continue
        if (topic, queue_id) in batches:
            several.setdefault(topic, {})[queue_id] = (offset, offset, 0, 0)
        else:
            singles.setdefault(topic, {})[queue_id] = (offset, offset)
    empty = StoreCheckpoint(
        log_offset=0, store_timestamp_ms=0, entries_per_file=0, queues={}, batch_queues={}, knows_manifest=True
    )
    return msgspec.structs.replace(present or empty, log_offset=log.start, queues=singles, batch_queues=several)
