"""Distributes the records of a log range over objects.

A queue with much to store has chunks of its own, so that a reader gets long ranges of it; queues with little share
packs, so that ten thousand quiet queues do not cost ten thousand requests. An object ends with the last of its parts,
so queues share a pack only with those that live about as long.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from millstream.tiered.chunk import ChunkRecord, PartRecords

__all__ = ["CHUNK_BYTES", "OWN_CHUNK_BYTES", "Place", "share_out"]

CHUNK_BYTES: Final = 32 * 1024 * 1024
"""Bytes of records after which an object ends; it has one record at least."""

OWN_CHUNK_BYTES: Final = 4 * 1024 * 1024
"""Bytes of records of one queue in a stretch from which on it has objects of its own."""

Place = tuple[str, int]


def share_out(gathered: dict[Place, list[ChunkRecord]], class_of: Callable[[str], int]) -> Iterator[list[PartRecords]]:
    """The parts of each object. `class_of` tells of a topic with which others it may share one: those of its class."""
    shared: dict[int, list[PartRecords]] = {}
    for (topic, queue_id), records in sorted(gathered.items()):
        if sum(len(record.data) for record in records) >= OWN_CHUNK_BYTES:
            for some in _cut(records):
                yield [PartRecords(topic, queue_id, some)]
        else:
            shared.setdefault(class_of(topic), []).append(PartRecords(topic, queue_id, records))
    for _, parts in sorted(shared.items()):
        yield from _pack(parts)


def _cut(records: list[ChunkRecord]) -> Iterator[list[ChunkRecord]]:
    some: list[ChunkRecord] = []
    size_bytes = 0
    for record in records:
        if some and size_bytes + len(record.data) > CHUNK_BYTES:
            yield some
            some, size_bytes = [], 0
        some.append(record)
        size_bytes += len(record.data)
    if some:
        yield some


def _pack(parts: list[PartRecords]) -> Iterator[list[PartRecords]]:
    some: list[PartRecords] = []
    size_bytes = 0
    for part in parts:
        part_bytes = sum(len(record.data) for record in part.records)
        if some and size_bytes + part_bytes > CHUNK_BYTES:
            yield some
            some, size_bytes = [], 0
        some.append(part)
        size_bytes += part_bytes
    if some:
        yield some
