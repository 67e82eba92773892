"""A read-ahead cache of cold record blocks, with a memory budget.

A block is fetched once, however many wait for it. Calls wait for the store, so they are made in threads of their own.
What stays damaged or missing is an empty block, which leads readers past it; a store that does not answer never is.
"""

from __future__ import annotations

import asyncio
import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from typing import Final, Generic, TypeGuard, TypeVar

from millstream.model.errors import MillstreamError, StoreError
from millstream.tiered.checked_block import CheckedBlock
from millstream.tiered.chunk import (
    BlockInfo,
    ChunkFooter,
    ChunkPart,
    KeyTable,
    damage_of,
    decode_key_table,
    find_block,
    find_keys,
    find_log_offset,
    find_time,
)
from millstream.tiered.cold_losses import ColdLosses
from millstream.tiered.cold_map import ColdObject, ColdRange
from millstream.tiered.cold_work import ColdWork
from millstream.tiered.footers import find_part, read_footer
from millstream.tiered.objects import ObjectNotFound, ObjectStore, ObjectStoreAway

__all__ = ["CACHED_BLOCK_BYTES", "CACHED_FOOTER_BYTES", "ColdBlocks", "ColdCounters"]

CACHED_BLOCK_BYTES: Final = 128 * 1024 * 1024
"""Bytes of unpacked blocks that are kept, with the places of their records, unless a setting says otherwise."""

CACHED_FOOTER_BYTES: Final = 16 * 1024 * 1024
"""Bytes of footers, as they lie in their objects, that are kept unpacked; in memory they are several times that."""

MAX_REFETCHES: Final = 3
"""How often what was damaged or missing is fetched once more before it is passed over."""

SEARCHED_BLOCKS: Final = 64
"""Blocks of an object that a search for a log offset reads at one time, of up to some 256 KiB each, unpacked."""

_T = TypeVar("_T")


@dataclass(slots=True)
class ColdCounters:
    """What was read so far, and what of it the cache had."""

    requests: int = 0
    bytes_read: int = 0
    blocks_wanted: int = 0
    blocks_cached: int = 0
    damaged: int = 0


class _Cache(Generic[_T]):
    """Values by key, the least recently used ones gone beyond `max_bytes`; each is made once at a time."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._values: OrderedDict[tuple[str, int], tuple[_T, int]] = OrderedDict()
        self._bytes = 0
        self._running: dict[tuple[str, int], Future[_T]] = {}
        self._mutex = threading.Lock()

    def find(self, key: tuple[str, int]) -> _T | None:
        with self._mutex:
            found = self._values.get(key)
            if found is None:
                return None
            self._values.move_to_end(key)
            return found[0]

    def begin(self, key: tuple[str, int]) -> tuple[Future[_T], bool]:
        """The future of the value, and whether the caller has to make it."""
        with self._mutex:
            running = self._running.get(key)
            if running is not None:
                return running, False
            future: Future[_T] = Future()
            found = self._values.get(key)
            if found is not None:
                future.set_result(found[0])
                return future, False
            self._running[key] = future
            return future, True

    def end(self, key: tuple[str, int], value: _T | None, size_bytes: int, error: BaseException | None) -> None:
        with self._mutex:
            future = self._running.pop(key)
            if error is None and value is not None:
                self._values[key] = value, size_bytes
                self._bytes += size_bytes
                while self._bytes > self._max_bytes and len(self._values) > 1:
                    self._bytes -= self._values.popitem(last=False)[1][1]
        if error is not None:
            future.set_exception(error)
        else:
            assert value is not None
            future.set_result(value)

    def drop(self, key: str) -> None:
        with self._mutex:
            for own in [own for own in self._values if own[0] == key]:
                self._bytes -= self._values.pop(own)[1]


@dataclass
class ColdBlocks:
    """Reads of one broker: blocks by `work`, what tells where they lie from `objects`.

    Raises ObjectStoreDenied, ObjectStoreAway.
    """

    objects: ObjectStore
    work: ColdWork
    max_block_bytes: int = CACHED_BLOCK_BYTES
    counters: ColdCounters = field(default_factory=ColdCounters)
    losses: ColdLosses = field(default_factory=ColdLosses)

    def __post_init__(self) -> None:
        self._blocks: _Cache[CheckedBlock] = _Cache(self.max_block_bytes)
        self._footers: _Cache[ChunkFooter] = _Cache(CACHED_FOOTER_BYTES)

    def find_cached(self, topic: str, queue_id: int, where: ColdRange, queue_offset: int) -> CheckedBlock | None:
        """The block with that offset of the range, or the one that follows, if it is at hand. Does not block."""
        if (where.key, None) in self.losses:
            return _empty_range(where)
        footer = self._footers.find((where.key, 0))
        if footer is None:
            return None
        place = find_part(footer, topic, queue_id)
        number = None if place is None else find_block(place[1], queue_offset)
        if place is None or number is None:
            return _empty_range(where)
        own = _block_key(place[0], number)
        if (where.key, own) in self.losses:
            return _empty_block(place[1].blocks[number])
        return self._blocks.find((where.key, own))

    def fetch(self, topic: str, queue_id: int, where: ColdRange, queue_offset: int) -> CheckedBlock:
        """As `find_cached`, fetched where it is not at hand."""
        found = self._part(topic, queue_id, where)
        number = None if found is None else find_block(found[1], queue_offset)
        if found is None or number is None:
            return _empty_range(where)
        return self._block(topic, where.key, *found, number)

    async def fetch_soon(self, topic: str, queue_id: int, where: ColdRange, queue_offset: int) -> bool:
        """Have the block at hand without a thread, in the event loop; False where `fetch` is to be asked instead."""
        footer = self._footers.find((where.key, 0))
        place = None if footer is None else find_part(footer, topic, queue_id)
        number = None if place is None else find_block(place[1], queue_offset)
        if place is None or number is None or not self.work.reads_soon:
            return False
        own = where.key, _block_key(place[0], number)
        if own in self.losses:
            return False
        future, is_mine = self._blocks.begin(own)
        try:
            if is_mine:
                await self._read_soon(own, place[1].blocks[number])
            else:
                await asyncio.shield(asyncio.wrap_future(future))
        except MillstreamError:
            # Whatever it is: `fetch` tries again, and knows what to do then.
            return False
        self.counters.blocks_wanted += 1
        self.counters.blocks_cached += not is_mine
        return True

    async def _read_soon(self, own: tuple[str, int], info: BlockInfo) -> None:
        self.counters.requests += 1
        try:
            raw, places = await self.work.read_soon(own[0], info)
        except BaseException as error:
            # Others wait for the same block, who did not give up.
            away = error if isinstance(error, MillstreamError) else ObjectStoreAway("a read was given up")
            self._blocks.end(own, None, 0, away)
            raise
        self.counters.bytes_read += info.size_bytes
        block = CheckedBlock(info.first_queue_offset, info.next_queue_offset, raw, places)
        self._blocks.end(own, block, block.size_bytes, None)

    def find_by_key(self, topic: str, queue_id: int, where: ColdRange, hash_of_key: int) -> list[memoryview]:
        """Records of the range whose keys have that hash; others may be among them."""
        place = self._part(topic, queue_id, where)
        if place is None or place[1].keys is None:
            return []
        number, part = place
        table = part.keys
        assert table is not None
        try:
            entries = self._refetch(where.key, lambda: self._count_damage(lambda: self._key_entries(where.key, table)))
        except (StoreError, ObjectNotFound) as error:
            _check_loss(error)
            return []
        found = []
        for block, record in find_keys(entries, hash_of_key):
            if block >= len(part.blocks):
                raise self._damage(where.key, "its key table leads outside of it")
            held = self._block(topic, where.key, number, part, block)
            if record < len(held):
                found.append(held.record(record))
        return found

    def find_record(self, one: ColdObject, log_offset: int) -> bytes | None:
        """The record of that log offset, if a part that the object's row names has it, and it is whole.

        Records of several queues lie between one another in the log, so each of them may have it in one block.
        """
        try:
            footer = self._footer(one.key)
        except (StoreError, ObjectNotFound) as error:
            _check_loss(error)
            return None
        wanted = {(part.topic, part.queue_id) for part in one.parts}
        parts = (part for part in footer.parts if (part.topic, part.queue_id) in wanted)
        infos = [info for part in parts if (info := find_log_offset(part, log_offset)) is not None]
        for start in range(0, len(infos), SEARCHED_BLOCKS):
            some = infos[start : start + SEARCHED_BLOCKS]
            try:
                record = self._refetch(one.key, partial(self._record_among, one.key, some, log_offset))
            except (StoreError, ObjectNotFound) as error:
                _check_loss(error)
                continue
            if record is not None:
                return record
        return None

    def _record_among(self, key: str, infos: list[BlockInfo], log_offset: int) -> bytes | None:
        self.counters.requests += 1
        record = self._count_damage(lambda: self.work.find_record(key, infos, log_offset))
        self.counters.bytes_read += sum(info.size_bytes for info in infos)
        return record

    def first_offset_at(self, topic: str, queue_id: int, where: ColdRange, stored_ms: int) -> int | None:
        """Where the block begins that has the first message of the range stored at that time or later; None: none."""
        found = self._part(topic, queue_id, where)
        if found is None:
            return where.first_queue_offset
        block = find_time(found[1], stored_ms)
        return None if block is None else block.first_queue_offset

    def forget(self, key: str) -> None:
        """Keep nothing of an object any more."""
        self._footers.drop(key)
        self._blocks.drop(key)
        self.losses.forget(key)

    def _part(self, topic: str, queue_id: int, where: ColdRange) -> tuple[int, ChunkPart] | None:
        """The number and what the footer says of the queue's part; None where that is lost."""
        try:
            footer = self._footer(where.key)
        except (StoreError, ObjectNotFound) as error:
            _check_loss(error)
            return None
        return find_part(footer, topic, queue_id)

    def _footer(self, key: str) -> ChunkFooter:
        own = key, 0
        future, is_mine = self._footers.begin(own)
        if is_mine:
            try:
                footer, size_bytes = self._refetch(key, lambda: self._read_footer(key))
            except BaseException as error:
                if _is_loss(error):
                    self.losses.note(key, None, f"all of the object {key!r}", error)
                self._footers.end(own, None, 0, error)
                raise
            self._footers.end(own, footer, size_bytes, None)
        return future.result()

    def _refetch(self, key: str, read: Callable[[], _T]) -> _T:
        """What is read, which is damaged or missing only if it is so each time."""
        for _ in range(MAX_REFETCHES):
            try:
                return read()
            except (StoreError, ObjectNotFound) as error:
                _check_loss(error)
        try:
            return read()
        except ObjectNotFound:
            self._check_store(key)
            raise

    def _check_store(self, key: str) -> None:
        """Raise ObjectStoreAway where no object of the broker is there: another bucket, or a disk without its mount."""
        self.counters.requests += 1
        prefix = "/".join(key.split("/")[:-1][:3]) + "/"
        if next(iter(self.objects.list(prefix)), None) is None:
            raise ObjectStoreAway(f"it has none of the objects below {prefix!r}, as if it were another one")

    def _read_footer(self, key: str) -> tuple[ChunkFooter, int]:
        self.counters.requests += 1
        size_bytes = self.objects.head(key).size_bytes
        return self._count_damage(lambda: read_footer(key, size_bytes, self._read))

    def _block(self, topic: str, key: str, part_number: int, part: ChunkPart, number: int) -> CheckedBlock:
        info, block_number = part.blocks[number], _block_key(part_number, number)
        if (key, block_number) in self.losses:
            return _empty_block(info)
        self.counters.blocks_wanted += 1
        own = key, block_number
        future, is_mine = self._blocks.begin(own)
        if is_mine:
            try:
                block = self._refetch(key, lambda: self._read_block(key, info))
            except BaseException as error:
                if _is_loss(error):
                    offsets = f"{info.first_queue_offset} to {info.next_queue_offset - 1}"
                    what = f"topic {topic}, queue {part.queue_id}, queue offsets {offsets}, object {key!r}"
                    self.losses.note(key, block_number, what, error)
                self._blocks.end(own, None, 0, error)
                if not _is_loss(error):
                    raise
            else:
                self._blocks.end(own, block, block.size_bytes, None)
        else:
            self.counters.blocks_cached += 1
        try:
            return future.result()
        except (StoreError, ObjectNotFound) as error:
            _check_loss(error)
            return _empty_block(info)

    def _read_block(self, key: str, info: BlockInfo) -> CheckedBlock:
        self.counters.requests += 1
        raw, places = self._count_damage(lambda: self.work.read_block(key, info))
        self.counters.bytes_read += info.size_bytes
        return CheckedBlock(info.first_queue_offset, info.next_queue_offset, raw, places)

    def _key_entries(self, key: str, table: KeyTable) -> bytes:
        [frame] = self._read(key, [(table.position, table.position + table.size_bytes)])
        return decode_key_table(key, table, frame)

    def _read(self, key: str, ranges: list[tuple[int, int]]) -> list[bytes]:
        self.counters.requests += 1
        try:
            found = self.objects.get_many(key, ranges)
        except ValueError as error:
            # The object is shorter than its own footer says.
            raise damage_of(key, str(error)) from error
        self.counters.bytes_read += sum(map(len, found))
        return found

    def _count_damage(self, decode: Callable[[], _T]) -> _T:
        try:
            return decode()
        except StoreError:
            self.counters.damaged += 1
            raise

    def _damage(self, key: str, why: str) -> StoreError:
        self.counters.damaged += 1
        return damage_of(key, why)


def _empty_range(where: ColdRange) -> CheckedBlock:
    return CheckedBlock(where.first_queue_offset, where.next_queue_offset)


def _empty_block(info: BlockInfo) -> CheckedBlock:
    return CheckedBlock(info.first_queue_offset, info.next_queue_offset)


def _is_loss(error: BaseException) -> TypeGuard[MillstreamError]:
    return isinstance(error, ObjectNotFound) or (isinstance(error, StoreError) and error.name == "CHUNK_DAMAGED")


def _check_loss(error: MillstreamError) -> None:
    """Raise what is neither damage nor a missing object."""
    if not _is_loss(error):
        raise error


def _block_key(part_number: int, number: int) -> int:
    """One number for both: an object has fewer blocks than that."""
    return part_number << 32 | number
