"""Delivers messages of one queue to its consumers at this proxy, within their credit."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import count
from typing import TYPE_CHECKING, Any, Final

from millstream.model.backoff import Backoff
from millstream.model.clock import Clock
from millstream.model.errors import ConsumeRefused, MillstreamError, NameRefused
from millstream.model.expiry import expires_ms_of
from millstream.model.handles import ReceiptHandle
from millstream.model.light_queue import LIGHT_QUEUE_NUMBER, light_queue
from millstream.model.message import StoredMessage
from millstream.model.operations import (
    AckRequest,
    ChangeInvisibleRequest,
    PoppedMessage,
    PopRequest,
    PullRequest,
)
from millstream.protocol.amqp.deliveries import Credit
from millstream.protocol.content_fields import filled_body
from millstream.protocol.record import decode_record
from millstream.proxy.amqp.declarations import AmqpQueue
from millstream.proxy.amqp.names import group_of_queue, light_name_of_queue
from millstream.proxy.amqp.stored_content import AMQP_PRIORITY
from millstream.proxy.backend import BrokerBackend
from millstream.proxy.stored_body import is_packed, unpack

if TYPE_CHECKING:
    from millstream.proxy.amqp.channel import AmqpChannel

__all__ = [
    "INVISIBLE_MS",
    "MAX_POP_BYTES",
    "MAX_POP_MESSAGES",
    "MAX_WINDOW_BYTES",
    "POP_WAIT_MS",
    "PRIORITY_WINDOW",
    "RENEW_BEFORE_MS",
    "AmqpConsumer",
    "AmqpDelivery",
    "AmqpQueueReader",
    "QueueAccess",
    "ReadyMessages",
]

_log = logging.getLogger(__name__)

MAX_POP_MESSAGES: Final = 32
"""Messages that are taken from a broker at a time at most."""

MAX_POP_BYTES: Final = 1024 * 1024
"""Bytes of the bodies of these messages, if they are as large as the ones before; a single one may be larger."""

POP_WAIT_MS: Final = 15_000
"""Milliseconds that a reader waits at a broker for a message."""

INVISIBLE_MS: Final = 60_000
"""Milliseconds that a delivery is out of others' sight, again with each renewal: what a crash of the proxy costs."""

RENEW_BEFORE_MS: Final = 25_000
"""A delivery is renewed when less than this is left."""

PRIORITY_WINDOW: Final = 1_000
"""Messages at the head of a queue with priorities that are looked at; behind them the order is that of arrival."""

MAX_WINDOW_BYTES: Final = 16 * 1024 * 1024
"""Bytes of the bodies of these messages over which no more are looked at."""

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
    """A message that is out of others' sight, and for whom. `message` is let go once it is on its way."""

    queue: QueueAccess
    handle: ReceiptHandle
    attempt: int
    message: StoredMessage | None
    consumer: AmqpConsumer | None = None

    @property
    def body_bytes(self) -> int:
        """Bytes of the body of a message that is not on its way yet."""
        message = self.message
        return 0 if message is None else len(filled_body(message.properties, message.body))

    def take_message(self) -> StoredMessage:
        """The message, once: what a client has not acknowledged takes no memory here."""
        message, self.message = self.message, None
        assert message is not None
        return message


@dataclass(frozen=True, slots=True)
class ReadyMessages:
    """What waits in a queue for a consumer. `size_bytes` are those of the bodies, 0 where nobody asked for them."""

    count: int
    size_bytes: int = 0

    def has_room(self, queue: AmqpQueue, body_bytes: int) -> bool:
        """Whether one message more keeps the queue within its limits."""
        max_length, max_bytes = queue.max_length, queue.max_length_bytes
        fits = max_length is None or self.count < max_length
        return fits and (max_bytes is None or self.size_bytes + body_bytes <= max_bytes)

    def without(self, body_bytes: int) -> ReadyMessages:
        """What is left when one message goes."""
        return ReadyMessages(self.count - 1, self.size_bytes - body_bytes)

    def excess(self, queue: AmqpQueue) -> int:
        """How many messages have to go so that the queue is within its limits; of those that are too many by their
        bytes as many as there would be if all were as large."""
        max_length, max_bytes = queue.max_length, queue.max_length_bytes
        by_count = 0 if max_length is None else self.count - max_length
        if max_bytes is None or self.size_bytes <= max_bytes:
            return max(by_count, 0)
        return max(by_count, (self.size_bytes - max_bytes) * self.count // self.size_bytes, 1)


class QueueAccess:
    """What can be done with one queue at the brokers."""

    def __init__(
        self, backend: BrokerBackend, clock: Clock, virtual_host: str, name: str, find: Callable[[], AmqpQueue | None]
    ) -> None:
        self.name = name
        self.on_expired: Callable[[list[AmqpDelivery]], None] = lambda _expired: None
        """Called with what was taken and is past its time."""
        self.virtual_host = virtual_host
        self.topic = light_queue(light_name_of_queue(virtual_host, name))
        self.group = group_of_queue(virtual_host, name)
        self.held = 0
        """Messages that were taken for consumers of this proxy and that none of them has got."""
        self.held_bytes = 0
        """Bytes of their bodies."""
        self.dropping = asyncio.Lock()
        """Held while the oldest messages are measured and dropped: two that did so at a time would drop too many."""
        self._find = find
        self._backend = backend
        self._clock = clock

    async def pop(self, broker: str, max_messages: int, wait_ms: int) -> list[AmqpDelivery]:
        """Take messages; none where the broker has none in that time. NameRefused where it does not know the queue."""
        request = PopRequest(self.group, self.topic, INVISIBLE_MS, LIGHT_QUEUE_NUMBER, max_messages, wait_ms=wait_ms)
        # They may be wanted by a dead-letter exchange.
        request.takes_expired = True
        popped: list[PoppedMessage] = await self._backend.pop(broker, request)
        now_ms = self._clock.now_ms()
        fresh: list[AmqpDelivery] = []
        expired: list[AmqpDelivery] = []
        for one in popped:
            some = expired if self.is_expired(one.message, now_ms) else fresh
            some.append(AmqpDelivery(self, one.handle, one.delivery_attempt, one.message))
        if expired:
            self.on_expired(expired)
        return fresh

    async def read(self, delivery: AmqpDelivery) -> StoredMessage | None:
        """The message of a delivery again; None where it is no longer stored."""
        if delivery.message is not None:
            return delivery.message
        handle = delivery.handle
        return await self._read(handle.broker_name, handle.queue_offset)

    def due_ms(self, message: StoredMessage) -> int | None:
        """When a message of the queue expires; None for never."""
        queue = self._find()
        ttl_ms = None if queue is None else queue.message_ttl_ms
        due_ms = None if ttl_ms is None else message.store_timestamp_ms + ttl_ms
        own_ms = expires_ms_of(message.properties)
        return min((one for one in (due_ms, own_ms) if one is not None), default=None)

    def is_expired(self, message: StoredMessage, now_ms: int) -> bool:
        """Whether a message is past its time."""
        due_ms = self.due_ms(message)
        return due_ms is not None and due_ms <= now_ms

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
            try:
                await self._backend.ack(AckRequest(self.group, self.topic, delivery.handle))
            except (ConsumeRefused, NameRefused) as error:
                _log.info("an acknowledgement of the queue %s came too late: %s", self.name, error)

    async def put_back(self, deliveries: Iterable[AmqpDelivery], *, uncounted: bool = False) -> None:
        """Let them be delivered again, in their place. `uncounted`: no consumer has seen them."""
        for delivery in deliveries:
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
        """Messages that wait for a consumer."""
        return (await self.measure()).count

    async def measure(self, *, with_bytes: bool = False) -> ReadyMessages:
        """The same, and where they are asked for the bytes of their bodies."""
        count, size_bytes = self.held, self.held_bytes
        for broker in await self._backend.brokers():
            try:
                found = await self._backend.progress(broker, self.group, self.topic, with_bytes=with_bytes)
            except NameRefused:
                continue
            count += sum([one.ready for one in found])
            size_bytes += sum([one.ready_bytes or 0 for one in found])
        return ReadyMessages(count, size_bytes)

    async def purge(self) -> int:
        """Remove what is ready; how many messages that were. Deliveries that are not settled stay."""
        removed = 0
        while found := await self.pop_any(MAX_POP_MESSAGES):
            removed += len(found)
            await self.ack(found)
        return removed

    async def pop_best(self) -> list[AmqpDelivery]:
        """Take the one of the first `PRIORITY_WINDOW` messages that has the highest priority, the oldest of these."""
        found: list[AmqpDelivery] = []
        while len(found) < PRIORITY_WINDOW and (more := await self.pop_any(MAX_POP_MESSAGES)):
            found += more
        if not found:
            return []
        best = max(found, key=lambda one: self.priority_of(one.message) if one.message is not None else 0)
        await self.put_back([one for one in found if one is not best], uncounted=True)
        return [best]

    def priority_of(self, message: StoredMessage) -> int:
        """The priority of a message as the queue tells it apart; 0 where the queue has none."""
        queue = self._find()
        text = message.properties.get(AMQP_PRIORITY, "0")
        limit = 0 if queue is None else queue.max_priority
        return min(int(text), limit) if text.isascii() and text.isdecimal() else 0

    async def head(self, broker: str) -> StoredMessage | None:
        """The message at the head of the queue at a broker, which may be out of sight; None where there is none."""
        (progress,) = await self._backend.progress(broker, self.group, self.topic)
        if not progress.ready:
            return None
        return await self._read(broker, progress.committed)

    async def _read(self, broker: str, queue_offset: int) -> StoredMessage | None:
        request = PullRequest(self.group, self.topic, LIGHT_QUEUE_NUMBER, queue_offset, max_messages=1)
        records = (await self._backend.pull(broker, request)).records
        return decode_record(records[0]) if records else None


class AmqpQueueReader:
    """Reads while there are consumers; one for each queue that is consumed at this proxy.

    Of a queue with priorities a window of messages is held here, out of others' sight, so that the highest of them is
    delivered first.
    """

    def __init__(
        self,
        backend: BrokerBackend,
        access: QueueAccess,
        queue: AmqpQueue,
        run: Callable[[Coroutine[Any, Any, None]], None],
    ) -> None:
        """`run` does something that nobody waits for."""
        self.access = access
        self._run = run
        self.consumers: list[AmqpConsumer] = []
        self._backend = backend
        self._has_single_consumer = queue.has_single_consumer
        self._window_size = PRIORITY_WINDOW if queue.max_priority else 0
        self._window: list[tuple[int, int, AmqpDelivery]] = []
        self._body_bytes = 1
        self._numbers = count()
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
        self.wake()

    def remove(self, consumer: AmqpConsumer) -> list[AmqpDelivery]:
        """Serve a consumer no more. Without any, nothing is read; what was held is given back to the caller."""
        self.consumers.remove(consumer)
        if not self.consumers:
            return self.stop()
        self.wake()
        return []

    def wake(self) -> None:
        """A consumer has room again."""
        self._wake.set()
        self._drain_window()

    def list_held(self) -> list[AmqpDelivery]:
        """What is held for consumers that have no room."""
        return [delivery for _, _, delivery in self._window]

    def stop(self) -> list[AmqpDelivery]:
        """Read no more; what was held."""
        tasks, self._reading = self._reading, []
        for task in (*tasks, *([self._starting] if self._starting else ())):
            task.cancel()
        self._starting = None
        held, self._window = self.list_held(), []
        self.access.held -= len(held)
        self.access.held_bytes -= sum([one.body_bytes for one in held])
        return held

    async def _start(self) -> None:
        for broker in await self._backend.brokers():
            self._reading.append(asyncio.create_task(self._read(broker), name=f"amqp-{self.access.name}-{broker}"))

    async def _read(self, broker: str) -> None:
        attempt = 0
        while True:
            room = min(self._room() - self._asked, MAX_POP_MESSAGES, max(MAX_POP_BYTES // self._body_bytes, 1))
            if room <= 0:
                self._wake.clear()
                await self._wake.wait()
                continue
            self._asked += room
            try:
                found = await self.access.pop(broker, room, POP_WAIT_MS)
                self._asked -= room
                room = 0
                passing = self._pass_on(found)
                # What was passed on must not last as long as the wait for more.
                del found
                await passing
            except MillstreamError as error:
                level = logging.DEBUG if attempt else logging.WARNING
                _log.log(level, "the queue %s cannot be read at %s now: %s", self.access.name, broker, error)
                attempt += 1
            except Exception:  # noqa: BLE001 - consumers wait for as long as they live; one bad turn must not end it
                _log.exception("the queue %s could not be read; the next attempt follows", self.access.name)
                attempt += 1
            else:
                attempt = 0
            finally:
                self._asked -= room
            if attempt:
                # Here nothing knows the messages that could not be passed on, as the error does.
                await asyncio.sleep(_RETRY.wait_s(attempt - 1))

    async def _pass_on(self, found: list[AmqpDelivery]) -> None:
        """Hold or hand out what was taken; what there is no room for is put back. Raises what `unpack` raises."""
        passed = total_bytes = 0
        ready: list[AmqpDelivery] = []
        try:
            for delivery in found:
                message = delivery.message
                if message is not None and is_packed(message):
                    # While a thread works on it those behind it wait, so that their order is kept.
                    if self._room() <= 0 or total_bytes > MAX_WINDOW_BYTES:
                        break
                    delivery.message = await unpack(message)
                size_bytes = delivery.body_bytes
                if self._window_size:
                    ready.append(delivery)
                elif (consumer := self._next()) is not None:
                    consumer.channel.deliver(consumer, delivery)
                else:
                    break
                total_bytes += size_bytes
                passed += 1
        except BaseException:
            # No consumer has seen them, and this task may be at its end.
            self._run(self.access.put_back([*ready, *found[passed:]], uncounted=True))
            raise
        if ready:
            self._hold(ready)
        if passed:
            # As large as these, the next ones are likely to be.
            self._body_bytes = max(total_bytes // passed, 1)
        if passed < len(found):
            await self._put_back(found[passed:])

    async def _put_back(self, left: list[AmqpDelivery]) -> None:
        try:
            await self.access.put_back(left, uncounted=True)
        except BaseException:
            # One that was put back already is refused a second time.
            self._run(self.access.put_back(left, uncounted=True))
            raise

    def _room(self) -> int:
        if self._window_size:
            has_room = self.consumers and self.access.held_bytes < MAX_WINDOW_BYTES
            return self._window_size - len(self._window) if has_room else 0
        if self._has_single_consumer:
            return self.consumers[0].room if self.consumers else 0
        return sum([consumer.room for consumer in self.consumers])

    def _hold(self, found: list[AmqpDelivery]) -> None:
        for delivery in found:
            assert delivery.message is not None
            self.access.held_bytes += delivery.body_bytes
            heappush(self._window, (-self.access.priority_of(delivery.message), next(self._numbers), delivery))
        self.access.held += len(found)
        self._drain_window()

    def _drain_window(self) -> None:
        while self._window and (consumer := self._next()) is not None:
            _, _, delivery = heappop(self._window)
            self.access.held -= 1
            self.access.held_bytes -= delivery.body_bytes
            self._wake.set()
            consumer.channel.deliver(consumer, delivery)

    def _next(self) -> AmqpConsumer | None:
        consumers = self.consumers
        if self._has_single_consumer:
            return consumers[0] if consumers and consumers[0].room > 0 else None
        for consumer in consumers:
            if consumer.room > 0:
                # They take turns within their priority.
                consumers.remove(consumer)
                lower = (at for at, one in enumerate(consumers) if one.priority < consumer.priority)
                consumers.insert(next(lower, len(consumers)), consumer)
                return consumer
        return None
