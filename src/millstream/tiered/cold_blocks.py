"""A read-ahead cache of cold record blocks, with a memory budget.

A block is fetched once, however many wait for it. Calls wait for the store, so they are made in threads of their own.
What stays damaged or missing is an empty block, which leads readers past it; a store that does not answer never is.
"""

from __future__ import annotations

import threading
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from typing import Final, Generic, TypeGuard, TypeVar

from millstream.model.errors import MillstreamError, StoreError
from millstream.protocol.record import split_record, store_timestamp_ms
from millstream.store.cold_records import ColdEntry
from millstream.tiered.chunk import (
    BlockInfo,
    ChunkFooter,
    ChunkPart,
    KeyTable,
    damage_of,
    decode_block,
    decode_key_table,
    find_block,
    find_keys,
    find_log_offset,
    find_time,
)
from millstream.tiered.cold_losses import ColdLosses
from millstream.tiered.cold_map import ColdObject, ColdRange
from millstream.tiered.footers import find_part, read_footer
from millstream.tiered.objects import ObjectNotFound, ObjectStore, ObjectStoreAway
from millstream.tiered.queue_records import places_of

__all__ = ["CACHED_BLOCK_BYTES", "CACHED_FOOTER_BYTES", "ColdBlock", "ColdBlocks", "ColdCounters"]

CACHED_BLOCK_BYTES: Final = 128 * 1024 * 1024
"""Bytes of unpacked blocks that are kept, with what readers have of each record, unless a setting says otherwise."""

RECORD_BYTES: Final = 550
"""Bytes that a record of a kept block takes beside its own: its view and its entry, measured."""

CACHED_FOOTER_BYTES: Final = 16 * 1024 * 1024
"""Bytes of footers, as they lie in their objects, that are kept unpacked; in memory they are several times that."""

MAX_REFETCHES: Final = 3
"""How often what was damaged or missing is fetched once more before it is passed over."""

SEARCHED_BLOCKS: Final = 64
"""Blocks of an object that a search for a log offset reads at one time, of up to some 256 KiB each, unpacked."""

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class ColdBlock:
    """Records of one queue by offset, verified; none where they are lost. `next_queue_offset` is behind the last.

    A broker's reader has an entry of each as well, made where nobody waits for it but who fetched the block.
    """

    first_queue_offset: int
    next_queue_offset: int
    records: list[memoryview]
    entries: list[ColdEntry] = field(default_factory=list)

    def entries_from(self, queue_offset: int, end: int, max_count: int) -> list[ColdEntry]:
        """At most `max_count` entries with messages from the offset to before `end`."""
        entries = self.entries
        first = bisect_right(entries, queue_offset, key=lambda entry: entry.queue_offset + entry.message_count)
        behind = bisect_left(entries, end, lo=first, key=lambda entry: entry.queue_offset)
        return entries[first : min(behind, first + max_count)]

    def offset_at(self, stored_ms: int) -> int | None:
        """The offset of the first record that was stored at that time or later; None where all were before."""
        for record in self.records:
            if store_timestamp_ms(record) >= stored_ms:
                return split_record(record).queue_offset
        return None

    def stored_ms(self, queue_offset: int) -> int | None:
        """When the record with that message was stored; None where it lies before the block."""
        number = bisect_right(self.records, queue_offset, key=lambda record: split_record(record).queue_offset)
        return store_timestamp_ms(self.records[number - 1]) if number else None


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
    """Reads of one broker. Raises ObjectStoreDenied, ObjectStoreAway."""

    objects: ObjectStore
    max_block_bytes: int = CACHED_BLOCK_BYTES
    counters: ColdCounters = field(default_factory=ColdCounters)
    losses: ColdLosses = field(default_factory=ColdLosses)

    def __post_init__(self) -> None:
        self._blocks: _Cache[ColdBlock] = _Cache(self.max_block_bytes)
        self._footers: _Cache[ChunkFooter] = _Cache(CACHED_FOOTER_BYTES)
        self._decoding = threading.Lock()

    def find_cached(self, topic: str, queue_id: int, where: ColdRange, queue_offset: int) -> ColdBlock | None:
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

    def fetch(self, topic: str, queue_id: int, where: ColdRange, queue_offset: int) -> ColdBlock:
        """As `find_cached`, fetched where it is not at hand."""
        found = self._part(topic, queue_id, where)
        number = None if found is None else find_block(found[1], queue_offset)
        if found is None or number is None:
            return _empty_range(where)
        return self._block(topic, where.key, *found, number)

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
            records = self._block(topic, where.key, number, part, block).records
            found += records[record : record + 1]
        return found

    def find_record(self, one: ColdObject, log_offset: int) -> memoryview | None:
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

    def _record_among(self, key: str, infos: list[BlockInfo], log_offset: int) -> memoryview | None:
        ranges = [(info.position, info.position + info.size_bytes) for info in infos]
        frames = self._count_damage(lambda: self._read(key, ranges))
        damage: StoreError | None = None
        for info, frame in zip(infos, frames, strict=True):
            with self._decoding:
                try:
                    records = self._count_damage(partial(decode_block, key, info, frame))
                except StoreError as error:
                    # The record may be in another one.
                    damage = error
                    continue
            for entry in _entries_of(records):
                if entry.log_offset == log_offset:
                    return entry.record
        if damage is not None:
            raise damage
        return None

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

    def _block(self, topic: str, key: str, part_number: int, part: ChunkPart, number: int) -> ColdBlock:
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
                self._blocks.end(own, block, info.raw_bytes + RECORD_BYTES * info.records, None)
        else:
            self.counters.blocks_cached += 1
        try:
            return future.result()
        except (StoreError, ObjectNotFound) as error:
            _check_loss(error)
            return _empty_block(info)

    def _read_block(self, key: str, info: BlockInfo) -> ColdBlock:
        where = info.position, info.position + info.size_bytes
        [frame] = self._count_damage(lambda: self._read(key, [where]))
        # One at a time: the event loop, which wants the interpreter back after each of its own calls, waits for one
        # thread then, and not for all that fetch.
        with self._decoding:
            records = self._count_damage(lambda: decode_block(key, info, frame))
            return ColdBlock(info.first_queue_offset, info.next_queue_offset, records, _entries_of(records))

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


def _entries_of(records: list[memoryview]) -> list[ColdEntry]:
    """Entries of the records of a block, which stand one behind the other."""
    found: list[ColdEntry] = []
    for place, record in zip(places_of(records[0].obj) if records else (), records, strict=True):  # type: ignore[arg-type]
        entry = ColdEntry(*place)
        entry.record = record
        found.append(entry)
    return found


def _empty_range(where: ColdRange) -> ColdBlock:
    return ColdBlock(where.first_queue_offset, where.next_queue_offset, [])


def _empty_block(info: BlockInfo) -> ColdBlock:
    return ColdBlock(info.first_queue_offset, info.next_queue_offset, [])


def _is_loss(error: BaseException) -> TypeGuard[MillstreamError]:
    return isinstance(error, ObjectNotFound) or (isinstance(error, StoreError) and error.name == "CHUNK_DAMAGED")


def _check_loss(error: MillstreamError) -> None:
    """Raise what is neither damage nor a missing object."""
    if not _is_loss(error):
        raise error


def _block_key(part_number: int, number: int) -> int:
    """One number for both: an object has fewer blocks than that."""
    return part_number << 32 | number
