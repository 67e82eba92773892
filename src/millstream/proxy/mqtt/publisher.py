"""Stores published messages together: one send per topic at a time takes all that arrived meanwhile.

So the messages of a client to a topic are stored in the order in which they came [MQTT-4.6.0-1], and the batches grow
with the load. All messages of an MQTT topic go to one queue, by its name.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from hashlib import blake2b
from typing import Final, NamedTuple

from millstream.broker.delivery.admission import MAX_MESSAGE_GROUP_BYTES
from millstream.model.clock import Clock
from millstream.model.errors import ConsumeRefused, MillstreamError, NameRefused, Refused
from millstream.model.message import Address, OutgoingMessage
from millstream.model.topic import MessageType, Permission, TopicConfig
from millstream.protocol.record_encoder import PlainRecord
from millstream.proxy.backend import BrokerBackend, TopicRoute
from millstream.proxy.local import delivery_of
from millstream.proxy.mqtt.application_message import ApplicationMessage
from millstream.proxy.mqtt.records import outgoing_record, plain_record
from millstream.proxy.mqtt.topic_rules import DEFAULT_TOPIC
from millstream.proxy.processor import Processor

__all__ = [
    "DEFAULT_TOPIC_QUEUES",
    "MAX_BATCH_BYTES",
    "MAX_BATCH_MESSAGES",
    "MAX_WAITING_BYTES",
    "ROUTE_LIFE_S",
    "MqttPublisher",
    "Stored",
]

_log = logging.getLogger(__name__)

MAX_BATCH_MESSAGES: Final = 1024
"""Messages of one send at most."""

MAX_BATCH_BYTES: Final = 4 * 1024 * 1024
"""Bytes of payloads of one send at most; a single message may be larger."""

MAX_WAITING_BYTES: Final = 64 * 1024 * 1024
"""Bytes of payloads that wait to be stored at most; a further message is refused."""

ROUTE_LIFE_S: Final = 2.0
"""Seconds for which the queues of a topic are taken to be the same."""

DEFAULT_TOPIC_QUEUES: Final = 1
"""Queues of the topic `mqtt` where the port makes it: one keeps the order of a client's messages over its MQTT topics,
which the specification wants for each of them alone. A topic that is there already keeps the queues that it has."""

Stored = Callable[[MillstreamError | None], None]
"""Called when a message is stored, or with what was wrong."""


class _Waiting(NamedTuple):
    message: ApplicationMessage
    peer: Address
    stored: Stored


class MqttPublisher:
    """One for all connections of a port; all from one event loop."""

    def __init__(self, processor: Processor, backend: BrokerBackend, clock: Clock) -> None:
        self._processor = processor
        self._backend = backend
        self._delivery = delivery_of(backend)
        self._clock = clock
        self._waiting: dict[str, deque[_Waiting]] = {}
        self._sending: dict[str, asyncio.Task[None]] = {}
        self._routes: dict[str, tuple[float, TopicRoute]] = {}
        self._waiting_bytes = 0

    def publish(self, topic: str, message: ApplicationMessage, peer: Address, stored: Stored) -> None:
        """Store a message in a topic; `stored` is called later, in the order of the calls for one topic.

        Raises TOO_MANY_REQUESTS.
        """
        size_bytes = len(message.payload)
        if self._waiting_bytes + size_bytes > MAX_WAITING_BYTES:
            raise ConsumeRefused(
                "TOO_MANY_REQUESTS", f"{self._waiting_bytes} bytes of messages wait to be stored, which is the limit."
            )
        self._waiting_bytes += size_bytes
        waiting = self._waiting.get(topic)
        if waiting is None:
            waiting = self._waiting[topic] = deque()
            self._sending[topic] = asyncio.create_task(self._send_all(topic, waiting), name=f"mqtt-publish-{topic}")
        waiting.append(_Waiting(message, peer, stored))

    async def route(self, topic: str) -> TopicRoute:
        """The queues of a topic; the topic `mqtt` is made where it is missing. TOPIC_NOT_FOUND of any other."""
        now_s = self._clock.monotonic_s()
        known = self._routes.get(topic)
        if known is not None and now_s - known[0] < ROUTE_LIFE_S:
            return known[1]
        try:
            route = await self._processor.route(topic)
        except NameRefused as error:
            if topic != DEFAULT_TOPIC or error.name != "TOPIC_NOT_FOUND":
                raise
            # Over several brokers messages are spread by their group, which a topic of type NORMAL does not take.
            is_alone = len(await self._backend.brokers()) == 1
            await self._backend.declare_topic(
                TopicConfig(
                    topic,
                    MessageType.NORMAL if is_alone else MessageType.MIXED,
                    read_queues=DEFAULT_TOPIC_QUEUES,
                    write_queues=DEFAULT_TOPIC_QUEUES,
                )
            )
            route = await self._processor.route(topic)
        self._routes[topic] = (now_s, route)
        return route

    async def close(self) -> None:
        """Return when all is stored that was taken."""
        while self._sending:
            await asyncio.gather(*self._sending.values(), return_exceptions=True)

    async def _send_all(self, topic: str, waiting: deque[_Waiting]) -> None:
        try:
            while waiting:
                await self._send(topic, self._take(waiting))
        finally:
            del self._sending[topic]
            del self._waiting[topic]

    def _take(self, waiting: deque[_Waiting]) -> list[_Waiting]:
        taken: list[_Waiting] = []
        size_bytes = 0
        while waiting and len(taken) < MAX_BATCH_MESSAGES:
            size_bytes += len(waiting[0].message.payload)
            if taken and size_bytes > MAX_BATCH_BYTES:
                break
            one = waiting.popleft()
            self._waiting_bytes -= len(one.message.payload)
            taken.append(one)
        return taken

    async def _send(self, topic: str, taken: list[_Waiting]) -> None:
        error: MillstreamError | None = None
        try:
            route = await self.route(topic)
            if not await self._store_plain(topic, route, taken):
                await self._processor.send(self._records(topic, route, taken))
        except Refused as refusal:
            if len(taken) > 1:
                # One that is refused must not fail the others, which only came at the same time.
                for one in taken:
                    await self._send(topic, [one])
                return
            error = refusal
        except MillstreamError as failure:
            error = failure
        except Exception as failure:  # noqa: BLE001 - who waits for these messages must hear of it
            _log.exception("messages for %s could not be stored", topic)
            error = MillstreamError("INTERNAL_ERROR", f"{type(failure).__name__} in the proxy; see its log.")
        for one in taken:
            one.stored(error)

    async def _store_plain(self, topic: str, route: TopicRoute, taken: list[_Waiting]) -> bool:
        """Store them at a broker of this process without what only unusual messages need; False where one is such."""
        delivery = self._delivery
        config = None if delivery is None or route.is_static else delivery.plain_topic(topic)
        if config is None or delivery is None:
            return False
        now_ms, writable, name = self._clock.now_ms(), _writable(route), config.name
        if not writable or writable[-1] >= config.write_queues:
            return False
        queue_id = writable[0]
        records: list[PlainRecord] = []
        for message, peer, _ in taken:
            if len(writable) > 1:
                queue_id = writable[_hash(message.topic) % len(writable)]
            record = plain_record(message, name, queue_id, now_ms=now_ms, peer=peer)
            if record is None:
                return False
            records.append(record)
        await delivery.send_plain(config, records)
        return True

    def _records(self, topic: str, route: TopicRoute, taken: list[_Waiting]) -> list[OutgoingMessage]:
        now_ms = self._clock.now_ms()
        writable = _writable(route)
        is_spread = len({queue.broker_name for queue in route.queues}) > 1
        kind = route.message_type
        has_groups = kind is MessageType.FIFO or (kind is MessageType.MIXED and is_spread)
        found = []
        for message, peer, _ in taken:
            group, queue_id = None, None
            if has_groups:
                group = _message_group(message.topic)
            elif writable:
                queue_id = writable[_hash(message.topic) % len(writable) if len(writable) > 1 else 0]
            found.append(
                outgoing_record(message, topic, now_ms=now_ms, peer=peer, message_group=group, queue_id=queue_id)
            )
        return found


def _writable(route: TopicRoute) -> list[int]:
    return [queue.queue_id for queue in route.queues if queue.permission & Permission.WRITE]


def _message_group(topic: str) -> str:
    """A message group of the MQTT topic: its name where it can be one, else a hash of it."""
    if topic.isprintable() and topic.strip() and len(topic.encode()) <= MAX_MESSAGE_GROUP_BYTES:
        return topic
    return blake2b(topic.encode(), digest_size=20).hexdigest()


def _hash(topic: str) -> int:
    return int.from_bytes(blake2b(topic.encode(), digest_size=4).digest(), "big")
