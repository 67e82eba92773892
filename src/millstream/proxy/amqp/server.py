"""The AMQP port of a proxy."""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import socket
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final

from millstream import __version__
from millstream.client.outgoing import MessageIds
from millstream.model.clock import Clock, SystemClock
from millstream.model.errors import MillstreamError
from millstream.protocol.amqp.connection import HANDSHAKE_LIMIT_S as AMQP_HANDSHAKE_LIMIT_S
from millstream.protocol.amqp.connection import AmqpLimits
from millstream.protocol.amqp.field_table import MAX_NAME_BYTES
from millstream.proxy.amqp.access import AmqpAccess
from millstream.proxy.amqp.connection import AmqpConnection
from millstream.proxy.amqp.dead_letters import AmqpDeadLetters
from millstream.proxy.amqp.direct_replies import DirectReplies
from millstream.proxy.amqp.names import DEFAULT_HOST
from millstream.proxy.amqp.publisher import AmqpPublisher
from millstream.proxy.amqp.queue_limits import SWEEP_INTERVAL_S, QueueLimits
from millstream.proxy.amqp.queues import ProxyQueues
from millstream.proxy.amqp.session import AmqpShared
from millstream.proxy.amqp.topology import LEASE_INTERVAL_S, Topology
from millstream.proxy.backend import BrokerBackend
from millstream.proxy.processor import Processor
from millstream.security.guard import Guard
from millstream.security.tls import ServerIdentity, TlsMode
from millstream.telemetry.metrics import MetricsPage
from millstream.telemetry.port_traffic import PortTraffic, add_port
from millstream.telemetry.processes import descriptor_limit
from millstream.transport.connection_memory import ConnectionMemory
from millstream.transport.descriptor_budget import DescriptorBudget
from millstream.transport.listening import listen_refused
from millstream.transport.strangers import StrangerAct, StrangerLog
from millstream.transport.tls_sniffer import HANDSHAKE_LIMIT_S, TlsSniffer

__all__ = ["BLOCK_S", "CLOSE_GRACE_S", "MAX_CONNECTIONS", "TICK_INTERVAL_S", "AmqpServer"]

MAX_CONNECTIONS: Final = 20_000
"""Connections of one server at most, and no more than there are descriptors for."""

TICK_INTERVAL_S: Final = 1.0
"""How often heartbeats and silent peers are looked for."""

CLOSE_GRACE_S: Final = 1.0
"""Seconds that clients have to answer that the server stops."""

BLOCK_S: Final = 5.0
"""Seconds that clients are told not to publish after the brokers could not take a message; then they may try again."""

_RENEW_INTERVAL_S: Final = 5.0
_POLL_S: Final = 0.01

_log = logging.getLogger(__name__)


class AmqpServer:
    """Serves clients on `host`:`port` (0 takes a free port). Who made processor and backend starts and closes them.

    `guard` is the access control, `tls` what is shown to TLS clients and whether others are let in. `memory`,
    `descriptors` and `strangers` are for servers that share them with others of the process. `virtual_hosts` are those
    that there are beside `/`; each is the namespace of its name.
    """

    def __init__(
        self,
        processor: Processor,
        backend: BrokerBackend,
        host: str,
        port: int,
        *,
        guard: Guard | None = None,
        tls: tuple[ServerIdentity, TlsMode] | None = None,
        memory: ConnectionMemory | None = None,
        descriptors: DescriptorBudget | None = None,
        strangers: StrangerLog | None = None,
        clock: Clock | None = None,
        limits: AmqpLimits | None = None,
        virtual_hosts: Iterable[str] = (),
    ) -> None:
        self.clock = clock or SystemClock()
        self.memory = memory or ConnectionMemory()
        self.strangers = strangers or StrangerLog(self.clock)
        self.limits = limits or AmqpLimits()
        self.version = __version__
        self._host, self._port = host, port
        self._processor = processor
        self._tls = tls
        self._descriptors = descriptors or DescriptorBudget.of_limit(descriptor_limit())
        self._name = os.urandom(8).hex()
        self._numbers = itertools.count(1)
        self._doorway: TlsSniffer | None = None
        self._connections: set[AmqpConnection] = set()
        self._timers: list[asyncio.Task[None]] = []
        topology = Topology(backend, (DEFAULT_HOST, *virtual_hosts), self.clock, self._name)
        publisher, ids = AmqpPublisher(backend, topology.make_topic), MessageIds()
        publisher.on_full = self._block
        self._unblocking: asyncio.TimerHandle | None = None
        dead_letters = AmqpDeadLetters(publisher, ids, self.clock)
        queues = ProxyQueues(backend, topology, dead_letters, self.clock)
        self._limits = QueueLimits(backend, topology, queues, self.clock)
        self._traffic = PortTraffic()
        access, replies = AmqpAccess(guard), DirectReplies()
        self.shared = AmqpShared(
            topology, queues, publisher, replies, ids, access, self.clock, self._traffic, processor.throttle
        )

    @property
    def connections(self) -> int:
        """Connections that are open."""
        return len(self._connections)

    def add_metrics(self, page: MetricsPage) -> None:
        """Tell the page of this port."""
        self._traffic.sessions = sum(len(connection.session.channels) for connection in self._connections)
        add_port(page, "amqp", len(self._connections), self._traffic)

    async def start(self, listening: Sequence[socket.socket] = ()) -> int:
        """Listen, on sockets that do so already if there are some; the bound port.

        StartRefused with PORT_IN_USE or ADDRESS_NOT_LOCAL where that fails. Clients can open their virtual hosts once
        the declarations are known.
        """
        self._doorway = TlsSniffer(self._enter, self._descriptors, self.strangers, admits=self._has_room)
        try:
            port = await self._doorway.start(self._host, self._port, listening=listening)
        except OSError as error:
            raise listen_refused(self._host, self._port, error) from None
        self.shared.throttle = self._processor.throttle
        await self.shared.topology.start()
        loop = asyncio.get_running_loop()
        self._timers = [
            loop.create_task(self._tick_forever(), name="amqp-tick"),
            loop.create_task(self._repeat(self.renew, _RENEW_INTERVAL_S), name="amqp-renew"),
            loop.create_task(self._repeat(self.shared.topology.renew_lease, LEASE_INTERVAL_S), name="amqp-lease"),
            loop.create_task(self._repeat(self.shared.topology.welcome_brokers, LEASE_INTERVAL_S), name="amqp-brokers"),
            loop.create_task(self._repeat(self._limits.sweep, SWEEP_INTERVAL_S), name="amqp-limits"),
        ]
        return port

    async def close(self, grace_s: float = CLOSE_GRACE_S) -> None:
        """Tell clients that the server stops, and let what they hold go back to the brokers."""
        if self._doorway is None:
            return
        self._doorway.close()
        self._doorway = None
        for timer in self._timers:
            timer.cancel()
        if self._unblocking is not None:
            self._unblocking.cancel()
        for connection in list(self._connections):
            connection.stop()
        loop = asyncio.get_running_loop()
        end_s = loop.time() + grace_s
        # Their ends have no event of their own.
        while self._connections and loop.time() < end_s:  # noqa: ASYNC110
            await asyncio.sleep(_POLL_S)
        for connection in list(self._connections):
            connection.abort()
        await asyncio.sleep(0)
        await self.shared.publisher.close()
        await self.shared.queues.close()
        await self.shared.topology.close()

    # for connections

    def next_name(self) -> str:
        """See `AmqpPort`."""
        return f"{self._name}:{next(self._numbers)}"

    def add(self, connection: AmqpConnection) -> None:
        """See `AmqpPort`."""
        self._descriptors.note()
        if self._has_room():
            self._connections.add(connection)
        else:
            connection.abort()

    def remove(self, connection: AmqpConnection) -> None:
        """See `AmqpPort`."""
        self._descriptors.free()
        self._connections.discard(connection)

    async def _enter(self, connection: socket.socket, is_tls: bool) -> None:
        """Take a connection that came through the doorway."""
        identity, mode = self._tls or (None, TlsMode.PERMISSIVE)
        if mode is TlsMode.REQUIRED and not is_tls:
            raise ConnectionAbortedError("plaintext where TLS is required")
        if is_tls and identity is None:
            raise ConnectionAbortedError("TLS where there is none")
        async with asyncio.timeout(AMQP_HANDSHAKE_LIMIT_S):
            await self.shared.topology.ready()
        context = identity.context if identity is not None and is_tls else None
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        await asyncio.get_running_loop().connect_accepted_socket(
            lambda: AmqpConnection(self),
            connection,
            ssl=context,
            ssl_handshake_timeout=HANDSHAKE_LIMIT_S if context is not None else None,
        )

    def _has_room(self) -> bool:
        if len(self._connections) < MAX_CONNECTIONS:
            return True
        words = f"Refusing a connection to {self._host}:{self._port}: {MAX_CONNECTIONS} are open."
        self.strangers.say(_log, StrangerAct.REFUSED, words)
        return False

    def _block(self, error: MillstreamError) -> None:
        """Tell clients that understand it to publish nothing for a while."""
        if self._unblocking is not None:
            return
        _log.warning("AMQP clients are told to wait with messages: %s", error)
        for connection in self._connections:
            connection.core.block(error.message[: MAX_NAME_BYTES // 4])
            connection.flush_soon()
        self._unblocking = asyncio.get_running_loop().call_later(BLOCK_S, self._unblock)

    def _unblock(self) -> None:
        self._unblocking = None
        for connection in self._connections:
            connection.core.unblock()
            connection.flush_soon()

    async def _tick_forever(self) -> None:
        while True:
            await asyncio.sleep(TICK_INTERVAL_S)
            now_s = self.clock.monotonic_s()
            for connection in list(self._connections):
                connection.tick(now_s)
            self.memory.sweep(now_s)

    async def _repeat(self, work: Callable[[], Awaitable[None]], interval_s: float) -> None:
        while True:
            await asyncio.sleep(interval_s)
            try:
                await work()
            except MillstreamError as error:
                _log.warning("something of the AMQP port was not done; the next attempt follows: %s", error)
            except Exception:  # noqa: BLE001 - a task of the server's whole life must outlive one bad turn
                _log.exception("something of the AMQP port was not done; the next attempt follows")

    async def renew(self) -> None:
        """Keep what clients have not settled out of others' sight."""
        for connection in list(self._connections):
            for channel in list(connection.session.channels.values()):
                for delivery in channel.list_unsettled():
                    await delivery.queue.renew(delivery)
        for delivery in self.shared.queues.list_held():
            await delivery.queue.renew(delivery)
