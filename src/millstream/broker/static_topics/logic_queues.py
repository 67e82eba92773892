"""The queues of topics as clients know them: logic ones where the topic is static, else the broker's own."""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from millstream.broker.pop.popper import Popper
from millstream.broker.queues.long_polling import LongPolls
from millstream.broker.queues.topics import StaticTopics, TopicRegistry, check_static_topic
from millstream.broker.static_topics.logic_pops import LogicPops
from millstream.broker.static_topics.logic_reader import LogicOffsets, LogicReader
from millstream.broker.static_topics.segments import Segments
from millstream.model.errors import NameRefused
from millstream.model.handles import ReceiptHandle
from millstream.model.logic_queue import TopicMapping
from millstream.model.operations import (
    AckRequest,
    ChangeInvisibleRequest,
    PoppedMessage,
    PopRequest,
    PullRequest,
    PullResult,
    PullStatus,
    QueueReset,
    ResetRequest,
)
from millstream.model.topic import TopicConfig
from millstream.protocol.record import place_of, place_record
from millstream.store.appender import Appender

__all__ = ["LogicQueues"]

_Held = TypeVar("_Held", AckRequest, ChangeInvisibleRequest)


class LogicQueues:
    """The logic queues of one broker: changed by those who administer them, read and popped by clients.

    Calls about a topic that is not static raise NOT_A_STATIC_TOPIC; ask `is_static` first.
    """

    def __init__(
        self,
        topics: TopicRegistry,
        static_topics: StaticTopics,
        segments: Segments,
        popper: Popper,
        polls: LongPolls,
        appender: Appender,
    ) -> None:
        self._topics = topics
        self._static = static_topics
        self._polls = polls
        self._appender = appender
        self._popper = popper
        self.segments = segments
        self.reader = LogicReader(static_topics, segments, polls, segments.queues.store)
        self.group_offsets = LogicOffsets(static_topics, segments, segments.offsets, self.reader)
        self.pops = LogicPops(static_topics, segments, popper, segments.queues.store)

    def is_static(self, topic: str) -> bool:
        """Whether clients know the topic's queues as logic ones."""
        return self._static.find(topic) is not None

    async def change(self, config: TopicConfig, mapping: TopicMapping, *, force: bool = False) -> None:
        """Create or change a static topic. When this returns, queues that moved away will hold nothing new.

        `config` counts this broker's own queues. Raises ILLEGAL_STATIC_TOPIC, NOT_A_STATIC_TOPIC, STATIC_TOPIC_STATE.
        """
        check_static_topic(config)
        present = self._topics.find(config.name)
        if present is not None and not self.is_static(config.name):
            raise NameRefused("NOT_A_STATIC_TOPIC", f"The topic {config.name!r} is there with queues of its brokers.")
        own = [
            item.queue_id
            for queue in mapping.queues.values()
            for item in queue.items
            if item.broker_name == mapping.broker_name
        ]
        least = max((queue_id + 1 for queue_id in own), default=0)
        if min(config.read_queues, config.write_queues) < least or mapping.topic != config.name:
            words = (
                f"The topic {config.name!r} would have fewer queues at {mapping.broker_name!r} than its mapping uses."
            )
            raise NameRefused("STATIC_TOPIC_STATE", words)
        # The mapping first: a topic without one would be taken for one whose queues clients may write.
        self._static.update(mapping, force=force)
        self._topics.put_static(config)
        self.pops.forget(topic=config.name)
        self._polls.wake_topic(config.name)
        # Behind all that was accepted before: what is read of the closed queues from now on is all of them.
        await self._appender.append_many([])

    async def pull(self, request: PullRequest) -> PullResult:
        """As `QueueRouter.pull`, for a static topic."""
        queue = self._static.led_queue(request.topic, request.queue_id)
        moved = self.segments.offsets.take_reset(request.group, request.topic, queue.leader.queue_id)
        if moved is not None:
            offset = await self.group_offsets.committed_offset(request.group, request.topic, request.queue_id)
            if offset is not None and offset != request.queue_offset:
                held = await self.reader.range_of(request.topic, request.queue_id)
                return PullResult(PullStatus.OFFSET_ILLEGAL, offset, held.min_offset, held.max_offset)
        return await self.reader.pull(request)

    async def reset(self, request: ResetRequest) -> list[QueueReset]:
        """Put a group to another place of a static topic; see `LogicOffsets.reset`."""
        resets = await self.group_offsets.reset(request)
        self.pops.forget(topic=request.topic, group=request.group)
        return resets

    def pop(self, request: PopRequest) -> Coroutine[Any, Any, list[PoppedMessage]]:
        """As `Popper.pop`, for any topic."""
        return (self._popper if self._static.find(request.topic) is None else self.pops).pop(request)

    def physical(self, request: _Held) -> _Held:
        """The request with the handle that the ledger of this broker's own queue knows."""
        if not self.is_static(request.topic):
            return request
        return replace(request, handle=self.pops.physical_handle(request.topic, request.handle))

    def client_handle_of(self, request: ChangeInvisibleRequest, handle: ReceiptHandle) -> ReceiptHandle:
        """A new handle of the ledger as clients know it, in place of the request's one."""
        if not self.is_static(request.topic):
            return handle
        return replace(handle, queue_id=request.handle.queue_id, queue_offset=request.handle.queue_offset)

    def renumber(self, topic: str, records: Sequence[bytes | memoryview]) -> list[bytes | memoryview]:
        """Records of this broker's own queues with the numbers that clients know."""
        mapping = self._static.find(topic)
        if mapping is None:
            return list(records)
        found = []
        for record in records:
            queue_id, queue_offset = place_of(record)
            queue = mapping.find(queue_id)
            if queue is not None:
                item = queue.readable[queue.own(mapping.broker_name, queue_id) or 0]
                record = place_record(record, queue.number, item.logic(queue_offset))
            found.append(record)
        return found
