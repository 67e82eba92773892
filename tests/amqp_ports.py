"""An AMQP port over a broker of its own, on an event loop in a thread, for clients that block."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from amqp_peer import HELLO, read_frames
from millstream.broker.broker import Broker, BrokerOptions
from millstream.protocol.amqp.connection import AmqpLimits
from millstream.protocol.amqp.frames import FRAME_HEADER, METHOD, method_frame
from millstream.protocol.amqp.method_codec import AmqpMethod, decode_method
from millstream.protocol.amqp.session_methods import ChannelOpen, ConnectionTuneOk
from millstream.proxy.amqp.server import AmqpServer
from millstream.proxy.local import LocalBackend
from millstream.proxy.processor import Processor
from millstream.proxy.remote.backend import RemoteBackend
from millstream.security.guard import Guard
from millstream.security.tls import ServerIdentity, TlsMode
from millstream.store.message_store import StoreOptions
from patience import PATIENCE_S
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


class RawClient:
    """A connection that sends what it is given."""

    def __init__(self, site: AmqpSite, *, heartbeat_s: int = 0, opens: bool = True) -> None:
        self.socket = socket.create_connection(("127.0.0.1", site.port))
        self.socket.settimeout(PATIENCE_S)
        self._rest = b""
        if opens:
            for data in HELLO[:2]:
                self.send(data)
                self.method()
            self.send(method_frame(0, ConnectionTuneOk(0, 0, heartbeat_s)) + HELLO[3])
            self.method()
            self.ask(ChannelOpen())

    def __enter__(self) -> RawClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def frame(self) -> tuple[int, int, bytes]:
        """The next frame; EOFError where the server has closed."""
        while True:
            if len(self._rest) >= FRAME_HEADER.size:
                size = FRAME_HEADER.unpack_from(self._rest)[2] + FRAME_HEADER.size + 1
                if len(self._rest) >= size:
                    found, self._rest = self._rest[:size], self._rest[size:]
                    return read_frames(found)[0]
            data = self.socket.recv(65_536)
            if not data:
                raise EOFError
            self._rest += data

    def method(self) -> AmqpMethod:
        """The next method; heartbeats are passed over."""
        while True:
            kind, _, payload = self.frame()
            if kind == METHOD:
                return decode_method(payload)

    def ask(self, method: AmqpMethod) -> AmqpMethod:
        self.send(method_frame(1, method))
        return self.method()
