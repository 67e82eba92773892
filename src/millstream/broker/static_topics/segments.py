"""The physical queues of a logic queue: those of this broker, and those of its peers."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

from millstream.broker.queues.group_offsets import GroupOffsets
from millstream.broker.queues.offsets import OffsetTable
from millstream.broker.queues.puller import QueuePuller
from millstream.broker.queues.reader import Queues
from millstream.broker.static_topics.peers import Peers
from millstream.model.errors import ConsumeRefused, NameRefused
from millstream.model.logic_queue import MappingItem
from millstream.model.operations import (
    PullRequest,
    PullResult,
    PullStatus,
    QueuePoint,
    QueueProgress,
    ResetRequest,
)
from millstream.protocol.record import iterate_records
from millstream.protocol.remoting.administration.consumption import decode_consume_statistics
from millstream.protocol.remoting.administration.static_topics import PHYSICAL
from millstream.protocol.remoting.codes import RequestCode, ResponseCode
from millstream.protocol.remoting.command import RemotingCommand
from millstream.protocol.remoting.fields import integer
from millstream.protocol.remoting.messages.offsets import (
    GroupOffset,
    OffsetQuery,
    TimeCall,
    encode_group_offset,
    encode_offset_query,
    encode_time,
)
from millstream.protocol.remoting.messages.pulls import PullCall, encode_pull
from millstream.protocol.remoting.refusals import error_of

__all__ = ["OwnSegment", "PeerSegment", "Segment", "Segments"]

_STATUSES: dict[int, PullStatus] = {
    ResponseCode.SUCCESS: PullStatus.FOUND,
    ResponseCode.PULL_NOT_FOUND: PullStatus.NOTHING_NEW,
    ResponseCode.PULL_RETRY_IMMEDIATELY: PullStatus.ALL_FILTERED,
    ResponseCode.PULL_OFFSET_MOVED: PullStatus.OFFSET_ILLEGAL,
}


class Segment(Protocol):
    """One physical queue. All offsets are its own; what a peer holds raises SEGMENT_UNREACHABLE where it is away."""

    async def pull(self, request: PullRequest) -> PullResult:
        """Read without waiting; the request's queue is the physical one."""
        ...

    async def bounds(self) -> tuple[int, int]:
        """The first offset that can be read and the one behind the last."""
        ...

    async def offset_by_time(self, timestamp_ms: int, upper: bool) -> int:
        """As `Queues.offset_by_time`."""
        ...

    async def first_stored_ms(self) -> int | None:
        """When its first message was stored, None where it has none."""
        ...

    async def committed_offset(self, group: str) -> int | None:
        """Up to where a group has consumed it, None where the group never did anything there."""
        ...

    async def commit(self, group: str, queue_offset: int) -> None:
        """Set the group's offset."""
        ...

    async def reset(self, group: str, queue_offset: int) -> None:
        """Put the group to an offset, forward or back; what is in flight is discarded. It is on the disk then."""
        ...

    async def progress(self, group: str) -> QueueProgress:
        """How far the group is; GROUP_NOT_FOUND."""
        ...


@dataclass(frozen=True, slots=True)
class OwnSegment:
    """A queue of this broker."""

    topic: str
    queue_id: int
    queues: Queues
    puller: QueuePuller
    offsets: OffsetTable
    group_offsets: GroupOffsets

    async def pull(self, request: PullRequest) -> PullResult:
        """See `Segment`."""
        return await self.puller.pull(replace(request, queue_id=self.queue_id, wait_ms=0, raw=False))

    async def bounds(self) -> tuple[int, int]:
        """See `Segment`."""
        held = self.queues.range_of(self.topic, self.queue_id)
        return held.min_offset, held.max_offset

    async def offset_by_time(self, timestamp_ms: int, upper: bool) -> int:
        """See `Segment`."""
        return await self.queues.find_time(self.topic, self.queue_id, timestamp_ms, upper)

    async def first_stored_ms(self) -> int | None:
        """See `Segment`."""
        return self.queues.first_stored_ms(self.topic, self.queue_id)

    async def committed_offset(self, group: str) -> int | None:
        """See `Segment`."""
        return self.offsets.committed_offset(group, self.topic, self.queue_id)

    async def commit(self, group: str, queue_offset: int) -> None:
        """See `Segment`."""
        self.offsets.commit(group, self.topic, self.queue_id, queue_offset)

    async def reset(self, group: str, queue_offset: int) -> None:
        """See `Segment`."""
        self.group_offsets.reset(ResetRequest(group, self.topic, QueuePoint.OFFSET, queue_offset, self.queue_id))

    async def progress(self, group: str) -> QueueProgress:
        """See `Segment`."""
        return self.group_offsets.progress_of(group, self.topic, self.queue_id)


@dataclass(frozen=True, slots=True)
class PeerSegment:
    """A queue of another broker."""

    topic: str
    queue_id: int
    broker_name: str
    peers: Peers | None

    async def pull(self, request: PullRequest) -> PullResult:
        """See `Segment`."""
        call = PullCall(
            request.group,
            self.topic,
            self.queue_id,
            request.queue_offset,
            request.max_messages,
            request.max_bytes,
            request.filter,
        )
        answer = await self.ask(RequestCode.PULL_MESSAGE, encode_pull(call))
        status = _STATUSES.get(answer.code)
        if status is None:
            raise error_of(answer, self.broker_name)
        next_offset, min_offset, max_offset = (
            integer(answer.ext, name) for name in ("nextBeginOffset", "minOffset", "maxOffset")
        )
        return PullResult(status, next_offset, min_offset, max_offset, tuple(iterate_records(answer.body)))

    async def bounds(self) -> tuple[int, int]:
        """See `Segment`."""
        return await self._offset(RequestCode.GET_MIN_OFFSET, {}), await self._offset(RequestCode.GET_MAX_OFFSET, {})

    async def offset_by_time(self, timestamp_ms: int, upper: bool) -> int:
        """See `Segment`."""
        ext = encode_time(TimeCall(self.topic, self.queue_id, timestamp_ms, upper))
        return await self._offset(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, ext)

    async def first_stored_ms(self) -> int | None:
        """See `Segment`."""
        answer = self._check_answer(await self.ask(RequestCode.GET_EARLIEST_MSG_STORE_TIME, {}))
        stored_ms = integer(answer.ext, "timestamp")
        return None if stored_ms < 0 else stored_ms

    async def committed_offset(self, group: str) -> int | None:
        """See `Segment`."""
        ext = encode_offset_query(OffsetQuery(group, self.topic, self.queue_id, or_first=False))
        answer = await self.ask(RequestCode.QUERY_CONSUMER_OFFSET, ext)
        if answer.code == ResponseCode.QUERY_NOT_FOUND:
            return None
        return integer(self._check_answer(answer).ext, "offset")

    async def commit(self, group: str, queue_offset: int) -> None:
        """See `Segment`."""
        ext = encode_group_offset(GroupOffset(group, self.topic, self.queue_id, queue_offset))
        self._check_answer(await self.ask(RequestCode.UPDATE_CONSUMER_OFFSET, ext))

    async def reset(self, group: str, queue_offset: int) -> None:
        """See `Segment`."""
        ext = {"group": group, "timestamp": "0", "isForce": "true", "offset": str(queue_offset)}
        self._check_answer(await self.ask(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, ext))

    async def progress(self, group: str) -> QueueProgress:
        """See `Segment`."""
        answer = self._check_answer(await self.ask(RequestCode.GET_CONSUME_STATS, {"consumerGroup": group}))
        for row in decode_consume_statistics(answer.body):
            if row.progress.queue_id == self.queue_id:
                return row.progress
        raise NameRefused("QUEUE_NOT_FOUND", f"{self.broker_name!r} tells nothing of its queue {self.queue_id}.")

    async def ask(self, code: RequestCode, ext: dict[str, str]) -> RemotingCommand:
        """The broker's answer to a request about this queue, whatever its code."""
        if self.peers is None:
            words = f"Queue {self.queue_id} of {self.topic!r} lies at broker {self.broker_name!r}, which is not known."
            raise ConsumeRefused("SEGMENT_UNREACHABLE", words)
        place = {"topic": self.topic, "queueId": str(self.queue_id), "bname": self.broker_name}
        rest = {name: value for name, value in ext.items() if name not in place}
        return await self.peers.ask(self.broker_name, RemotingCommand(code, {**rest, **place, **PHYSICAL}))

    async def _offset(self, code: RequestCode, ext: dict[str, str]) -> int:
        return integer(self._check_answer(await self.ask(code, ext)).ext, "offset")

    def _check_answer(self, answer: RemotingCommand) -> RemotingCommand:
        if answer.code != ResponseCode.SUCCESS:
            raise error_of(answer, self.broker_name)
        return answer


@dataclass(slots=True)
class Segments:
    """Finds the segment of a mapping item, as seen from one broker."""

    broker_name: str
    queues: Queues
    puller: QueuePuller
    offsets: OffsetTable
    group_offsets: GroupOffsets
    peers: Peers | None = None

    def of(self, topic: str, item: MappingItem) -> Segment:
        """The item's physical queue."""
        if item.broker_name == self.broker_name:
            return OwnSegment(topic, item.queue_id, self.queues, self.puller, self.offsets, self.group_offsets)
        return PeerSegment(topic, item.queue_id, item.broker_name, self.peers)
