"""Hands the messages of one queue to its consumers at this proxy, as far as these have room."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from millstream.model.backoff import Backoff
from millstream.model.clock import Clock
from millstream.model.errors import ConsumeRefused, MillstreamError, NameRefused
from millstream.model.handles import ReceiptHandle
from millstream.model.light_queue import LIGHT_QUEUE_NUMBER, light_queue
from millstream.model.message import StoredMessage
from millstream.model.operations import (
    AckRequest,
    ChangeInvisibleRequest,
    PoppedMessage,
    PopRequest,
    PullRequest,
    QueuePoint,
)
from millstream.protocol.amqp.deliveries import Credit
from millstream.proxy.amqp.names import group_of_queue, light_name_of_queue
from millstream.proxy.backend import BrokerBackend

if TYPE_CHECKING:
    from millstream.proxy.amqp.channel import AmqpChannel

__all__ = [
    "INVISIBLE_MS",
    "MAX_POP_MESSAGES",
    "POP_WAIT_MS",
    "RENEW_BEFORE_MS",
    "AmqpConsumer",
    "AmqpDelivery",
    "QueueAccess",
    "QueueReader",
]

_log = logging.getLogger(__name__)

MAX_POP_MESSAGES: Final = 32
"""Messages that are taken from a broker at a time at most."""

POP_WAIT_MS: Final = 15_000
"""Milliseconds that a reader waits at a broker for a message."""

INVISIBLE_MS: Final = 60_000
"""Milliseconds that a delivery is out of others' sight, again with each renewal: what a crash of the proxy costs."""

RENEW_BEFORE_MS: Final = 25_000
"""A delivery is renewed when less than this is left."""

_RETRY: Final = Backoff(0.1, 5.0)


@dataclass(slots=True, eq=False)
class AmqpConsumer:
    """A consumer of a channel. `prefix` is what each of its deliveries begins with on the wire."""

    channel: AmqpChannel
    tag: str
    no_ack: bool
    is_exclusive: bool
    priority: int
    credit: Credit
    prefix: bytes

    @property
    def room(self) -> int:
        """How many deliveries more it may get."""
        return self.channel.room_of(self)


@dataclass(slots=True, eq=False)
class AmqpDelivery:
    """A message that is out of others' sight, and for whom."""

    queue: QueueAccess
    handle: ReceiptHandle
    attempt: int
    message: StoredMessage
    consumer: AmqpConsumer | None = None


class QueueAccess:
    """What can be done with one queue at the brokers."""

    def __init__(self, backend: BrokerBackend, clock: Clock, virtual_host: str, name: str) -> None:
        self.name = name
        self.virtual_host = virtual_host
        self.topic = light_queue(light_name_of_queue(virtual_host, name))
        self.group = group_of_queue(virtual_host, name)
        self.in_flight = 0
        """Deliveries of this proxy that are not settled."""
        self._backend = backend
        self._clock = clock

    async def pop(self, broker: str, max_messages: int, wait_ms: int) -> list[AmqpDelivery]:
        """Take messages; none where the broker has none, or does not know the queue."""
        request = PopRequest(self.group, self.topic, INVISIBLE_MS, LIGHT_QUEUE_NUMBER, max_messages, wait_ms=wait_ms)
        popped: list[PoppedMessage] = await self._backend.pop(broker, request)
        self.in_flight += len(popped)
        return [AmqpDelivery(self, one.handle, one.delivery_attempt, one.message) for one in popped]

    async def pop_any(self, max_messages: int) -> list[AmqpDelivery]:
        """Take messages from the first broker that has some; does not wait."""
        for broker in await self._backend.brokers():
            try:
                found = await self.pop(broker, max_messages, 0)
            except NameRefused:
                continue
            if found:
                return found
        return []

    async def ack(self, deliveries: Iterable[AmqpDelivery]) -> None:
        """They are consumed. One whose time was over is somebody else's by now; that is no error."""
        for delivery in deliveries:
            self.in_flight -= 1
            try:
                await self._backend.ack(AckRequest(self.group, self.topic, delivery.handle))
            except (ConsumeRefused, NameRefused) as error:
                _log.info("an acknowledgement of the queue %s came too late: %s", self.name, error)

    async def put_back(self, deliveries: Iterable[AmqpDelivery], *, uncounted: bool = False) -> None:
        """Let them be delivered again, in their place. `uncounted`: no consumer has seen them."""
        for delivery in deliveries:
            self.in_flight -= 1
            request = ChangeInvisibleRequest(self.group, self.topic, delivery.handle, 0, suspend=uncounted)
            try:
                await self._backend.change_invisible(request)
            except (ConsumeRefused, NameRefused) as error:
                _log.info("a delivery of the queue %s was put back too late: %s", self.name, error)

    async def renew(self, delivery: AmqpDelivery) -> None:
        """Keep a delivery out of others' sight where its time ends soon."""
        if delivery.handle.expires_ms - self._clock.now_ms() > RENEW_BEFORE_MS:
            return
        request = ChangeInvisibleRequest(self.group, self.topic, delivery.handle, INVISIBLE_MS, renewal=True)
        try:
            delivery.handle = await self._backend.change_invisible(request)
        except MillstreamError as error:
            _log.info("a delivery of the queue %s could not be renewed: %s", self.name, error)

    async def ready(self) -> int:
        """Messages that wait for a consumer, about: what others have in flight counts among them."""
        total = 0
        for broker in await self._backend.brokers():
            try:
                end = await self._backend.find_offset(broker, self.topic, LIGHT_QUEUE_NUMBER, QueuePoint.LAST)
                done = await self._backend.group_offset(broker, self.group, self.topic, LIGHT_QUEUE_NUMBER)
            except NameRefused:
                continue
            total += end - (done or 0)
        return max(total - self.in_flight, 0)

    async def purge(self) -> int:
        """Remove what is ready; how many messages that were. Deliveries that are not settled stay."""
        removed = 0
        while found := await self.pop_any(MAX_POP_MESSAGES):
            removed += len(found)
            await self.ack(found)
        return removed

    async def peek(self, broker: str) -> list[bytes | memoryview]:
        """The record at the head of the queue at a broker; none where it is empty."""
        offset = await self._backend.group_offset(broker, self.group, self.topic, LIGHT_QUEUE_NUMBER) or 0
        request = PullRequest(self.group, self.topic, LIGHT_QUEUE_NUMBER, offset, max_messages=1)
        return list((await self._backend.pull(broker, request)).records)


class QueueReader:
    """Reads while there are consumers; one for each queue that is consumed at this proxy."""

    def __init__(self, backend: BrokerBackend, access: QueueAccess, *, has_single_consumer: bool) -> None:
        self.access = access
        self.consumers: list[AmqpConsumer] = []
        self._backend = backend
        self._has_single_consumer = has_single_consumer
        self._wake = asyncio.Event()
        self._reading: list[asyncio.Task[None]] = []
        self._starting: asyncio.Task[None] | None = None
        self._asked = 0

    def add(self, consumer: AmqpConsumer) -> None:
        """Serve a consumer, too; those of a higher priority first."""
        self.consumers.append(consumer)
        self.consumers.sort(key=lambda one: -one.priority)
        if self._starting is None:
            self._starting = asyncio.create_task(self._start(), name=f"amqp-queue-{self.access.name}")
        self._wake.set()

    def remove(self, consumer: AmqpConsumer) -> None:
        """Serve a consumer no more. Without any, nothing is read."""
        self.consumers.remove(consumer)
        if not self.consumers:
            self.stop()
        else:
            self._wake.set()

    def wake(self) -> None:
        """A consumer has room again."""
        self._wake.set()

    def stop(self) -> None:
        """Read no more; what is being taken is put back."""
        tasks, self._reading = self._reading, []
        for task in (*tasks, *([self._starting] if self._starting else ())):
            task.cancel()
        self._starting = None

    async def _start(self) -> None:
        for broker in await self._backend.brokers():
            self._reading.append(asyncio.create_task(self._read(broker), name=f"amqp-{self.access.name}-{broker}"))

    async def _read(self, broker: str) -> None:
        attempt = 0
        while True:
            room = min(self._room() - self._asked, MAX_POP_MESSAGES)
            if room <= 0:
                self._wake.clear()
                await self._wake.wait()
                continue
            self._asked += room
            try:
                found = await self.access.pop(broker, room, POP_WAIT_MS)
            except MillstreamError as error:
                _log.log(logging.DEBUG if attempt else logging.WARNING, "queue %s: %s", self.access.name, error)
                await asyncio.sleep(_RETRY.wait_s(attempt))
                attempt += 1
                continue
            except Exception:  # noqa: BLE001 - consumers wait for as long as they live; one bad turn must not end it
                _log.exception("the queue %s could not be read; the next attempt follows", self.access.name)
                await asyncio.sleep(_RETRY.wait_s(attempt))
                attempt += 1
                continue
            finally:
                self._asked -= room
            attempt = 0
            left = self._hand_out(found)
            if left:
                await self.access.put_back(left, uncounted=True)

    def _room(self) -> int:
        if self._has_single_consumer:
            return self.consumers[0].room if self.consumers else 0
        return sum([consumer.room for consumer in self.consumers])

    def _hand_out(self, found: list[AmqpDelivery]) -> list[AmqpDelivery]:
        """Give each to the next consumer that has room; what nobody has room for."""
        for number, delivery in enumerate(found):
            consumer = self._next()
            if consumer is None:
                return found[number:]
            consumer.channel.deliver(consumer, delivery)
        return []

    def _next(self) -> AmqpConsumer | None:
        consumers = self.consumers
        if self._has_single_consumer:
            return consumers[0] if consumers and consumers[0].room > 0 else None
        for consumer in consumers:
            if consumer.room > 0:
                # They take turns within their priority.
                consumers.remove(consumer)
                place = next(
                    (at for at, one in enumerate(consumers) if one.priority < consumer.priority), len(consumers)
                )
                consumers.insert(place, consumer)
                return consumer
        return None
