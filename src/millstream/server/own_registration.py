"""What the nameserver of a process tells of the broker of the same process."""

from __future__ import annotations

import asyncio
import math

from millstream.broker.broker import Broker
from millstream.broker.registrar import REGISTRATION_INTERVAL_S
from millstream.broker.topic_registration import TopicRegistration
from millstream.cluster.nameserver import BrokerRegistration, RouteRegistry
from millstream.model.topic import TopicConfig
from millstream.protocol.remoting.administration.static_topics import mapping_info

__all__ = ["OwnRegistration"]


class OwnRegistration:
    """Registers from `start` to `close`, at each change and, like other brokers, all anew every 30 s.

    No other broker takes the name, and no request changes what is told of its topics.
    """

    def __init__(self, broker: Broker, registry: RouteRegistry) -> None:
        self._broker = broker
        self._registry = registry
        self._address = f"{broker.advertised.host}:{broker.advertised.port}"
        self._told = TopicRegistration(broker)
        self._beats: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin; the nameserver knows the broker when this returns."""
        self.register()
        self._told.watch(self._update)
        broker, registry, topics = self._broker, self._registry, self._broker.topics
        topics.on_mapping_change.append(lambda name, mapping: registry.update_mapping(broker.name, name, mapping))
        broker.maintenance.permission.on_change.append(self.register)
        self._beats = asyncio.create_task(self._beat(), name="register-own-broker")

    def register(self) -> None:
        """Tell everything."""
        broker = self._broker
        mappings = {mapping.topic: mapping_info(mapping) for mapping in broker.topics.mappings()}
        registration = BrokerRegistration(
            broker.cluster, broker.name, self._address, tuple(self._told.all()), mappings=mappings
        )
        self._registry.register(registration, lease_s=math.inf)

    async def close(self) -> None:
        """Register no more."""
        if self._beats is not None:
            self._beats.cancel()
            await asyncio.gather(self._beats, return_exceptions=True)

    def _update(self, name: str, topic: TopicConfig | None) -> None:
        self._registry.update_topic(self._broker.name, name, topic)

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(REGISTRATION_INTERVAL_S)
            self.register()
