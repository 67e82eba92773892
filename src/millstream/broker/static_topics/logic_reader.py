"""Reading logic queues and the offsets of groups in them, over all physical queues that one consists of.

An offset in a physical queue lies with that queue, so a move of the logic queue moves none.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace

from millstream.broker.queues.long_polling import LongPolls
from millstream.broker.queues.offsets import OffsetTable
from millstream.broker.queues.puller import MAX_WAIT_MS
from millstream.broker.queues.reader import outside
from millstream.broker.queues.topics import StaticTopics
from millstream.broker.static_topics.segments import Segments
from millstream.model.group import FirstPosition, GroupConfig
from millstream.model.logic_queue import LogicQueue, MappingItem
from millstream.model.operations import (
    PullRequest,
    PullResult,
    PullStatus,
    QueuePoint,
    QueueProgress,
    QueueRange,
    QueueReset,
    ResetRequest,
)
from millstream.protocol.record import place_of, place_record
from millstream.store.message_store import MessageStore

__all__ = ["LogicOffsets", "LogicReader"]


@dataclass(frozen=True, slots=True)
class LogicOffsets:
    """The positions of groups in the logic queues that this broker leads, in logic offsets.

    Every call raises QUEUE_NOT_FOUND, NOT_LEADER_FOR_QUEUE and SEGMENT_UNREACHABLE.
    """

    topics: StaticTopics
    segments: Segments
    offsets: OffsetTable
    reader: LogicReader

    async def committed_offset(self, group: str, topic: str, number: int) -> int | None:
        """Up to where the group has consumed the queue, None if it never did anything there.

        From the newest physical queue back: who has begun to consume one has consumed what lies before it.
        """
        queue = self.topics.led_queue(topic, number)
        found: int | None = None
        for position in range(len(queue.readable) - 1, -1, -1):
            item = queue.readable[position]
            committed = await self.segments.of(topic, item).committed_offset(group)
            if committed is None:
                if found is not None:
                    return found
                continue
            end = await self._end(topic, queue, position)
            if end is not None and committed >= end:
                return queue.readable[position + 1].logic_offset
            found = item.logic(committed)
            if committed > item.start_offset:
                return found
        return found

    async def commit(self, group: str, topic: str, number: int, queue_offset: int) -> None:
        """Set the group's offset; negative ones are passed over. Raises ILLEGAL_OFFSET behind the queue's end."""
        queue = self.topics.led_queue(topic, number)
        if queue_offset < 0:
            return
        if queue_offset > self.reader.end(topic, queue):
            raise outside(topic, await self.reader.range_of(topic, number), queue_offset)
        at = queue.position_of(queue_offset)
        for position in range(len(queue.readable) - 1, at, -1):
            # A group that goes back begins the newer queues again.
            item = queue.readable[position]
            segment = self.segments.of(topic, item)
            committed = await segment.committed_offset(group)
            if committed is not None and committed > item.start_offset:
                await segment.commit(group, item.start_offset)
        item, end = queue.readable[at], await self._end(topic, queue, at)
        physical = item.physical(queue_offset)
        await self.segments.of(topic, item).commit(group, physical if end is None else min(physical, end))
        before = await self._end(topic, queue, at - 1) if at and physical == item.start_offset else None
        if before is not None:
            # At the seam: the older queue is consumed, which nothing else says.
            older = self.segments.of(topic, queue.readable[at - 1])
            if (await older.committed_offset(group) or 0) < before:
                await older.commit(group, before)

    async def _end(self, topic: str, queue: LogicQueue, position: int) -> int | None:
        """The physical offset behind the last message of an item; None for the leader, which has no end yet."""
        limit = queue.limit(position)
        if limit is None:
            return None
        _, end = await self.segments.of(topic, queue.readable[position]).bounds()
        return min(limit, end)

    async def reset(self, request: ResetRequest) -> list[QueueReset]:
        """Put the group to another place, in the queues that this broker leads or in one of them.

        All parts of a queue are put where they belong: older ones behind their end, newer ones to their beginning.
        Raises ILLEGAL_OFFSET.
        """
        mapping = self.topics.find(request.topic)
        led = [] if mapping is None else [*mapping.led_queues]
        done = []
        for number in led if request.queue_id is None else [request.queue_id]:
            queue = self.topics.led_queue(request.topic, number)
            target = await self.find(request.topic, number, request.point, request.value)
            before = await self.committed_offset(request.group, request.topic, number)
            for item in queue.readable:
                segment = self.segments.of(request.topic, item)
                first, end = await segment.bounds()
                await segment.reset(request.group, max(min(item.physical(target), end), first))
            done.append(QueueReset(number, target if before is None else before, target, 0))
        return done

    async def progress(self, group: str, topic: str) -> list[QueueProgress]:
        """How far the group is in each queue that this broker leads, over all of its parts. Raises GROUP_NOT_FOUND."""
        mapping = self.topics.find(topic)
        found = []
        for number in [] if mapping is None else mapping.led_queues:
            queue = self.topics.led_queue(topic, number)
            parts = [(item, await self.segments.of(topic, item).progress(group)) for item in queue.readable]
            found.append(_join_progress(number, parts))
        return found

    async def first_offset(self, group: GroupConfig, topic: str, number: int) -> int:
        """Where the group would begin in a queue that it has no position in."""
        match group.first_position:
            case FirstPosition.FIRST:
                return await self.find(topic, number, QueuePoint.FIRST)
            case FirstPosition.LAST:
                return await self.find(topic, number, QueuePoint.LAST)
            case FirstPosition.TIME:
                return await self.find(topic, number, QueuePoint.TIME, group.first_time_ms)

    async def find(self, topic: str, number: int, point: QueuePoint, value: int = 0) -> int:
        """The offset of a place; ILLEGAL_OFFSET where it is outside of the queue."""
        if point is QueuePoint.TIME:
            return await self.reader.offset_by_time(topic, number, value)
        held = await self.reader.range_of(topic, number)
        if point is QueuePoint.FIRST:
            return held.min_offset
        if point is QueuePoint.LAST:
            return held.max_offset
        if not held.min_offset <= value <= held.max_offset:
            raise outside(topic, held, value)
        return value


def _join_progress(number: int, parts: list[tuple[MappingItem, QueueProgress]]) -> QueueProgress:
    """The progress in a queue of that number: the group is in the first part of which something is left."""
    left = [(item, part) for item, part in parts if part.lag] or parts[-1:]
    (first, low), (last, high) = parts[0], parts[-1]
    item, place = left[0]
    return replace(
        place,
        queue_id=number,
        min_offset=first.logic(low.min_offset),
        max_offset=last.logic(high.max_offset),
        committed=item.logic(place.committed),
        next_offset=item.logic(place.next_offset),
        ready=sum(part.ready for _, part in parts),
        in_flight=sum(part.in_flight for _, part in parts),
    )


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
