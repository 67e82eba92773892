"""Distributes the records of a log range over objects.

A queue with much to store has chunks of its own, so that a reader gets long ranges of it; queues with little share
packs, so that ten thousand quiet queues do not cost ten thousand requests. An object ends with the last of its parts,
so queues share a pack only with those that live about as long.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from millstream.tiered.queue_records import CHUNK_BYTES, PartRecords, QueueRecords

__all__ = ["OWN_CHUNK_BYTES", "share_out"]

OWN_CHUNK_BYTES: Final = 4 * 1024 * 1024
"""Bytes of records of one queue in a stretch from which on it has objects of its own."""


def share_out(gathered: Sequence[QueueRecords], class_of: Callable[[str], int]) -> Iterator[list[PartRecords]]:
    """The parts of each object. `class_of` tells of a topic with which others it may share one: those of its class."""
    shared: dict[int, list[PartRecords]] = {}
    for queue in gathered:
        if queue.size_bytes >= OWN_CHUNK_BYTES:
            for part in queue.parts:
                yield [part]
        else:
            shared.setdefault(class_of(queue.topic), []).extend(queue.parts)
    for _, parts in sorted(shared.items()):
        yield from _pack(parts)


def _pack(parts: list[PartRecords]) -> Iterator[list[PartRecords]]:
    some: list[PartRecords] = []
    size_bytes = 0
    for part in parts:
        if some and size_bytes + part.size_bytes > CHUNK_BYTES:
            yield some
            some, size_bytes = [], 0
        some.append(part)
        size_bytes += part.size_bytes
    if some:
        yield some
