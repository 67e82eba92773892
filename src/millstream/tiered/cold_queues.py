"""Cold records as a store's readers see them: located by the cold map, read through the block cache."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from millstream.protocol.record import split_record, store_timestamp_ms
from millstream.store.cold_records import ColdRun, cold_records_away
from millstream.store.consume_queue import IndexEntry
from millstream.store.index.record_keys import keys_of
from millstream.store.index.run import key_hash
from millstream.tiered.cold_blocks import ColdBlocks
from millstream.tiered.cold_map import ColdMap, ColdRange

__all__ = ["MAX_SEARCHED_RANGES", "ColdQueues"]

MAX_SEARCHED_RANGES: Final = 64
"""Ranges of a topic's queues, each in an object, that one search by key looks at: the newest ones."""


@dataclass(frozen=True, slots=True)
class ColdQueues:
    """See `ColdRecords`. `fetch`, `offset_at`, `find_record` and `find_by_key` are for threads of their own.

    They wait for the store, and raise as `ColdBlocks`.
    """

    cold: ColdMap
    blocks: ColdBlocks

    def first_offset(self, topic: str, queue_id: int) -> int | None:
        """See `ColdRecords`."""
        bounds = self.cold.bounds(topic, queue_id)
        return None if bounds is None else bounds[0]

    def entries(self, topic: str, queue_id: int, queue_offset: int, end: int, max_count: int) -> list[IndexEntry]:
        """See `ColdRecords`."""
        found: list[IndexEntry] = []
        following = queue_offset
        while len(found) < max_count:
            where = self.cold.find(topic, queue_id, following)
            if where is None or where.first_queue_offset >= end or following >= end:
                break
            following = max(following, where.first_queue_offset)
            block = self.blocks.find_cached(topic, queue_id, where, following)
            if block is None:
                if not found:
                    raise cold_records_away(topic, queue_id, queue_offset)
                break
            found += block.entries_from(following, end, max_count - len(found))
            following = block.next_queue_offset
        return found

    def read_run(
        self, topic: str, queue_id: int, queue_offset: int, end: int, max_count: int, max_bytes: int
    ) -> ColdRun | None:
        """See `ColdRecords`."""
        where = self.cold.find(topic, queue_id, queue_offset)
        if where is None or where.first_queue_offset > queue_offset:
            return None
        block = self.blocks.find_cached(topic, queue_id, where, queue_offset)
        return None if block is None else block.run_from(queue_offset, end, max_count, max_bytes)

    def is_away(self, topic: str, queue_id: int, queue_offset: int, end: int) -> bool:
        """See `ColdRecords`. What was passed over for long enough is away again."""
        self.blocks.losses.expire()
        found = self._first_away(topic, queue_id, queue_offset)
        return found is not None and found[1] < end

    def stored_ms(self, topic: str, queue_id: int, queue_offset: int) -> int | None:
        """See `ColdRecords`."""
        where = self.cold.find(topic, queue_id, queue_offset)
        return None if where is None else where.first_stored_ms

    def fetch(self, topic: str, queue_id: int, queue_offset: int) -> None:
        """Have the block at hand that the offset, or the next one behind it, lies in. Raises as `ColdBlocks`.

        A block that is lost is passed over, and that is all; ask `is_away` again.
        """
        found = self._first_away(topic, queue_id, queue_offset)
        if found is not None:
            self.blocks.fetch(topic, queue_id, *found)

    async def fetch_soon(self, topic: str, queue_id: int, queue_offset: int) -> bool:
        """As `fetch`, in the event loop and without a thread; False where `fetch` is to be asked instead."""
        found = self._first_away(topic, queue_id, queue_offset)
        return found is None or await self.blocks.fetch_soon(topic, queue_id, *found)

    def _first_away(self, topic: str, queue_id: int, queue_offset: int) -> tuple[ColdRange, int] | None:
        """The first block from the offset on that is not known to be lost, unless it is at hand; where it is."""
        while (where := self.cold.find(topic, queue_id, queue_offset)) is not None:
            following = max(queue_offset, where.first_queue_offset)
            block = self.blocks.find_cached(topic, queue_id, where, following)
            if block is None:
                return where, following
            if len(block):
                return None
            queue_offset = block.next_queue_offset
        return None

    def offset_at(self, topic: str, queue_id: int, stored_ms: int) -> int | None:
        """See `ColdRecords`."""
        for where in self.cold.ranges(topic, queue_id):
            if where.last_stored_ms >= stored_ms:
                return self._offset_within(topic, queue_id, where, stored_ms)
        return None

    def bound_at(self, topic: str, queue_id: int, stored_ms: int) -> int | None:
        """See `ColdRecords`: where the range begins that has the first one."""
        ranges = self.cold.ranges(topic, queue_id)
        return next((where.first_queue_offset for where in ranges if where.last_stored_ms >= stored_ms), None)

    def find_record(self, log_offset: int) -> bytes | None:
        """See `ColdRecords`."""
        for one in self.cold.objects_at(log_offset):
            record = self.blocks.find_record(one, log_offset)
            if record is not None:
                return record
        return None

    def find_by_key(self, topic: str, key: str, begin_ms: int, end_ms: int, max_results: int) -> Sequence[memoryview]:
        """See `ColdRecords`."""
        wanted, text = key_hash(topic.encode(), key.encode()), key.encode()
        places = [
            (where, queue_id)
            for name, queue_id in self.cold.queues()
            if name == topic
            for where in self.cold.ranges(name, queue_id)
            if where.first_stored_ms <= end_ms and where.last_stored_ms >= begin_ms
        ]
        places.sort(key=lambda place: place[0].last_stored_ms, reverse=True)
        found: list[tuple[int, memoryview]] = []
        for where, queue_id in places[:MAX_SEARCHED_RANGES]:
            for record in self.blocks.find_by_key(topic, queue_id, where, wanted):
                stored_ms = store_timestamp_ms(record)
                properties = b"\x02" + bytes(split_record(record).properties)
                if begin_ms <= stored_ms <= end_ms and text in keys_of(properties):
                    found.append((stored_ms, record))
            if len(found) >= max_results:
                break
        found.sort(key=lambda one: one[0], reverse=True)
        return [record for _, record in found[:max_results]]

    def _offset_within(self, topic: str, queue_id: int, where: ColdRange, stored_ms: int) -> int | None:
        first = self.blocks.first_offset_at(topic, queue_id, where, stored_ms)
        if first is None:
            return None
        block = self.blocks.fetch(topic, queue_id, where, first)
        # Of what is lost the time is not known: a reader is led to where it begins.
        return block.offset_at(stored_ms) if len(block) else first
