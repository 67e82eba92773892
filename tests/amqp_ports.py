"""An AMQP port over a broker of its own, on an event loop in a thread, for clients that block."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from millstream.broker.broker import Broker, BrokerOptions
from millstream.protocol.amqp.connection import AmqpLimits
from millstream.proxy.amqp.server import AmqpServer
from millstream.proxy.local import LocalBackend
from millstream.proxy.processor import Processor
from millstream.proxy.remote.backend import RemoteBackend
from millstream.security.guard import Guard
from millstream.security.tls import ServerIdentity, TlsMode
from millstream.store.message_store import StoreOptions
from servers import running_servers

_T = TypeVar("_T")
STORE = StoreOptions(segment_bytes=16 * 1024 * 1024, consume_queue_entries=10_000)


@dataclass(slots=True)
class AmqpSite:
    """What runs. `run` does something on its loop."""

    port: int
    broker: Broker
    backend: LocalBackend | RemoteBackend
    server: AmqpServer
    loop: asyncio.AbstractEventLoop
    nameserver: str

    def run(self, work: Coroutine[Any, Any, _T]) -> _T:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(30)

    def call(self, work: Callable[[], _T]) -> _T:
        async def done() -> _T:
            return work()

        return self.run(done())


@asynccontextmanager
async def open_backend(
    directory: Path, *, remote: bool
) -> AsyncIterator[tuple[Broker, LocalBackend | RemoteBackend, str]]:
    """A broker, a backend in its process or beyond sockets, and then the address of the nameserver."""
    if not remote:
        broker = Broker(directory, options=BrokerOptions(store=STORE))
        await broker.start()
        try:
            yield broker, LocalBackend(broker), ""
        finally:
            await broker.close()
        return
    async with running_servers(directory) as servers:
        backend = RemoteBackend(servers.nameserver)
        await backend.start()
        try:
            yield servers.broker, backend, servers.nameserver
        finally:
            await backend.close()


@contextmanager
def running_amqp(
    directory: Path,
    *,
    guard: Callable[[Broker], Guard] | None = None,
    tls: tuple[ServerIdentity, TlsMode] | None = None,
    limits: AmqpLimits | None = None,
    virtual_hosts: tuple[str, ...] = (),
    remote: bool = False,
) -> Iterator[AmqpSite]:
    """The port, until the block ends."""
    sites: list[AmqpSite] = []
    failures: list[BaseException] = []
    ready, stop = threading.Event(), threading.Event()

    async def serve() -> None:
        async with open_backend(directory, remote=remote) as (broker, backend, nameserver):
            server = AmqpServer(
                Processor(backend),
                backend,
                "127.0.0.1",
                0,
                guard=guard(broker) if guard else None,
                tls=tls,
                limits=limits,
                virtual_hosts=virtual_hosts,
            )
            try:
                port = await server.start()
                sites.append(AmqpSite(port, broker, backend, server, asyncio.get_running_loop(), nameserver))
                ready.set()
                await asyncio.to_thread(stop.wait)
            finally:
                await server.close()

    def run() -> None:
        try:
            asyncio.run(serve())
        except BaseException as error:  # noqa: BLE001 - handed to the test's thread
            failures.append(error)
        finally:
            ready.set()

    thread = threading.Thread(target=run, name="amqp-port")
    thread.start()
    ready.wait()
    try:
        if failures:
            raise failures[0]
        yield sites[0]
    finally:
        stop.set()
        thread.join()
    if failures:
        raise failures[0]
