"""Writing the records of several objects into new ones, each queue's together. Blocks; for a thread.

Memory is bounded by a part of the queues at a time: their blocks are fetched from each object in turn, verified, and
go the way of records that come from the log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from millstream.model.errors import MillstreamError, StoreError
from millstream.tiered.chunk import BlockInfo, ChunkPart, damage_of, decode_block
from millstream.tiered.cold_map import ColdObject, ColdStretch
from millstream.tiered.footers import read_footer
from millstream.tiered.objects import ObjectNotFound, ObjectStore
from millstream.tiered.queue_records import GatheredRecords, places_of
from millstream.tiered.upload import STRETCH_BYTES, GatheredStretch, StretchUpload
from millstream.tiered.work_progress import WorkProgress

__all__ = ["ObjectUnreadable", "merge_objects"]

REQUEST_BYTES: Final = 4 * 1024 * 1024
"""Bytes of an object that one request of a merge asks for, unless a single block is larger."""

_Queue = tuple[str, int]


class ObjectUnreadable(MillstreamError):
    """An object that is to be merged is damaged or missing; `key` names it."""

    def __init__(self, key: str, cause: MillstreamError) -> None:
        super().__init__(cause.name, cause.message, remedy=cause.remedy)
        self.key = key


def merge_objects(
    objects: ObjectStore,
    upload: StretchUpload,
    name: str,
    row: ColdStretch,
    sources: Sequence[ColdObject],
    progress: WorkProgress,
    group_bytes: int = STRETCH_BYTES,
) -> tuple[ColdObject, ...]:
    """Put the messages of the sources, which are in the order of the log, into objects of the row of that name.

    `progress` is the merge's own. `group_bytes` are those of records that are held in memory at one time, but for what
    a single queue has. Raises ObjectUnreadable, ObjectStoreDenied, ObjectStoreAway.
    """
    merged: list[ColdObject] = []
    parts = [_read_parts(objects, one, progress) for one in sources]
    for queues in _group(parts, upload.class_of, group_bytes):
        gathered = GatheredRecords(lambda _topic: 0)
        for one, own in zip(sources, parts, strict=True):
            wanted = [block for queue, part in own.items() if queue in queues for block in part.blocks]
            for info, frame in _read_blocks(
                objects, one.key, sorted(wanted, key=lambda block: block.position), progress
            ):
                _take(gathered, one.key, info, frame)
                upload.pause()
        stretch = GatheredStretch(row.log_begin, row.log_end, gathered.finish())
        merged += upload.put(name, row, stretch, len(merged), progress)
    return tuple(merged)


def _read_parts(objects: ObjectStore, one: ColdObject, progress: WorkProgress) -> dict[_Queue, ChunkPart]:
    """The parts of an object that its row names."""

    def read(key: str, ranges: list[tuple[int, int]]) -> list[bytes]:
        found = objects.get_many(key, ranges)
        progress.add_read(1, sum(map(len, found)))
        return found

    try:
        footer, _ = read_footer(one.key, one.size_bytes, read)
    except (StoreError, ObjectNotFound) as error:
        raise ObjectUnreadable(one.key, error) from None
    except ValueError as error:
        raise ObjectUnreadable(one.key, damage_of(one.key, str(error))) from None
    there = {(part.topic, part.queue_id): part for part in footer.parts}
    found: dict[_Queue, ChunkPart] = {}
    for part in one.parts:
        own = there.get((part.topic, part.queue_id))
        if own is None:
            lacking = damage_of(one.key, f"it has nothing of {part.topic}/{part.queue_id}")
            raise ObjectUnreadable(one.key, lacking)
        found[part.topic, part.queue_id] = own
    return found


def _group(
    parts: Sequence[dict[_Queue, ChunkPart]], class_of: Callable[[str], int], group_bytes: int
) -> Iterator[set[_Queue]]:
    """Queues whose records are held together: of one class side by side, so that they share packs."""
    raw_bytes: dict[_Queue, int] = {}
    for own in parts:
        for queue, part in own.items():
            raw_bytes[queue] = raw_bytes.get(queue, 0) + sum(block.raw_bytes for block in part.blocks)
    classes = {topic: class_of(topic) for topic, _ in raw_bytes}
    group: set[_Queue] = set()
    size_bytes = 0
    for queue in sorted(raw_bytes, key=lambda queue: (classes[queue[0]], queue)):
        if group and size_bytes + raw_bytes[queue] > group_bytes:
            yield group
            group, size_bytes = set(), 0
        group.add(queue)
        size_bytes += raw_bytes[queue]
    if group:
        yield group


def _read_blocks(
    objects: ObjectStore, key: str, blocks: Sequence[BlockInfo], progress: WorkProgress
) -> Iterator[tuple[BlockInfo, bytes]]:
    """The blocks, which are in the order of their places, several by each request, with what lies between them."""
    start = 0
    while start < len(blocks):
        first, behind = blocks[start].position, start + 1
        while behind < len(blocks) and _end_of(blocks[behind]) - first <= REQUEST_BYTES:
            behind += 1
        try:
            data = objects.get(key, first, _end_of(blocks[behind - 1]))
        except ObjectNotFound as error:
            raise ObjectUnreadable(key, error) from None
        except ValueError as error:
            raise ObjectUnreadable(key, damage_of(key, str(error))) from None
        progress.add_read(1, len(data))
        for info in blocks[start:behind]:
            yield info, data[info.position - first : _end_of(info) - first]
        start = behind


def _end_of(info: BlockInfo) -> int:
    return info.position + info.size_bytes


def _take(gathered: GatheredRecords, key: str, info: BlockInfo, frame: bytes) -> None:
    try:
        records = decode_block(key, info, frame)
        whole = bytes(records[0].obj)
        for record, (_, log_offset, size_bytes, _, _) in zip(records, places_of(whole), strict=True):
            if gathered.take(bytes(record), log_offset) != size_bytes:
                raise damage_of(key, f"a record in its block at {info.position} is none of a log")
    except StoreError as error:
        raise ObjectUnreadable(key, error) from None
    except ValueError as error:
        raise ObjectUnreadable(key, damage_of(key, str(error))) from None
