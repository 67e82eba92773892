"""The interface of a proxy to its brokers, in the same process or over connections."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from millstream.model.commands import RecoverOrphanedTransaction
from millstream.model.errors import NameRefused
from millstream.model.group import GroupConfig
from millstream.model.handles import ReceiptHandle
from millstream.model.lite import LiteSync
from millstream.model.message import OutgoingMessage
from millstream.model.operations import (
    AckRequest,
    ChangeInvisibleRequest,
    PoppedMessage,
    PopRequest,
    PullRequest,
    PullResult,
    QueuePoint,
    QueueProgress,
    Resolution,
    SendReceipt,
)
from millstream.model.topic import MessageType, Permission, TopicConfig, check_topic_name, is_system_topic

__all__ = ["BrokerBackend", "RouteQueue", "TopicRoute", "check_removable"]


@dataclass(frozen=True, slots=True)
class RouteQueue:
    """One queue of a topic on a master broker, and what clients may do with it."""

    broker_name: str
    queue_id: int
    permission: Permission


@dataclass(frozen=True, slots=True)
class TopicRoute:
    """Where a topic's queues lie, in an order that does not change between calls, and which messages it takes."""

    topic: str
    message_type: MessageType
    queues: tuple[RouteQueue, ...]
    is_static: bool = False
    """Whether the queues move between brokers, each under its number."""


def check_removable(topic: str) -> None:
    """Refuse to remove one of the system's own topics: ILLEGAL_TOPIC."""
    check_topic_name(topic)
    if is_system_topic(topic):
        raise NameRefused("ILLEGAL_TOPIC", f"The topic name {topic!r} is the system's own.")


class BrokerBackend(Protocol):
    """The brokers' operations. Refusals are raised as `Refused`; other failures as `MillstreamError`."""

    async def route(self, topic: str) -> TopicRoute:
        """The topic's route, never without queues; TOPIC_NOT_FOUND or ILLEGAL_TOPIC."""
        ...

    async def group(self, name: str) -> GroupConfig:
        """The group, created on the fly where brokers allow that; GROUP_NOT_FOUND or ILLEGAL_GROUP."""
        ...

    async def send(self, messages: Sequence[OutgoingMessage]) -> list[SendReceipt]:
        """Store messages of one topic; one receipt per message, all or none."""
        ...

    async def store_state(self, broker_name: str, messages: Sequence[OutgoingMessage]) -> list[SendReceipt]:
        """Store records of one state topic (`model.state_topics`) at that broker, all or none, in their order.

        The topic is made there where it is missing. Nothing else may write to it. Raises ILLEGAL_TOPIC for any other
        topic and QUEUE_NOT_FOUND where there is no broker of that name.
        """
        ...

    async def brokers(self) -> list[str]:
        """The names of the brokers on which topics are made, sorted; those that have a master now."""
        ...

    async def declare_topic(self, config: TopicConfig) -> None:
        """Have the topic on every broker; `route` knows it when this returns. Whether the caller may is the adapter's
        to ask.

        Raises TOPIC_EXISTS where it is there with other settings, ILLEGAL_TOPIC (also for the system's own names).
        """
        ...

    async def remove_topic(self, name: str) -> None:
        """Delete the topic and its messages on every broker that has it. Raises TOPIC_NOT_FOUND, ILLEGAL_TOPIC."""
        ...

    async def recall(self, broker_name: str, topic: str, message_id: str) -> None:
        """Take a delayed message back. Raises TOPIC_NOT_FOUND, MESSAGE_NOT_FOUND."""
        ...

    async def end_transaction(self, topic: str, transaction_id: str, resolution: Resolution) -> None:
        """Commit or roll back; the same again is no error. Raises TRANSACTION_NOT_FOUND, TRANSACTION_ENDED."""
        ...

    def watch_transactions(self, ask: Callable[[RecoverOrphanedTransaction], bool]) -> Callable[[], None]:
        """Have `ask` called for transactions whose producers are silent, until the call that is given back.

        It says whether a producer will be asked, and does not wait.
        """
        ...

    async def pop(self, broker_name: str, request: PopRequest) -> list[PoppedMessage]:
        """Take messages; empty after `wait_ms` with nothing. Cancelling takes nothing."""
        ...

    async def pull(self, broker_name: str, request: PullRequest) -> PullResult:
        """Read a queue from an offset; nothing found after `wait_ms`. Cancelling has no effect on anybody."""
        ...

    async def find_offset(self, broker_name: str, topic: str, queue_id: int, point: QueuePoint, value: int = 0) -> int:
        """The offset of a place of a queue; TOPIC_NOT_FOUND, QUEUE_NOT_FOUND, ILLEGAL_OFFSET."""
        ...

    async def group_offset(self, broker_name: str, group: str, topic: str, queue_id: int) -> int | None:
        """The group's offset in a queue, None if it has none; TOPIC_NOT_FOUND."""
        ...

    async def progress(
        self, broker_name: str, group: str, topic: str, *, with_bytes: bool = False
    ) -> list[QueueProgress]:
        """How far the group is in each queue of the topic at that broker; TOPIC_NOT_FOUND, GROUP_NOT_FOUND.

        `with_bytes`: of a light queue with the bytes that are ready, which costs a look at each new message.
        """
        ...

    async def commit_offset(self, broker_name: str, group: str, topic: str, queue_id: int, queue_offset: int) -> None:
        """Set the group's offset in a queue; TOPIC_NOT_FOUND, QUEUE_NOT_FOUND, GROUP_NOT_FOUND."""
        ...

    async def ack(self, request: AckRequest) -> None:
        """Acknowledge one delivery; INVALID_RECEIPT_HANDLE where it has expired or was replaced."""
        ...

    async def change_invisible(self, request: ChangeInvisibleRequest) -> ReceiptHandle:
        """Move the time when a delivery becomes visible; the new handle replaces the old one."""
        ...

    async def release_deliveries(self, broker_name: str, group: str, topic: str) -> None:
        """Make all deliveries of a light queue visible that are not acknowledged: whoever took them is gone. Their
        handles are invalid then. TOPIC_NOT_FOUND."""
        ...

    async def sync_lite_subscription(self, request: LiteSync) -> list[tuple[str, str]]:
        """Take over which lite topics a client reads; pairs of client and lite topic whose subscription this ended."""
        ...

    async def leave_lite_topics(self, client_id: str) -> None:
        """The client is gone: it reads no lite topic any more."""
        ...

    async def dead_letter(self, request: AckRequest) -> None:
        """Move one delivery to the group's dead-letter topic and acknowledge it."""
        ...
