"""A nameserver and a broker on free ports, for tests that talk to real sockets."""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from millstream.broker.broker import Broker, BrokerOptions
from millstream.broker.remoting import broker_handlers
from millstream.cluster.nameserver import BrokerRegistration, RouteRegistry
from millstream.cluster.remoting import nameserver_handlers
from millstream.model.message import Address
from millstream.store.message_store import StoreOptions
from millstream.tiered.objects import ObjectStore
from millstream.transport.remoting_connection import Handler
from millstream.transport.remoting_server import RemotingServer

__all__ = ["Servers", "running_servers", "running_servers_in_thread"]

SMALL_STORE = StoreOptions(segment_bytes=16 * 1024 * 1024, consume_queue_entries=10_000)


@dataclass(slots=True)
class Servers:
    """What runs, and where. `nameserver` and `broker_address` are `host:port`."""

    nameserver: str
    broker_address: str
    broker: Broker
    routes: RouteRegistry
    broker_server: RemotingServer
    nameserver_server: RemotingServer


@asynccontextmanager
async def running_servers(
    directory: Path,
    *,
    options: BrokerOptions | None = None,
    name: str = "broker-a",
    nameserver_port: int = 0,
    open_objects: Callable[[], ObjectStore] | None = None,
) -> AsyncIterator[Servers]:
    """A broker in `directory` and its nameserver, on ports of 127.0.0.1 that are free, until the block ends."""
    handlers: dict[int, Handler] = {}
    broker_server = RemotingServer(handlers)
    broker_port = await broker_server.start()
    broker = Broker(
        directory,
        name=name,
        options=options or BrokerOptions(store=SMALL_STORE),
        advertised=Address("127.0.0.1", broker_port),
        open_objects=open_objects,
    )
    try:
        await broker.start()
        handlers.update(broker_handlers(broker))
        address = f"127.0.0.1:{broker_port}"
        routes = RouteRegistry()
        registration = BrokerRegistration(broker.cluster, broker.name, address, tuple(broker.topics.all()))
        routes.register(registration, lease_s=math.inf)
        broker.topics.on_change.append(lambda topic, config: routes.update_topic(broker.name, topic, config))
        nameserver = RemotingServer(nameserver_handlers(routes), port=nameserver_port)
        nameserver_port = await nameserver.start()
        try:
            yield Servers(f"127.0.0.1:{nameserver_port}", address, broker, routes, broker_server, nameserver)
        finally:
            await nameserver.close()
            await broker_server.close()
            await broker.close()
    finally:
        await broker_server.close()


@contextmanager
def running_servers_in_thread(
    directory: Path,
    *,
    options: BrokerOptions | None = None,
    name: str = "broker-a",
    nameserver_port: int = 0,
    open_objects: Callable[[], ObjectStore] | None = None,
) -> Iterator[Servers]:
    """The same on an event loop in a thread of its own, for tests that block; touch the broker through sockets only."""
    started: list[Servers] = []
    failure: list[BaseException] = []
    ready, stop = threading.Event(), threading.Event()

    async def serve() -> None:
        async with running_servers(
            directory, options=options, name=name, nameserver_port=nameserver_port, open_objects=open_objects
        ) as servers:
            started.append(servers)
            ready.set()
            await asyncio.to_thread(stop.wait)

    def run() -> None:
        try:
            asyncio.run(serve())
        except BaseException as error:  # noqa: BLE001 - handed to the test's thread
            failure.append(error)
        finally:
            ready.set()

    thread = threading.Thread(target=run, name="servers")
    thread.start()
    ready.wait()
    try:
        if failure:
            raise failure[0]
        yield started[0]
    finally:
        stop.set()
        thread.join()
    if failure:
        raise failure[0]
