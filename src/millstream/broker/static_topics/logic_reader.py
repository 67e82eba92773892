"""Reading logic queues: pulls, ranges and offsets by time over all the physical queues that one consists of."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace

from millstream.broker.queues.long_polling import LongPolls
from millstream.broker.queues.puller import MAX_WAIT_MS
from millstream.broker.queues.static_topics import StaticTopics
from millstream.broker.static_topics.segments import Segments
from millstream.model.logic_queue import LogicQueue
from millstream.model.operations import PullRequest, PullResult, PullStatus, QueueRange
from millstream.protocol.placed_record import place_of, place_record
from millstream.store.message_store import MessageStore

__all__ = ["LogicReader"]


@dataclass(frozen=True, slots=True)
class LogicReader:
    """Answers readers of the logic queues that this broker leads; what its peers hold of them is asked of the peers.

    Every call raises QUEUE_NOT_FOUND, NOT_LEADER_FOR_QUEUE and SEGMENT_UNREACHABLE.
    """

    topics: StaticTopics
    segments: Segments
    polls: LongPolls
    store: MessageStore

    async def pull(self, request: PullRequest) -> PullResult:
        """As `Puller.pull`, in logic offsets. A wait ends where the queue is moved, so that its reader follows it."""
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + min(request.wait_ms, MAX_WAIT_MS) / 1000
        while True:
            queue = self.topics.led_queue(request.topic, request.queue_id)
            result = await self._look(queue, request)
            remaining_s = deadline_s - loop.time()
            is_over = result.records or result.status is PullStatus.OFFSET_ILLEGAL
            if is_over or result.next_offset < result.max_offset or remaining_s <= 0:
                return result
            if not await self.polls.wait_pull(request.topic, queue.leader.queue_id, remaining_s):
                return result
            request = replace(request, queue_offset=result.next_offset)

    async def range_of(self, topic: str, number: int) -> QueueRange:
        """What can be read of one logic queue."""
        queue = self.topics.led_queue(topic, number)
        leader = queue.leader
        first = await self._first(topic, queue)
        last_ms = self.store.last_store_timestamp_ms(topic, leader.queue_id)
        return QueueRange(number, first, self.end(topic, queue), last_ms)

    async def ranges(self, topic: str) -> list[QueueRange]:
        """What can be read of each logic queue that this broker leads."""
        mapping = self.topics.find(topic)
        return [] if mapping is None else [await self.range_of(topic, number) for number in mapping.led_queues]

    async def offset_by_time(self, topic: str, number: int, timestamp_ms: int, upper: bool = False) -> int:
        """As `Queues.offset_by_time`, in logic offsets."""
        queue = self.topics.led_queue(topic, number)
        found = queue.items[0].logic_offset
        for position, item in enumerate(queue.readable):
            segment = self.segments.of(topic, item)
            first, end = await segment.bounds()
            if first >= end and position + 1 < len(queue.readable):
                continue
            offset = await segment.offset_by_time(timestamp_ms, upper)
            if upper:
                # The first queue that begins later than the time ends the search.
                if position and await segment.offset_by_time(timestamp_ms + 1, False) == first:
                    break
                found = item.logic(offset)
            elif offset < end or position + 1 == len(queue.readable):
                return item.logic(offset)
        return found

    async def first_stored_ms(self, topic: str, number: int) -> int | None:
        """When the first message that there is was stored; None for a queue without messages."""
        for item in self.topics.led_queue(topic, number).readable:
            stored_ms = await self.segments.of(topic, item).first_stored_ms()
            if stored_ms is not None:
                return stored_ms
        return None

    async def _look(self, queue: LogicQueue, request: PullRequest) -> PullResult:
        position = queue.position_of(request.queue_offset)
        item, limit = queue.readable[position], queue.limit(position)
        physical = item.physical(request.queue_offset)
        asked = replace(request, queue_id=item.queue_id, queue_offset=physical)
        if limit is not None:
            asked = replace(asked, max_messages=max(1, min(request.max_messages, limit - physical)))
        read = await self.segments.of(request.topic, item).pull(asked)
        status, next_offset, records = read.status, read.next_offset, read.records
        if request.queue_offset < item.logic_offset or (position == 0 and physical < read.min_offset < read.max_offset):
            status, next_offset, records = PullStatus.OFFSET_ILLEGAL, read.min_offset, ()
        elif limit is not None and not records:
            # Read to its end, or emptied by retention meanwhile: the queue goes on in the next item.
            status = PullStatus.ALL_FILTERED
            next_offset = limit if next_offset >= read.max_offset else max(next_offset, read.min_offset)
        is_over = limit is not None and next_offset >= limit
        return PullResult(
            status,
            queue.readable[position + 1].logic_offset if is_over else item.logic(next_offset),
            item.logic(read.min_offset) if position == 0 else queue.items[0].logic_offset,
            self.end(request.topic, queue),
            tuple(place_record(record, queue.number, item.logic(place_of(record)[1])) for record in records),
        )

    async def _first(self, topic: str, queue: LogicQueue) -> int:
        """The first offset that there is; what retention emptied is passed over."""
        for item in queue.readable[:-1]:
            first, end = await self.segments.of(topic, item).bounds()
            if first < end:
                return item.logic(first)
        return queue.leader.logic(self.store.min_offset(topic, queue.leader.queue_id))

    def end(self, topic: str, queue: LogicQueue) -> int:
        return queue.leader.logic(self.store.max_offset(topic, queue.leader.queue_id))
