"""Reads queues by offset, for clients that manage their own offsets."""

from __future__ import annotations

from dataclasses import dataclass

from millstream.model.errors import ConsumeRefused
from millstream.model.filter import ALL, MessageFilter
from millstream.model.group import check_group_name
from millstream.model.message import StoredMessage
from millstream.model.operations import PullRequest, PullStatus, QueuePoint
from millstream.model.topic import check_topic_name
from millstream.protocol.batches import messages_of
from millstream.proxy.backend import BrokerBackend

__all__ = ["MAX_PULL_BYTES", "MAX_PULL_MESSAGES", "MAX_WAITING_PULLS", "ClientQueue", "Pull", "PulledMessages", "Pulls"]

MAX_PULL_MESSAGES = 256
"""Messages of one pull at most; larger requests are cut."""

MAX_PULL_BYTES = 4 * 1024 * 1024
"""Bytes of one pull's records at most; the first message is given even if it alone is larger."""

MAX_WAITING_PULLS = 50_000
"""Pulls that wait for messages at the same time at most."""


@dataclass(frozen=True, slots=True)
class ClientQueue:
    """One queue as clients name it; a blank broker is the one that is there."""

    broker_name: str
    topic: str
    queue_id: int


@dataclass(frozen=True, slots=True)
class Pull:
    """A wish to read a queue from an offset on, waiting for up to `wait_ms`."""

    group: str
    queue: ClientQueue
    offset: int
    max_messages: int = MAX_PULL_MESSAGES
    filter: MessageFilter = ALL
    wait_ms: int = 0
    max_bytes: int = MAX_PULL_BYTES


@dataclass(frozen=True, slots=True)
class PulledMessages:
    """Messages in their order, and the offset to go on at. `offset_is_legal` False: the queue has no such offset."""

    messages: tuple[StoredMessage, ...]
    next_offset: int
    offset_is_legal: bool = True


class Pulls:
    """The operations over one backend."""

    def __init__(self, backend: BrokerBackend) -> None:
        self._backend = backend
        self._waiting = 0

    async def pull(self, wish: Pull) -> PulledMessages:
        """Messages for the wish; none after its waiting time."""
        self._check(wish.queue, wish.group)
        if self._waiting >= MAX_WAITING_PULLS:
            raise ConsumeRefused("TOO_MANY_REQUESTS", f"{self._waiting} pulls are waiting, which is the limit.")
        most = min(max(wish.max_messages, 1), MAX_PULL_MESSAGES)
        request = PullRequest(
            group=wish.group,
            topic=wish.queue.topic,
            queue_id=wish.queue.queue_id,
            queue_offset=wish.offset,
            max_messages=most,
            max_bytes=min(wish.max_bytes, MAX_PULL_BYTES),
            filter=wish.filter,
            wait_ms=wish.wait_ms,
        )
        self._waiting += 1
        try:
            result = await self._backend.pull(wish.queue.broker_name, request)
        finally:
            self._waiting -= 1
        if result.status is PullStatus.OFFSET_ILLEGAL:
            return PulledMessages((), result.next_offset, offset_is_legal=False)
        found = [message for record in result.records for message in messages_of(record, wish.offset)]
        # A batch may hold more than was asked for.
        next_offset = found[most - 1].queue_offset + 1 if len(found) > most else result.next_offset
        return PulledMessages(tuple(found[:most]), next_offset)

    async def update_offset(self, group: str, queue: ClientQueue, offset: int) -> None:
        """Keep the group's offset; ILLEGAL_OFFSET for one beyond the queue's end, or a negative one."""
        self._check(queue, group)
        end = await self._backend.find_offset(queue.broker_name, queue.topic, queue.queue_id, QueuePoint.LAST)
        if not 0 <= offset <= end:
            words = f"Queue {queue.queue_id} of {queue.topic!r} ends at {end}; {offset} is no offset of it."
            raise ConsumeRefused("ILLEGAL_OFFSET", words)
        await self._backend.commit_offset(queue.broker_name, group, queue.topic, queue.queue_id, offset)

    async def get_offset(self, group: str, queue: ClientQueue) -> int:
        """The group's offset; OFFSET_NOT_FOUND where it has none."""
        self._check(queue, group)
        found = await self._backend.group_offset(queue.broker_name, group, queue.topic, queue.queue_id)
        if found is None:
            words = f"The group {group!r} has no position in queue {queue.queue_id} of {queue.topic!r}."
            raise ConsumeRefused("OFFSET_NOT_FOUND", words)
        return found

    async def query_offset(self, queue: ClientQueue, point: QueuePoint, time_ms: int = 0) -> int:
        """The offset of a place of the queue."""
        check_topic_name(queue.topic)
        return await self._backend.find_offset(queue.broker_name, queue.topic, queue.queue_id, point, time_ms)

    def _check(self, queue: ClientQueue, group: str) -> None:
        check_topic_name(queue.topic)
        check_group_name(group)
