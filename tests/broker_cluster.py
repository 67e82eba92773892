"""A nameserver and several brokers on free ports of one event loop, for tests that move queues between them."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from millstream.broker.broker import Broker, BrokerOptions
from millstream.broker.remoting import broker_handlers
from millstream.broker.static_topics.peers import Peers
from millstream.cluster.nameserver import BrokerRegistration, RouteRegistry
from millstream.cluster.remoting import nameserver_handlers
from millstream.model.clock import Clock
from millstream.model.message import Address
from millstream.protocol.remoting.administration.static_topics import mapping_info
from millstream.transport.remoting_server import RemotingServer
from servers import SMALL_STORE

__all__ = ["BrokerCluster", "running_cluster"]


@dataclass(slots=True)
class BrokerCluster:
    """What runs. `nameserver` is `host:port`; brokers are by name."""

    directory: Path
    nameserver: str
    routes: RouteRegistry
    options: BrokerOptions
    clock: Clock | None = None
    brokers: dict[str, Broker] = field(default_factory=dict)
    servers: dict[str, RemotingServer] = field(default_factory=dict)
    peers: dict[str, Peers] = field(default_factory=dict)

    async def start(self, name: str) -> Broker:
        """Start a broker, again on its own directory if it was there before."""
        server = RemotingServer({})
        port = await server.start()
        address = Address("127.0.0.1", port)
        self.peers[name] = Peers([self.nameserver])
        broker = Broker(
            self.directory / name,
            name=name,
            options=self.options,
            advertised=address,
            clock=self.clock,
            peers=self.peers[name],
        )
        await broker.start()
        server.handlers = broker_handlers(broker)
        self.brokers[name], self.servers[name] = broker, server
        mappings = {mapping.topic: mapping_info(mapping) for mapping in broker.topics.mappings()}
        topics = tuple(broker.topics.all())
        registration = BrokerRegistration(broker.cluster, name, f"127.0.0.1:{port}", topics, mappings=mappings)
        self.routes.register(registration, lease_s=math.inf)
        broker.topics.on_change.append(lambda topic, config: self.routes.update_topic(name, topic, config))
        broker.topics.on_mapping_change.append(lambda topic, mapping: self.routes.update_mapping(name, topic, mapping))
        return broker

    async def stop(self, name: str) -> None:
        """Stop a broker; the nameserver forgets it."""
        self.routes.unregister(name)
        broker, server = self.brokers.pop(name), self.servers.pop(name)
        await server.close()
        await broker.close()
        await self.peers[name].close()


@asynccontextmanager
async def running_cluster(
    directory: Path, names: Sequence[str], *, options: BrokerOptions | None = None, clock: Clock | None = None
) -> AsyncIterator[BrokerCluster]:
    """Brokers of these names and their nameserver, until the block ends."""
    async with AsyncExitStack() as stack:
        routes = RouteRegistry()
        nameserver = RemotingServer(nameserver_handlers(routes))
        port = await nameserver.start()
        stack.push_async_callback(nameserver.close)
        options = options or BrokerOptions(store=SMALL_STORE)
        cluster = BrokerCluster(directory, f"127.0.0.1:{port}", routes, options, clock)
        for name in names:
            await cluster.start(name)
        try:
            yield cluster
        finally:
            for name in list(cluster.brokers):
                await cluster.stop(name)
