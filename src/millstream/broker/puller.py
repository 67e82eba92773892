"""Pull: read one queue from an offset, and wait for what is not there yet."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from millstream.broker.long_poll import LongPolls
from millstream.broker.reader import MAX_SCANNED_ENTRIES, Reader, check_readable
from millstream.broker.topics import TopicRegistry
from millstream.model.filter import TagFilter
from millstream.model.operations import PullRequest, PullResult, PullStatus
from millstream.protocol.record import decode_record

__all__ = ["MAX_PULL_BYTES", "MAX_PULL_MESSAGES", "MAX_WAIT_MS", "Puller"]

MAX_PULL_MESSAGES = 16_384
"""Messages of one pull at most, whatever it asks for."""

MAX_PULL_BYTES = 8 * 1024 * 1024
"""Bytes of one pull at most, whatever it asks for; the first message is given even if it alone is larger."""

MAX_WAIT_MS = 60_000
"""Milliseconds that a request waits for messages at most, whatever it asks for."""


@dataclass(slots=True)
class _Scan:
    """What one look at the queue found."""

    next_offset: int
    records: list[bytes | memoryview]
    at_end: bool


@dataclass(frozen=True, slots=True)
class Puller:
    """Answers pulls."""

    topics: TopicRegistry
    reader: Reader
    polls: LongPolls

    async def pull(self, request: PullRequest) -> PullResult:
        """Messages from `queue_offset` on, after at most `wait_ms` where nothing matches.

        OFFSET_ILLEGAL with the nearest legal offset where the offset is outside of the queue; ALL_FILTERED where
        messages were passed over: go on at `next_offset`. Raises TOPIC_NOT_FOUND, QUEUE_NOT_FOUND, FORBIDDEN,
        TOO_MANY_REQUESTS.
        """
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + min(request.wait_ms, MAX_WAIT_MS) / 1000
        queue_offset = request.queue_offset
        while True:
            check_readable(self.topics.get(request.topic), request.queue_id)
            store = self.reader.store
            min_offset = store.min_offset(request.topic, request.queue_id)
            max_offset = store.max_offset(request.topic, request.queue_id)
            if not min_offset <= queue_offset <= max_offset:
                nearest = min_offset if queue_offset < min_offset else max_offset
                return PullResult(PullStatus.OFFSET_ILLEGAL, nearest, min_offset, max_offset)
            scan = self._scan(request, queue_offset)
            queue_offset = scan.next_offset
            status = PullStatus.FOUND
            if not scan.records:
                remaining_s = deadline_s - loop.time()
                if scan.at_end and remaining_s > 0:
                    if await self.polls.wait_pull(request.topic, request.queue_id, remaining_s):
                        continue
                    max_offset = store.max_offset(request.topic, request.queue_id)
                passed_over = queue_offset > request.queue_offset
                status = PullStatus.ALL_FILTERED if passed_over else PullStatus.NOTHING_NEW
            return PullResult(status, queue_offset, min_offset, max_offset, tuple(scan.records))

    def _scan(self, request: PullRequest, queue_offset: int) -> _Scan:
        max_messages = max(1, min(request.max_messages, MAX_PULL_MESSAGES))
        max_bytes = min(request.max_bytes, MAX_PULL_BYTES)
        tag_filter = request.filter
        wanted = MAX_SCANNED_ENTRIES if tag_filter.tags else max_messages
        entries = self.reader.store.entries(request.topic, request.queue_id, queue_offset, wanted)
        records: list[bytes | memoryview] = []
        size_bytes = 0
        for entry in entries:
            if records and (len(records) >= max_messages or size_bytes + entry.size_bytes > max_bytes):
                return _Scan(entry.queue_offset, records, at_end=False)
            if not tag_filter.may_match(entry.tags_code):
                continue
            record = self.reader.record(request.topic, request.queue_id, entry)
            if record is not None and _has_tag(tag_filter, record):
                records.append(record)
                size_bytes += entry.size_bytes
        if not entries:
            return _Scan(queue_offset, records, at_end=True)
        next_offset = entries[-1].queue_offset + 1
        at_end = next_offset >= self.reader.store.max_offset(request.topic, request.queue_id)
        return _Scan(next_offset, records, at_end)


def _has_tag(tag_filter: TagFilter, record: bytes | memoryview) -> bool:
    """Equal hash codes do not say equal tags."""
    return not tag_filter.tags or tag_filter.matches(decode_record(record, verify=False).tag)
