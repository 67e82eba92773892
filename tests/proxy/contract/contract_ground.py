"""What the contract of backends is held on: one broker in this process, or brokers behind real sockets."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Awaitable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from millstream.broker.broker import Broker, BrokerOptions
from millstream.broker.remoting import broker_handlers
from millstream.broker.remoting.producers import ProducerRegistry
from millstream.cluster.nameserver import BrokerRegistration, RouteRegistry
from millstream.cluster.remoting import nameserver_handlers
from millstream.model import properties
from millstream.model.clock import ManualClock
from millstream.model.errors import MillstreamError
from millstream.model.message import OutgoingMessage
from millstream.model.operations import PoppedMessage, PopRequest
from millstream.model.topic import MessageType, TopicConfig
from millstream.proxy.backend import BrokerBackend
from millstream.proxy.local import LocalBackend
from millstream.proxy.remote.backend import RemoteBackend
from millstream.store.message_store import StoreOptions
from millstream.transport.remoting_server import RemotingServer

__all__ = ["Ground", "Site", "local_ground", "outgoing", "refused", "remote_ground", "running_site", "state_record"]

STORE = StoreOptions(segment_bytes=1 << 22, consume_queue_entries=1000)


@dataclass
class Site:
    """Brokers behind sockets, and the nameserver that knows them."""

    clock: ManualClock
    routes: RouteRegistry
    nameserver: RemotingServer
    nameserver_address: str
    brokers: list[Broker] = field(default_factory=list)
    servers: list[RemotingServer] = field(default_factory=list)
    producers: list[ProducerRegistry] = field(default_factory=list)

    def create_own(self, topic: TopicConfig) -> None:
        for broker in self.brokers:
            broker.topics.ensure_own(topic)

    def create(self, topic: TopicConfig) -> None:
        for broker in self.brokers:
            broker.topics.create(topic)


@dataclass
class Ground:
    """A backend, and the broker (or brokers) that it stands on."""

    backend: BrokerBackend
    brokers: list[Broker]
    clock: ManualClock

    @property
    def broker(self) -> Broker:
        return self.brokers[0]

    def create(self, name: str, kind: MessageType = MessageType.NORMAL, *, queues: int = 2, **more: str) -> None:
        for broker in self.brokers:
            broker.topics.create(TopicConfig(name, kind, queues, queues, attributes=more))

    async def send(self, topic: str, *bodies: bytes, **held: str) -> None:
        await self.backend.send([outgoing(topic, body, **held) for body in bodies])

    async def pop(self, topic: str = "orders", group: str = "g", **more: object) -> list[PoppedMessage]:
        found: list[PoppedMessage] = []
        request = PopRequest(group, topic, **{"invisible_ms": 30_000, **more})  # type: ignore[arg-type]
        for broker in self.brokers:
            found += await self.backend.pop(broker.name, request)
        return found

    async def announce(self, *topics: str) -> None:
        """Producers of these topics are here."""
        if isinstance(self.backend, RemoteBackend):
            self.backend.announce(lambda: topics)
            await self.backend._heartbeats.beat()

    async def someone_waits(self) -> None:
        while not any(broker.maintenance.waiting_requests for broker in self.brokers):  # noqa: ASYNC110 - the broker has no event
            await asyncio.sleep(0.001)


def outgoing(topic: str, body: bytes = b"body", kind: MessageType = MessageType.NORMAL, **held: str) -> OutgoingMessage:
    """A message with an id of its own."""
    _ids[0] += 1
    complete = {properties.UNIQUE_KEY: f"id-{_ids[0]}", **held}
    return OutgoingMessage(topic, body, complete, kind, born_timestamp_ms=1_700_000_000_000)


_ids = [0]


def state_record(topic: str, key: str, body: bytes) -> OutgoingMessage:
    """A record of a state topic."""
    return OutgoingMessage(topic, body, {properties.KEYS: key}, queue_id=0, born_timestamp_ms=1_700_000_000_000)


async def refused(awaited: Awaitable[object]) -> str:
    """The name of the refusal."""
    with pytest.raises(MillstreamError) as refusal:
        await awaited
    return refusal.value.name


@asynccontextmanager
async def local_ground(directory: Path, clock: ManualClock) -> AsyncIterator[Ground]:
    broker = Broker(directory, options=BrokerOptions(store=STORE), clock=clock)
    await broker.start()
    try:
        yield Ground(LocalBackend(broker), [broker], clock)
    finally:
        await broker.close()


@asynccontextmanager
async def remote_ground(directory: Path, clock: ManualClock, count: int = 1) -> AsyncIterator[Ground]:
    async with running_site(directory, clock, count) as site:
        backend = RemoteBackend(site.nameserver_address, clock=clock)
        await backend.start()
        try:
            yield Ground(backend, site.brokers, clock)
        finally:
            await backend.close()


@asynccontextmanager
async def running_site(directory: Path, clock: ManualClock, count: int) -> AsyncIterator[Site]:
    """`count` brokers, `broker-a` and so on."""
    async with AsyncExitStack() as opened:
        routes = RouteRegistry()
        nameserver = RemotingServer(nameserver_handlers(routes, clock=clock), clock=clock)
        address = f"127.0.0.1:{await nameserver.start()}"
        opened.push_async_callback(nameserver.close)
        site = Site(clock, routes, nameserver, address)
        for number in range(count):
            await _open_broker(site, opened, directory / str(number), f"broker-{chr(ord('a') + number)}")
        yield site


async def _open_broker(site: Site, opened: AsyncExitStack, directory: Path, name: str) -> None:
    server = RemotingServer({}, clock=site.clock)
    port = await server.start()
    broker = Broker(directory, name=name, options=BrokerOptions(store=STORE), clock=site.clock)
    await broker.start()
    opened.push_async_callback(broker.close)
    opened.push_async_callback(server.close)
    producers = ProducerRegistry()
    site.producers.append(producers)
    server.handlers = broker_handlers(broker, producers=producers)
    registration = BrokerRegistration(broker.cluster, name, f"127.0.0.1:{port}", tuple(broker.topics.all()))
    site.routes.register(registration, lease_s=math.inf)
    broker.topics.on_change.append(lambda topic, config: site.routes.update_topic(name, topic, config))
    site.brokers.append(broker)
    site.servers.append(server)
