"""Where groups stand in logic queues. A position in a physical queue lies with that queue, so a move moves none."""

from __future__ import annotations

from dataclasses import dataclass

from millstream.broker.logic_reader import LogicReader
from millstream.broker.offsets import OffsetTable
from millstream.broker.segments import Segments
from millstream.broker.static_topics import StaticTopics
from millstream.model.errors import ConsumeRefused
from millstream.model.group import FirstPosition, GroupConfig
from millstream.model.logic_queue import LogicQueue
from millstream.model.operations import QueuePoint

__all__ = ["LogicPositions"]


@dataclass(frozen=True, slots=True)
class LogicPositions:
    """The positions of groups in the logic queues that this broker leads, in logic offsets.

    Every call raises QUEUE_NOT_FOUND, NOT_LEADER_FOR_QUEUE and SEGMENT_UNREACHABLE.
    """

    topics: StaticTopics
    segments: Segments
    offsets: OffsetTable
    reader: LogicReader

    async def committed(self, group: str, topic: str, number: int) -> int | None:
        """Up to where the group has consumed the queue, None if it never did anything there.

        From the newest physical queue back: who has begun to consume one has consumed what lies before it.
        """
        queue = self.topics.led(topic, number)
        found: int | None = None
        for position in range(len(queue.readable) - 1, -1, -1):
            item = queue.readable[position]
            committed = await self.segments.of(topic, item).committed(group)
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
        """Set the group's offset; negative ones are passed over."""
        queue = self.topics.led(topic, number)
        if queue_offset < 0:
            return
        at = queue.position_of(queue_offset)
        for position in range(len(queue.readable) - 1, at, -1):
            # A group that goes back begins the newer queues again.
            item = queue.readable[position]
            segment = self.segments.of(topic, item)
            committed = await segment.committed(group)
            if committed is not None and committed > item.start_offset:
                await segment.commit(group, item.start_offset)
        item, end = queue.readable[at], await self._end(topic, queue, at)
        physical = item.physical(queue_offset)
        await self.segments.of(topic, item).commit(group, physical if end is None else min(physical, end))
        before = await self._end(topic, queue, at - 1) if at and physical == item.start_offset else None
        if before is not None:
            # At the seam: the older queue is consumed, which nothing else says.
            older = self.segments.of(topic, queue.readable[at - 1])
            if (await older.committed(group) or 0) < before:
                await older.commit(group, before)

    async def _end(self, topic: str, queue: LogicQueue, position: int) -> int | None:
        """The physical offset behind the last message of an item; None for the leader, which has no end yet."""
        limit = queue.limit(position)
        if limit is None:
            return None
        _, end = await self.segments.of(topic, queue.readable[position]).bounds()
        return min(limit, end)

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
            offsets = f"{held.min_offset} to {held.max_offset}"
            words = f"Queue {number} of {topic!r} has the offsets {offsets}; {value} is outside."
            raise ConsumeRefused("ILLEGAL_OFFSET", words)
        return value
