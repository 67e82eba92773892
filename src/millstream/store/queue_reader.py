"""Reads queues by offset and time, from the log or from a compacted generation."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from millstream.model.errors import StoreError
from millstream.protocol.record import MIN_RECORD_BYTES, passes_checksum, store_timestamp_ms, verify_record
from millstream.store.cold_records import ColdEntry, ColdRecords, ColdRun
from millstream.store.commit_log import CommitLog
from millstream.store.compaction.compacted_queues import CompactedQueues
from millstream.store.compaction.generation import CompactedEntry
from millstream.store.consume_queue import ENTRY_BYTES, ConsumeQueue, IndexEntry
from millstream.store.damage.log_scan import is_named_by
from millstream.store.light_queue import LightQueue
from millstream.store.queue_table import AnyQueue, QueueTable
from millstream.store.record_run import Place, copy_checked_run, copy_records, is_checked_run

__all__ = ["LogQueue", "QueueReader"]


_COPIED_BYTES: Final = 64 * 1024
"""Bytes of records that are copied out of the log together, at most; more are given as views of it."""


class QueueReader:
    """What readers see of a store. `mutex` is what its writer holds while queues change."""

    def __init__(self, log: CommitLog, queues: QueueTable, compacted: CompactedQueues, mutex: threading.Lock) -> None:
        self._log = log
        self._by_place = queues.by_place
        self._compacted = compacted
        self._compacted_places = compacted.by_place
        self._mutex = mutex
        self.cold: ColdRecords | None = None
        """What the log has let go and that lies elsewhere; None where nothing does."""
        self.on_damage: Callable[[int], bool] = lambda _log_offset: False
        """Called with the log offset of a damaged record, in whichever thread reads; whether it is being mended."""

    def min_offset(self, topic: str, queue_id: int) -> int:
        """The first offset of the queue; 0 for a queue that does not exist."""
        place = topic, queue_id
        queue = self._by_place.get(place)
        if queue is None:
            return 0
        compacted = self._compacted.find(topic, queue_id) if place in self._compacted_places else None
        if compacted is not None:
            return compacted.min_offset(self.log_queue(queue))
        cold = None if self.cold is None else self.cold.first_offset(topic, queue_id)
        return queue.min_offset if cold is None else min(cold, queue.min_offset)

    def disk_offset(self, topic: str, queue_id: int) -> int:
        """The first offset of the queue that the disk has; 0 for a queue that does not exist."""
        queue = self._by_place.get((topic, queue_id))
        return 0 if queue is None else queue.min_offset

    def max_offset(self, topic: str, queue_id: int) -> int:
        """The offset behind the last visible record of the queue; 0 for a queue that does not exist."""
        queue = self._by_place.get((topic, queue_id))
        return queue.visible_offset if queue is not None else 0

    def holds(self, topic: str, queue_id: int) -> bool:
        """Whether anything was ever stored in the queue since its topic was made."""
        return (topic, queue_id) in self._by_place

    def last_store_timestamp_ms(self, topic: str, queue_id: int) -> int:
        """When the last visible record of the queue was stored; 0 for a queue that holds nothing."""
        last = self.entries(topic, queue_id, self.max_offset(topic, queue_id) - 1, 1)
        return self.stored_ms(last[0]) if last else 0

    def written_offset(self, topic: str, queue_id: int) -> int:
        """The offset behind the last record of the queue, whether readers may see it or not."""
        queue = self._by_place.get((topic, queue_id))
        return queue.next_offset if queue is not None else 0

    def entries(self, topic: str, queue_id: int, queue_offset: int, max_count: int) -> list[IndexEntry]:
        """At most `max_count` visible entries from `queue_offset`, or from the queue's first one if that is later.

        Of a compacted queue those that are left, at or behind the offset. Of a queue whose first records lie elsewhere
        some of these; COLD_DATA_AWAY where they are to be fetched before.
        """
        place = topic, queue_id
        queue = self._by_place.get(place)
        if queue is None:
            return []
        compacted = self._compacted.find(topic, queue_id) if place in self._compacted_places else None
        if compacted is not None:
            return compacted.entries(queue_offset, max_count, self.log_queue(queue))
        if self.cold is not None and queue_offset < queue.min_offset:
            cold = self.cold.entries(topic, queue_id, queue_offset, queue.min_offset, max_count)
            if cold:
                return cold
        with self._mutex:
            return queue.entries(queue_offset, max_count)

    def is_away(self, topic: str, queue_id: int, queue_offset: int) -> bool:
        """Whether the next records from the offset on are to be fetched from elsewhere before `entries` has them."""
        if self.cold is None:
            return False
        queue = self._by_place.get((topic, queue_id))
        if queue is None or queue_offset >= queue.min_offset:
            return False
        return self.cold.is_away(topic, queue_id, queue_offset, queue.min_offset)

    def log_queue(self, queue: AnyQueue) -> LogQueue:
        """The queue as the log has it, whether it is compacted or not."""
        return LogQueue(self, queue, self._mutex)

    def holds_batches(self, topic: str, queue_id: int) -> bool:
        """Whether the queue's records may hold several messages each."""
        queue = self._by_place.get((topic, queue_id))
        return queue is not None and queue.holds_batches

    def is_compacted(self, topic: str, queue_id: int) -> bool:
        """Whether some of the queue's records may be in a generation, and offsets may be missing."""
        return self._compacted.find(topic, queue_id) is not None

    def raw(self, log_offset: int, size_bytes: int) -> memoryview | None:
        """Bytes of the log, unverified; None where one segment does not have them all. Fit for any thread."""
        return self._log.slice(log_offset, size_bytes)

    def read(self, entry: IndexEntry) -> memoryview:
        """The whole record of an entry, not copied, its checksum verified. Raises RECORD_DAMAGED. Fit for any thread.

        RECORD_BEING_MENDED where another replica is asked for it. The view stays readable as long as it is held, and
        keeps its segment mapped.
        """
        if isinstance(entry, CompactedEntry):
            return entry.generation.read(entry)
        if isinstance(entry, ColdEntry):
            return entry.record
        record = self._log.slice(entry.log_offset, entry.size_bytes)
        if record is None or not verify_record(record) or not is_named_by(record, entry):
            # The entry of a lost record leads to another one.
            is_being_mended = entry.size_bytes > 0 and self.on_damage(entry.log_offset)
            raise StoreError(
                "RECORD_BEING_MENDED" if is_being_mended else "RECORD_DAMAGED",
                f"The record of {entry.size_bytes} bytes at log offset {entry.log_offset} is damaged or missing.",
            )
        return record

    def read_run(
        self, topic: str, queue_id: int, queue_offset: int, max_count: int, max_bytes: int
    ) -> tuple[bytes, list[Place]] | None:
        """At most `max_count` records of a queue from an offset that it has on, copied one behind the other, and their
        places; all are verified. None where `read` has to be asked for each: they have more than `max_bytes` or
        `_COPIED_BYTES`, are in several segments, one is damaged, or there is none."""
        place = topic, queue_id
        queue = self._by_place.get(place)
        if not isinstance(queue, ConsumeQueue) or place in self._compacted_places:
            return None
        if queue_offset < queue.min_offset:
            return None
        with self._mutex:
            places = queue.places(queue_offset, max_count)
        found = self._segment_view(places[0][0]) if places else None
        if found is None:
            return None
        data = copy_records(*found, places, min(max_bytes, _COPIED_BYTES))
        first = -1 if isinstance(queue, LightQueue) else queue_offset
        return None if data is None or not is_checked_run(data, places, first) else (data, places)

    def read_together(
        self, topic: str, queue_id: int, queue_offset: int, max_count: int, max_bytes: int
    ) -> tuple[bytes, int, int, int] | None:
        """The records of `read_run` and how many they are, and the offsets from which and up to which the queue has
        any. None where `read_run` is."""
        place = topic, queue_id
        queue = self._by_place.get(place)
        if not isinstance(queue, ConsumeQueue) or place in self._compacted_places:
            return None
        first = queue.min_offset
        if queue_offset < first:
            return None
        with self._mutex:
            packed = queue.packed_places(queue_offset, max_count)
        found = self._segment_view(int.from_bytes(packed[:8], "big")) if packed else None
        if found is None:
            return None
        own_offset = -1 if isinstance(queue, LightQueue) else queue_offset
        data = copy_checked_run(*found, packed, min(max_bytes, _COPIED_BYTES), own_offset)
        if data is None:
            return None
        if self.cold is not None:
            first = self.min_offset(topic, queue_id)
        return data, len(packed) // ENTRY_BYTES, first, queue.visible_offset

    def read_cold(self, topic: str, queue_id: int, queue_offset: int, max_count: int, max_bytes: int) -> ColdRun | None:
        """As `read_run`, of records that lie elsewhere and are at hand, and not copied. None where `entries` has to be
        asked."""
        place = topic, queue_id
        queue = self._by_place.get(place)
        if self.cold is None or not isinstance(queue, ConsumeQueue) or place in self._compacted_places:
            return None
        if queue_offset >= queue.min_offset:
            return None
        return self.cold.read_run(topic, queue_id, queue_offset, queue.min_offset, max_count, max_bytes)

    def read_all(self, entries: Sequence[IndexEntry]) -> Sequence[bytes | memoryview] | None:
        """As `read` for each entry of a queue, but None where that has to be asked for each: one record is damaged, was
        compacted, or is elsewhere than in the segment of the first."""
        if not entries:
            return None
        if isinstance(entries[0], ColdEntry):
            cold = [entry.record for entry in entries if isinstance(entry, ColdEntry)]
            return cold if len(cold) == len(entries) else None
        if isinstance(entries[0], CompactedEntry):
            return None
        # What comes behind an entry of the log is in the log: a generation has the beginning of a queue.
        found = self._segment_view(entries[0].log_offset)
        if found is None:
            return None
        view, start = found
        records = []
        for entry in entries:
            position = entry.log_offset - start
            record = view[position : position + entry.size_bytes]
            if len(record) < MIN_RECORD_BYTES or not is_named_by(record, entry) or not passes_checksum(record):
                return None
            records.append(record)
        return records

    def _segment_view(self, log_offset: int) -> tuple[memoryview, int] | None:
        """The segment that has the offset, and where it begins; None where the log has none, or no longer."""
        segment = self._log.segment_at(log_offset)
        if segment is None:
            return None
        try:
            return self._log.view(segment), segment.start
        except FileNotFoundError:
            return None

    def offset_by_time(self, topic: str, queue_id: int, timestamp_ms: int, *, upper: bool = False) -> int:
        """The first offset stored at `timestamp_ms` or later, or the queue's maximum if there is none.

        `upper` asks for the last offset stored at that time or earlier instead, or the minimum if there is none. Of a
        queue whose first records lie elsewhere only what the log has is looked at.
        """
        queue = self._by_place.get((topic, queue_id))
        is_cold = queue is not None and self.cold is not None and not self.is_compacted(topic, queue_id)
        before = low = queue.min_offset if queue is not None and is_cold else self.min_offset(topic, queue_id)
        high = self.max_offset(topic, queue_id)
        while low < high:
            middle = (low + high) // 2
            found = self.entries(topic, queue_id, middle, 1)
            stored_ms = self.stored_ms(found[0]) if found and found[0].queue_offset < high else None
            if stored_ms is None:
                high = middle
            elif stored_ms < timestamp_ms or (upper and stored_ms == timestamp_ms):
                before = max(found[0].queue_offset, middle)
                low = before + 1
            else:
                high = middle
        return before if upper else low

    def stored_ms_at(self, topic: str, queue_id: int, queue_offset: int) -> int:
        """When the record at an offset, or the next one, was stored; 0 where there is none or that cannot be read.

        Of records that lie elsewhere and are not at hand it is the time of the first one that lies with them.
        """
        if self.is_away(topic, queue_id, queue_offset):
            assert self.cold is not None
            return self.cold.stored_ms(topic, queue_id, queue_offset) or 0
        found = self.entries(topic, queue_id, queue_offset, 1)
        return self.stored_ms(found[0]) if found else 0

    def stored_ms(self, entry: IndexEntry) -> int:
        """When the entry's record was stored; 0 where that cannot be read."""
        record: memoryview | None
        if isinstance(entry, CompactedEntry):
            try:
                record = entry.generation.read(entry)
            except StoreError:
                return 0
        elif isinstance(entry, ColdEntry):
            record = entry.record
        else:
            # The entry of a lost record leads to the next whole one, which keeps the times in order.
            record = self._log.slice(entry.log_offset, MIN_RECORD_BYTES)
        return store_timestamp_ms(record) if record is not None else 0


@dataclass(frozen=True, slots=True)
class LogQueue:
    """One queue as the log has it: what compaction reads from. Fit for any thread."""

    reader: QueueReader
    queue: AnyQueue
    mutex: threading.Lock

    def min_offset(self) -> int:
        """The first queue offset whose record is still in the log."""
        return self.queue.min_offset

    def end_offset(self) -> int:
        """The queue offset behind the last visible record."""
        return self.queue.visible_offset

    def entries(self, queue_offset: int, max_count: int) -> list[IndexEntry]:
        """At most `max_count` visible entries from `queue_offset`, or from the first one if that is later."""
        with self.mutex:
            return self.queue.entries(queue_offset, max_count)

    def first_offset_in_log(self, log_offset: int) -> int:
        """The first queue offset whose record stands at the log offset or behind it."""
        with self.mutex:
            return self.queue.first_offset_in_log(log_offset)

    def read(self, entry: IndexEntry) -> memoryview:
        """The whole record, verified. Raises RECORD_DAMAGED."""
        return self.reader.read(entry)
