"""Records on their way into chunks, made without a log."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from millstream.tiered.queue_records import PartRecords, QueueRecords

__all__ = ["ChunkRecord", "part_of", "queue_of"]


class ChunkRecord(NamedTuple):
    """A record and what the log's walk knows of it."""

    data: bytes
    queue_offset: int
    log_offset: int
    stored_ms: int
    keys: Sequence[int] = ()


def queue_of(topic: str, queue_id: int, records: Iterable[ChunkRecord]) -> QueueRecords:
    """The records as a stretch of the log would have them gathered."""
    queue = QueueRecords(topic, queue_id)
    for data, queue_offset, log_offset, stored_ms, keys in records:
        place = queue.add(data, 0, len(data), queue_offset, log_offset, stored_ms)
        queue.keys += [key << 32 | place for key in keys]
    queue.finish()
    return queue


def part_of(topic: str, queue_id: int, records: Iterable[ChunkRecord]) -> PartRecords:
    """Records that go into one object."""
    [part] = queue_of(topic, queue_id, records).parts
    return part
