"""Pull: reads one queue from an offset, and waits for new messages."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from itertools import accumulate

from millstream.broker.queues.long_polling import LongPolls
from millstream.broker.queues.reader import MAX_SCANNED_ENTRIES, Reader, check_readable
from millstream.broker.queues.topics import TopicRegistry
from millstream.model.filter import MessageFilter
from millstream.model.operations import PullRequest, PullResult, PullStatus
from millstream.model.properties import decode_properties
from millstream.protocol.batches import is_arrow_batch, record_of
from millstream.protocol.record import split_record
from millstream.store.cold_records import ColdEntry
from millstream.store.compaction.generation import CompactedEntry
from millstream.store.consume_queue import IndexEntry
from millstream.transport.late_answers import AnswerPacing

__all__ = ["MAX_PULL_BYTES", "MAX_PULL_MESSAGES", "MAX_WAIT_MS", "QueuePuller"]

MAX_PULL_MESSAGES = 16_384
"""Messages of one pull at most, whatever it asks for."""

MAX_PULL_BYTES = 8 * 1024 * 1024
"""Bytes of one pull at most, whatever it asks for; the first message is given even if it alone is larger."""

MAX_RAW_BYTES = 15 * 1024 * 1024
"""Bytes of raw records of one pull at most, so that its answer fits a frame."""

MAX_RAW_RECORDS = 16_384
"""Raw records of one pull at most."""

# At hand, because in Python 3.11 the way from an enum's class to a member runs in Python.
_FOUND, _OFFSET_ILLEGAL = PullStatus.FOUND, PullStatus.OFFSET_ILLEGAL
_FIRST_RAW_RECORDS = 32
_RAW_RECORDS_GROWTH = 8
"""Entries that are looked up first for raw records, and by how much the next look is larger."""

MAX_WAIT_MS = 60_000
"""Milliseconds that a request waits for messages at most, whatever it asks for."""


@dataclass(slots=True)
class _Scan:
    """What one look at the queue found."""

    next_offset: int
    records: list[bytes | memoryview]
    at_end: bool


@dataclass(frozen=True, slots=True)
class QueuePuller:
    """Answers pulls."""

    topics: TopicRegistry
    reader: Reader
    polls: LongPolls

    async def pull(self, request: PullRequest, pace: AnswerPacing | None = None) -> PullResult:
        """Messages from `queue_offset` on, after at most `wait_ms` where nothing matches.

        A batch of ordinary messages is given as the record it is, RocketMQ's clients take it apart; with a filter, and
        where it is an Arrow batch, its messages are given as records of their own.

        OFFSET_ILLEGAL with the nearest legal offset where the offset is outside of the queue; ALL_FILTERED where
        messages were passed over: go on at `next_offset`. `pace` is asked before a look that comes late. Raises
        TOPIC_NOT_FOUND, QUEUE_NOT_FOUND, FORBIDDEN, TOO_MANY_REQUESTS.
        """
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + min(request.wait_ms, MAX_WAIT_MS) / 1000
        queue_offset = request.queue_offset
        while True:
            while self.reader.is_away(request.topic, request.queue_id, queue_offset):
                is_there = await self.reader.fetch_away(request.topic, request.queue_id, queue_offset)
                if not is_there and loop.time() >= deadline_s:
                    # The offset stays: nobody is led past messages that are only out of reach.
                    return self._nothing_new(request, queue_offset)
            if not request.raw:
                await self.reader.prepare(request.topic, request.queue_id, queue_offset, request.max_messages)
            result, may_wait = self._look(request, queue_offset)
            if pace is not None and result.records:
                pace.note_size(sum(map(len, result.records)))
            remaining_s = deadline_s - loop.time()
            if not may_wait or remaining_s <= 0:
                return result
            queue_offset = result.next_offset
            if not await self.polls.wait_pull(request.topic, request.queue_id, remaining_s):
                result.max_offset = self.reader.store.max_offset(request.topic, request.queue_id)
                return result
            if pace is not None:
                await pace.ready()

    def pull_now(self, request: PullRequest) -> PullResult | None:
        """As `pull`, but None where the request, or the unpacking of batches, has to be waited for; records may come
        several to a buffer."""
        if not request.raw and self.reader.store.holds_batches(request.topic, request.queue_id):
            return None
        if self.reader.is_away(request.topic, request.queue_id, request.queue_offset):
            return None
        result, may_wait = self._look(request, request.queue_offset, is_joined=True)
        return None if may_wait and request.wait_ms > 0 else result

    def _nothing_new(self, request: PullRequest, queue_offset: int) -> PullResult:
        place = request.topic, request.queue_id
        store = self.reader.store
        return PullResult(PullStatus.NOTHING_NEW, queue_offset, store.min_offset(*place), store.max_offset(*place))

    def _look(self, request: PullRequest, queue_offset: int, *, is_joined: bool = False) -> tuple[PullResult, bool]:
        """What is there from an offset on, and whether something may come for which to wait.

        `is_joined`: records may come several to a buffer.
        """
        topic, queue_id, store = request.topic, request.queue_id, self.reader.store
        check_readable(self.topics.get(topic), queue_id)
        min_offset, max_offset = store.min_offset(topic, queue_id), store.max_offset(topic, queue_id)
        if not min_offset <= queue_offset <= max_offset:
            nearest = min_offset if queue_offset < min_offset else max_offset
            return PullResult(_OFFSET_ILLEGAL, nearest, min_offset, max_offset), False
        if request.filter.takes_all and not request.raw:
            result = self._read_run(request, queue_offset, min_offset, max_offset, is_joined)
            if result is None:
                result = self._read_cold(request, queue_offset, min_offset, max_offset, is_joined)
            if result is not None:
                return result, False
        scan = self._scan_raw(request, queue_offset) if request.raw else self._scan(request, queue_offset)
        next_offset = scan.next_offset
        if scan.records:
            return PullResult(_FOUND, next_offset, min_offset, max_offset, tuple(scan.records)), False
        status = PullStatus.ALL_FILTERED if next_offset > request.queue_offset else PullStatus.NOTHING_NEW
        return PullResult(status, next_offset, min_offset, max_offset), scan.at_end

    def _read_run(
        self, request: PullRequest, queue_offset: int, min_offset: int, max_offset: int, is_joined: bool
    ) -> PullResult | None:
        """The ordinary pull: whole records that stand in one segment of the log and take little room; else None."""
        max_messages = max(1, min(request.max_messages, MAX_PULL_MESSAGES))
        max_bytes = min(request.max_bytes, MAX_PULL_BYTES)
        store, topic, queue_id = self.reader.store, request.topic, request.queue_id
        if is_joined:
            together = store.read_together(topic, queue_id, queue_offset, max_messages, max_bytes)
            if together is None:
                return None
            data, count, first, last = together
            return PullResult(_FOUND, queue_offset + count, first, last, (data,), count)
        found = store.read_run(topic, queue_id, queue_offset, max_messages, max_bytes)
        if found is None:
            return None
        data, places = found
        count = len(places)
        records: tuple[bytes | memoryview, ...] = (data,)
        if count > 1:
            ends = [*accumulate(size for _, size, _ in places)]
            records = tuple(data[start:end] for start, end in zip((0, *ends), ends, strict=False))
        return PullResult(_FOUND, queue_offset + count, min_offset, max_offset, records, count)

    def _read_cold(
        self, request: PullRequest, queue_offset: int, min_offset: int, max_offset: int, is_joined: bool
    ) -> PullResult | None:
        """The same of records from the object store, which were verified when they were fetched."""
        max_messages = max(1, min(request.max_messages, MAX_PULL_MESSAGES))
        max_bytes = min(request.max_bytes, MAX_PULL_BYTES)
        run = self.reader.store.read_cold(request.topic, request.queue_id, queue_offset, max_messages, max_bytes)
        if run is None:
            return None
        data, ends = run
        records = (
            (data,) if is_joined else tuple([data[start:end] for start, end in zip((0, *ends), ends, strict=False)])
        )
        return PullResult(_FOUND, queue_offset + len(ends), min_offset, max_offset, records, len(ends))

    def _scan(self, request: PullRequest, queue_offset: int) -> _Scan:
        if self.reader.store.holds_batches(request.topic, request.queue_id):
            return self._scan_batches(request, queue_offset)
        max_messages = max(1, min(request.max_messages, MAX_PULL_MESSAGES))
        max_bytes = min(request.max_bytes, MAX_PULL_BYTES)
        wanted = max_messages if request.filter.takes_all else MAX_SCANNED_ENTRIES
        entries = self.reader.store.entries(request.topic, request.queue_id, queue_offset, wanted)
        records: list[bytes | memoryview] = []
        if request.filter.takes_all:
            fitting = _fitting(entries, max_bytes)
            found = self.reader.store.read_all(fitting)
            if found is not None:
                records += found
                if len(fitting) < len(entries):
                    return _Scan(entries[len(fitting)].queue_offset, records, at_end=False)
                return self._end_scan(request, queue_offset, entries, records)
        size_bytes, work_left = 0, MAX_SCANNED_ENTRIES
        for entry in entries:
            is_full = records and (len(records) >= max_messages or size_bytes + entry.size_bytes > max_bytes)
            if is_full or work_left <= 0:
                return _Scan(entry.queue_offset, records, at_end=False)
            if not request.filter.may_match(entry.tags_code):
                continue
            record = self.reader.record(request.topic, request.queue_id, entry)
            if not request.filter.takes_all:
                work_left -= request.filter.read_cost
            if record is not None and _is_wanted(request.filter, record):
                records.append(record)
                size_bytes += entry.size_bytes
        return self._end_scan(request, queue_offset, entries, records)

    def _scan_batches(self, request: PullRequest, queue_offset: int) -> _Scan:
        """As `_scan`, for a queue of batches."""
        max_messages = max(1, min(request.max_messages, MAX_PULL_MESSAGES))
        max_bytes = min(request.max_bytes, MAX_PULL_BYTES)
        entries = self.reader.store.entries(request.topic, request.queue_id, queue_offset, max_messages)
        records: list[bytes | memoryview] = []
        size_bytes, count, work_left = 0, 0, MAX_SCANNED_ENTRIES
        for entry in entries:
            if records and (count >= max_messages or size_bytes + entry.size_bytes > max_bytes):
                return _Scan(entry.queue_offset, records, at_end=False)
            record = self.reader.record(request.topic, request.queue_id, entry)
            if record is None:
                continue
            if request.filter.takes_all and not is_arrow_batch(record):
                records.append(record)
                size_bytes += entry.size_bytes
                count += entry.message_count
                continue
            batch = self.reader.batch(request.topic, request.queue_id, entry)
            first = max(queue_offset, entry.queue_offset)
            end = entry.queue_offset + (entry.message_count if batch is not None else 0)
            for offset in range(first, end):
                if work_left <= 0 or (records and (count >= max_messages or size_bytes >= max_bytes)):
                    return _Scan(offset, records, at_end=False)
                message = batch.message(offset) if batch is not None else None
                work_left -= request.filter.read_cost
                if message is not None and request.filter.matches(message.properties):
                    records.append(record_of(message))
                    size_bytes += len(records[-1])
                    count += 1
        return self._end_scan(request, queue_offset, entries, records)

    def _scan_raw(self, request: PullRequest, queue_offset: int) -> _Scan:
        """Records as they stand in the log, unverified; those that follow one another there are one slice."""
        entries = self._raw_entries(request, queue_offset)
        pieces: list[bytes | memoryview | list[int]] = []
        for entry in entries:
            last = pieces[-1] if pieces else None
            if isinstance(entry, (CompactedEntry, ColdEntry)):
                record = self.reader.record(request.topic, request.queue_id, entry)
                pieces += [] if record is None else [record]
            elif isinstance(last, list) and sum(last) == entry.log_offset:
                last[1] += entry.size_bytes
            elif entry.size_bytes:
                pieces.append([entry.log_offset, entry.size_bytes])
        records = [self.reader.store.raw(*piece) if isinstance(piece, list) else piece for piece in pieces]
        found = [record for record in records if record is not None]
        return self._end_scan(request, queue_offset, entries, found)

    def _raw_entries(self, request: PullRequest, queue_offset: int) -> list[IndexEntry]:
        """The entries that fit the request, looked up in growing steps because a few batches may fill it."""
        max_bytes = min(request.max_bytes, MAX_RAW_BYTES)
        fitting: list[IndexEntry] = []
        size_bytes, wanted = 0, _FIRST_RAW_RECORDS
        while wanted:
            found = self.reader.store.entries(request.topic, request.queue_id, queue_offset, wanted)
            for entry in found:
                if size_bytes and size_bytes + entry.size_bytes > max_bytes:
                    return fitting
                size_bytes += entry.size_bytes
                fitting.append(entry)
            if len(found) < wanted:
                return fitting
            queue_offset = fitting[-1].queue_offset + fitting[-1].message_count
            wanted = min(_RAW_RECORDS_GROWTH * wanted, MAX_RAW_RECORDS - len(fitting))
        return fitting

    def _end_scan(
        self, request: PullRequest, queue_offset: int, entries: list[IndexEntry], records: list[bytes | memoryview]
    ) -> _Scan:
        """What was found after all of the entries were looked at."""
        if not entries:
            # At the end, or where compaction has left nothing from here on.
            return _Scan(self.reader.store.max_offset(request.topic, request.queue_id), records, at_end=True)
        next_offset = entries[-1].queue_offset + entries[-1].message_count
        at_end = next_offset >= self.reader.store.max_offset(request.topic, request.queue_id)
        return _Scan(next_offset, records, at_end)


def _fitting(entries: list[IndexEntry], max_bytes: int) -> list[IndexEntry]:
    """The first entries whose records fit in `max_bytes`, at least one."""
    size_bytes = 0
    for count, entry in enumerate(entries):
        size_bytes += entry.size_bytes
        if count and size_bytes > max_bytes:
            return entries[:count]
    return entries


def _is_wanted(wanted: MessageFilter, record: bytes | memoryview) -> bool:
    """Looks at the message itself: equal hash codes do not say equal tags."""
    return wanted.takes_all or wanted.matches(decode_properties(split_record(memoryview(record)).properties))
