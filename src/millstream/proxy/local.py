"""The backend of a proxy that lives in its broker's process."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, TypeVar

from millstream.broker.broker import Broker
from millstream.broker.delivery_service import DeliveryService
from millstream.broker.static_topics.queue_router import Soon
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
from millstream.model.topic import TopicConfig
from millstream.proxy.backend import BrokerBackend, RouteQueue, TopicRoute, check_removable

__all__ = ["LocalBackend", "delivery_of"]

_T = TypeVar("_T")


class LocalBackend:
    """One broker. Its topics are the routes: what it has is reachable, whatever a nameserver has heard of it."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    @property
    def delivery(self) -> DeliveryService:
        """What messages go through at the broker."""
        return self._broker.delivery

    async def route(self, topic: str) -> TopicRoute:
        """See `BrokerBackend`."""
        config = self._broker.topics.get(topic)
        queues = self._broker.queues.list_offered(topic)
        name = self._broker.name
        is_static = self._broker.topics.mapping(topic) is not None
        return TopicRoute(topic, config.message_type, tuple(RouteQueue(name, *queue) for queue in queues), is_static)

    async def group(self, name: str) -> GroupConfig:
        """See `BrokerBackend`."""
        return self._broker.groups.ensure(name)

    def send(self, messages: Sequence[OutgoingMessage]) -> Coroutine[Any, Any, list[SendReceipt]]:
        """See `BrokerBackend`. Here and in `pop`, a coroutine less on the way of every message."""
        return self._broker.delivery.send(messages)

    async def store_traces(self, messages: Sequence[OutgoingMessage]) -> None:
        """See `TraceSink`."""
        await self._broker.delivery.store_traces(messages)

    async def store_state(self, broker_name: str, messages: Sequence[OutgoingMessage]) -> list[SendReceipt]:
        """See `BrokerBackend`."""
        self._check(broker_name)
        return await self._broker.delivery.store_state(messages)

    async def brokers(self) -> list[str]:
        """See `BrokerBackend`."""
        return [self._broker.name]

    async def declare_topic(self, config: TopicConfig) -> None:
        """See `BrokerBackend`."""
        self._broker.topics.create(config)

    async def remove_topic(self, name: str) -> None:
        """See `BrokerBackend`."""
        check_removable(name)
        self._broker.topics.delete(name)

    async def recall(self, broker_name: str, topic: str, message_id: str) -> None:
        """See `BrokerBackend`."""
        if broker_name != self._broker.name:
            raise NameRefused("QUEUE_NOT_FOUND", f"There is no broker {broker_name[:80]!r} behind this proxy.")
        await self._broker.delivery.recall(topic, message_id)

    async def end_transaction(self, topic: str, transaction_id: str, resolution: Resolution) -> None:
        """See `BrokerBackend`."""
        await self._broker.delivery.end_transaction(topic, transaction_id, resolution)

    def watch_transactions(self, ask: Callable[[RecoverOrphanedTransaction], bool]) -> Callable[[], None]:
        """See `BrokerBackend`."""
        return self._broker.delivery.watch_transactions(ask)

    def pop(self, broker_name: str, request: PopRequest) -> Coroutine[Any, Any, list[PoppedMessage]]:
        """See `BrokerBackend`. A blank name means this broker."""
        self._check(broker_name)
        return self._broker.delivery.pop(request)

    async def pull(self, broker_name: str, request: PullRequest) -> PullResult:
        """See `BrokerBackend`."""
        self._check(broker_name)
        return await self._broker.queues.pull(request)

    async def find_offset(self, broker_name: str, topic: str, queue_id: int, point: QueuePoint, value: int = 0) -> int:
        """See `BrokerBackend`."""
        self._check(broker_name)
        return await _resolve(self._broker.queues.find_offset(topic, queue_id, point, value))

    async def group_offset(self, broker_name: str, group: str, topic: str, queue_id: int) -> int | None:
        """See `BrokerBackend`."""
        self._check(broker_name)
        self._broker.topics.get(topic)
        return await _resolve(self._broker.queues.committed_offset(group, topic, queue_id))

    async def progress(
        self, broker_name: str, group: str, topic: str, *, with_bytes: bool = False
    ) -> list[QueueProgress]:
        """See `BrokerBackend`."""
        self._check(broker_name)
        if with_bytes:
            return await self._broker.queues.measure_progress(group, topic)
        return await _resolve(self._broker.queues.progress(group, topic))

    async def commit_offset(self, broker_name: str, group: str, topic: str, queue_id: int, queue_offset: int) -> None:
        """See `BrokerBackend`."""
        self._check(broker_name)
        await _resolve(self._broker.queues.commit(group, topic, queue_id, queue_offset))

    async def ack(self, request: AckRequest) -> None:
        """See `BrokerBackend`."""
        self._broker.delivery.ack(request)

    async def change_invisible(self, request: ChangeInvisibleRequest) -> ReceiptHandle:
        """See `BrokerBackend`."""
        return self._broker.delivery.change_invisible(request)

    async def release_deliveries(self, broker_name: str, group: str, topic: str) -> None:
        """See `BrokerBackend`."""
        self._check(broker_name)
        self._broker.delivery.release_deliveries(group, topic)

    async def sync_lite_subscription(self, request: LiteSync) -> list[tuple[str, str]]:
        """See `BrokerBackend`."""
        return self._broker.delivery.sync_lite_subscription(request)

    async def leave_lite_topics(self, client_id: str) -> None:
        """See `BrokerBackend`."""
        self._broker.delivery.leave_lite_topics(client_id)

    async def dead_letter(self, request: AckRequest) -> None:
        """See `BrokerBackend`."""
        await self._broker.delivery.move_to_dead_letter(request)

    def _check(self, broker_name: str) -> None:
        """A blank name means this broker."""
        if broker_name not in ("", self._broker.name):
            raise NameRefused("QUEUE_NOT_FOUND", f"There is no broker {broker_name[:80]!r} behind this proxy.")


def delivery_of(backend: BrokerBackend) -> DeliveryService | None:
    """What messages go through at the broker; None for brokers of other processes, and where operations are traced."""
    return backend.delivery if isinstance(backend, LocalBackend) else None


async def _resolve(value: Soon[_T]) -> _T:
    return await value if isinstance(value, Awaitable) else value
