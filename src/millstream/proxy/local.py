"""The backend of a proxy that lives in its broker's process."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from millstream.broker.broker import Broker
from millstream.model.commands import RecoverOrphanedTransaction
from millstream.model.errors import NameRefused
from millstream.model.group import GroupConfig
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
    SendReceipt,
)
from millstream.model.receipt import ReceiptHandle
from millstream.model.topic import Permission, TopicConfig
from millstream.model.transaction import Resolution
from millstream.proxy.backend import RouteQueue, TopicRoute

__all__ = ["LocalBackend"]


class LocalBackend:
    """One broker. Its topics are the routes: what it has is reachable, whatever a nameserver has heard of it."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    async def route(self, topic: str) -> TopicRoute:
        """See `Backend`."""
        config = self._broker.topics.get(topic)
        mapping = self._broker.logic.mapping(topic)
        if mapping is not None:
            both = config.permission & (Permission.READ | Permission.WRITE)
            led = tuple(RouteQueue(self._broker.name, number, both) for number in mapping.led)
            return TopicRoute(topic, config.message_type, led)
        queues = tuple(
            RouteQueue(self._broker.name, queue_id, _permission(config, queue_id)) for queue_id in range(config.queues)
        )
        return TopicRoute(topic, config.message_type, queues)

    async def group(self, name: str) -> GroupConfig:
        """See `Backend`."""
        return self._broker.groups.ensure(name)

    def send(self, messages: Sequence[OutgoingMessage]) -> Coroutine[Any, Any, list[SendReceipt]]:
        """See `Backend`. Here and in `pop`, a coroutine less on the way of every message."""
        return self._broker.send(messages)

    async def store_traces(self, messages: Sequence[OutgoingMessage]) -> None:
        """See `TraceSink`."""
        await self._broker.store_traces(messages)

    async def recall(self, broker_name: str, topic: str, message_id: str) -> None:
        """See `Backend`."""
        if broker_name != self._broker.name:
            raise NameRefused("QUEUE_NOT_FOUND", f"There is no broker {broker_name[:80]!r} behind this proxy.")
        await self._broker.recall(topic, message_id)

    async def end_transaction(self, topic: str, transaction_id: str, resolution: Resolution) -> None:
        """See `Backend`."""
        await self._broker.end_transaction(topic, transaction_id, resolution)

    def watch_transactions(self, ask: Callable[[RecoverOrphanedTransaction], bool]) -> Callable[[], None]:
        """See `Backend`."""
        watchers = self._broker.transactions.on_check
        watchers.append(ask)
        return lambda: watchers.remove(ask)

    def pop(self, broker_name: str, request: PopRequest) -> Coroutine[Any, Any, list[PoppedMessage]]:
        """See `Backend`. A blank name means this broker."""
        self._check(broker_name)
        return self._broker.pop(request)

    async def pull(self, broker_name: str, request: PullRequest) -> PullResult:
        """See `Backend`."""
        self._check(broker_name)
        return await self._broker.pull(request)

    async def find_offset(self, broker_name: str, topic: str, queue_id: int, point: QueuePoint, value: int = 0) -> int:
        """See `Backend`."""
        self._check(broker_name)
        if self._broker.logic.is_static(topic):
            return await self._broker.logic.positions.find(topic, queue_id, point, value)
        return self._broker.positions.find(topic, queue_id, point, value)

    async def group_offset(self, broker_name: str, group: str, topic: str, queue_id: int) -> int | None:
        """See `Backend`."""
        self._check(broker_name)
        self._broker.topics.get(topic)
        if self._broker.logic.is_static(topic):
            return await self._broker.logic.positions.committed(group, topic, queue_id)
        return self._broker.query_offset(group, topic, queue_id)

    async def commit_offset(self, broker_name: str, group: str, topic: str, queue_id: int, queue_offset: int) -> None:
        """See `Backend`."""
        self._check(broker_name)
        if self._broker.logic.is_static(topic):
            self._broker.groups.ensure(group)
            await self._broker.logic.positions.commit(group, topic, queue_id, queue_offset)
            return
        self._broker.commit_offset(group, topic, queue_id, queue_offset)

    async def ack(self, request: AckRequest) -> None:
        """See `Backend`."""
        self._broker.ack(request)

    async def change_invisible(self, request: ChangeInvisibleRequest) -> ReceiptHandle:
        """See `Backend`."""
        return self._broker.change_invisible(request)

    async def sync_lite_subscription(self, request: LiteSync) -> list[tuple[str, str]]:
        """See `Backend`."""
        return self._broker.sync_lite_subscription(request)

    async def leave_lite_topics(self, client_id: str) -> None:
        """See `Backend`."""
        self._broker.leave_lite_topics(client_id)

    async def dead_letter(self, request: AckRequest) -> None:
        """See `Backend`."""
        await self._broker.move_to_dead_letter(request)

    def _check(self, broker_name: str) -> None:
        """A blank name means this broker."""
        if broker_name not in ("", self._broker.name):
            raise NameRefused("QUEUE_NOT_FOUND", f"There is no broker {broker_name[:80]!r} behind this proxy.")


def _permission(config: TopicConfig, queue_id: int) -> Permission:
    """Queues beyond the readable ones can only be written, and the other way round."""
    permission = config.permission & (Permission.READ | Permission.WRITE)
    if queue_id >= config.read_queues:
        permission &= ~Permission.READ
    if queue_id >= config.write_queues:
        permission &= ~Permission.WRITE
    return permission
