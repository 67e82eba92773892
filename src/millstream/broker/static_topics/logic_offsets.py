"""Where groups stand in logic queues. A position in a physical queue lies with that queue, so a move moves none."""

from __future__ import annotations

from dataclasses import dataclass, replace

from millstream.broker.queues.offsets import OffsetTable
from millstream.broker.queues.queues import outside
from millstream.broker.queues.static_topics import StaticTopics
from millstream.broker.static_topics.logic_reader import LogicReader
from millstream.broker.static_topics.segments import Segments
from millstream.model.group import FirstPosition, GroupConfig
from millstream.model.logic_queue import LogicQueue, MappingItem
from millstream.model.operations import QueuePoint, QueueProgress, QueueReset, ResetRequest

__all__ = ["LogicOffsets"]


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
