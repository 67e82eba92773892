"""Services that the parts of an MQTT port share: brokers, clock, topics, access, publisher, retained messages."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import partial

from millstream.model.clock import Clock
from millstream.model.errors import MillstreamError
from millstream.model.message import Address
from millstream.protocol.mqtt.packets import Publish
from millstream.protocol.mqtt.properties import NO_PROPERTIES, Properties, PropertyId
from millstream.proxy.backend import BrokerBackend
from millstream.proxy.mqtt.access import MqttAccess
from millstream.proxy.mqtt.application_message import ApplicationMessage
from millstream.proxy.mqtt.light_queue_reader import LightQueueReader
from millstream.proxy.mqtt.light_routes import LightRoutes
from millstream.proxy.mqtt.publisher import MqttPublisher, Stored
from millstream.proxy.mqtt.retained_messages import RetainedMessages
from millstream.proxy.mqtt.subscriptions import SubscriptionTable
from millstream.proxy.mqtt.topic_rules import TopicRules
from millstream.proxy.processor import Processor
from millstream.security.guard import Guard
from millstream.telemetry.port_traffic import PortTraffic

__all__ = ["MqttServices", "MqttStatistics"]


@dataclass(slots=True)
class MqttStatistics:
    """Counted since the start, for `$SYS`, besides the traffic of the port."""

    bytes_received: int = 0
    bytes_sent: int = 0
    takeovers: int = 0
    """Connections that gave way to another one of the same client id."""
    connects: int = 0
    """Clients that were let in."""


class MqttServices:
    """Of one port. `start` before use, `close` after all that uses them."""

    def __init__(
        self, processor: Processor, backend: BrokerBackend, clock: Clock, rules: TopicRules, guard: Guard | None
    ) -> None:
        self.backend = backend
        self.clock = clock
        self.rules = rules
        self.access = MqttAccess(guard, rules)
        self.statistics = MqttStatistics()
        self.traffic = PortTraffic()
        self.throttle = processor.throttle
        self.routes = LightRoutes(backend, clock)
        self.retained = RetainedMessages(backend, clock)
        self._publisher = MqttPublisher(processor, backend, clock)
        self.subscriptions = SubscriptionTable(processor.feed, rules, clock, self._publisher.route)
        self.holding: set[LightQueueReader] = set()
        """The readers of light queues whose clients may not have acknowledged something."""
        self._keeping: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Begin to follow what is retained."""
        await self.retained.start()

    async def settle(self) -> None:
        """Return when all is stored that was published."""
        await self._publisher.close()
        while self._keeping:
            await asyncio.gather(*self._keeping, return_exceptions=True)

    async def close(self) -> None:
        """Follow it no more."""
        await self.retained.close()

    def message_of(self, packet: Publish, topic: str, publisher: str) -> ApplicationMessage:
        """The message of a client's PUBLISH."""
        properties, expires_ms = packet.properties, None
        if properties is not NO_PROPERTIES:
            values = dict(properties.values)
            values.pop(PropertyId.TOPIC_ALIAS, None)
            expiry_s = values.pop(PropertyId.MESSAGE_EXPIRY_INTERVAL, None)
            if isinstance(expiry_s, int):
                expires_ms = self.clock.now_ms() + expiry_s * 1000
            properties = Properties(values, properties.user)
        return ApplicationMessage(
            topic,
            packet.payload,
            packet.qos,
            retain=packet.retain,
            publisher=publisher,
            expires_ms=expires_ms,
            properties=properties,
        )

    def publish(self, message: ApplicationMessage, peer: Address, stored: Stored) -> None:
        """Store a message where its subscribers look for it, and keep it where it is to be retained; see
        `MqttPublisher.publish`."""
        if message.retain:
            stored = partial(self._keep_soon, message, stored)
        self._publisher.publish(self.rules.topic_of(message.topic), message, peer, stored)

    def _keep_soon(self, message: ApplicationMessage, stored: Stored, error: MillstreamError | None) -> None:
        if error is not None:
            stored(error)
            return
        task = asyncio.create_task(self._keep(message, stored), name="mqtt-retain")
        self._keeping.add(task)
        task.add_done_callback(self._keeping.discard)

    async def _keep(self, message: ApplicationMessage, stored: Stored) -> None:
        try:
            await self.retained.keep(message)
        except MillstreamError as error:
            stored(error)
        else:
            stored(None)
