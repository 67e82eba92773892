"""A gRPC port: listens, tracks connections, cancels overdue calls, and drains on close."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Iterable
from typing import Final, cast

from millstream.model.clock import Clock, SystemClock
from millstream.protocol.http2.connection import Http2Limits
from millstream.security.tls import ServerIdentity, TlsMode
from millstream.telemetry.processes import descriptor_limit
from millstream.transport.connection_memory import SWEEP_INTERVAL_S, ConnectionMemory
from millstream.transport.descriptor_budget import DescriptorBudget
from millstream.transport.grpc.call import CallHandler, GrpcMethod, ServerCall
from millstream.transport.grpc.connection import GrpcConnection
from millstream.transport.grpc.deadlines import TICK_S, DeadlineTable
from millstream.transport.strangers import StrangerAct, StrangerLog
from millstream.transport.tls_sniffer import HANDSHAKE_LIMIT_S, TlsSniffer

__all__ = [
    "GOODBYE_S",
    "IDLE_LIMIT_S",
    "MAX_CONNECTIONS",
    "PREFACE_LIMIT_S",
    "PROBE_AFTER_S",
    "PROBE_TIMEOUT_S",
    "GrpcPort",
]

_log = logging.getLogger(__name__)

MAX_CONNECTIONS: Final = 10_000
"""Connections of one port at most, and no more than there are descriptors for; the next one is closed at once."""

PREFACE_LIMIT_S: Final = 10.0
"""A connection that has not shown by then that it speaks HTTP/2 is closed."""

IDLE_LIMIT_S: Final = 300.0
"""A connection without a call for so long is closed in good order; clients send a heartbeat every 10 s."""

PROBE_AFTER_S: Final = 60.0
"""A connection that is silent for so long is asked for a sign of life."""

PROBE_TIMEOUT_S: Final = 20.0
"""One that does not give it by then is closed."""

GOODBYE_S: Final = 0.1
"""Seconds between the word that a port closes and its taking no further calls: what is on its way is answered."""

_CHECK_INTERVAL_S: Final = 2.0
_POLL_S: Final = 0.01
_LAST_TURNS: Final = 10
"""Turns of the event loop in which the end of every connection is told; TLS needs three."""


class GrpcPort:
    """Takes the calls of `methods` (by path) on `host`:`port` and hands them to `handler`, which is set in the turn in
    which `start` returns.

    Other methods are answered with UNIMPLEMENTED. `tls` is what is shown to TLS clients and whether others are let in.
    `shares_port`: see `TlsSniffer.start`.
    """

    def __init__(
        self,
        methods: Iterable[tuple[str, GrpcMethod]],
        host: str = "127.0.0.1",
        port: int = 0,
        *,
        clock: Clock | None = None,
        memory: ConnectionMemory | None = None,
        tls: tuple[ServerIdentity, TlsMode] | None = None,
        limits: Http2Limits | None = None,
        descriptors: DescriptorBudget | None = None,
        strangers: StrangerLog | None = None,
        shares_port: bool = False,
    ) -> None:
        self.methods = dict(methods)
        self.unknown = GrpcMethod("")
        """Stands for a method that the service does not have."""
        self.handler: CallHandler
        self.clock = clock or SystemClock()
        self.memory = memory or ConnectionMemory()
        self.http2_limits = limits or Http2Limits()
        self.calls = 0
        """Calls under way."""
        self.deadlines = DeadlineTable()
        """Of these calls."""
        self.strangers = strangers or StrangerLog(self.clock)
        self._descriptors = descriptors or DescriptorBudget.of_limit(descriptor_limit())
        self._host = host
        self._port = port
        self._shares_port = shares_port
        self._tls = tls
        self._doorway: TlsSniffer | None = None
        self._connections: set[GrpcConnection] = set()
        self._timers: dict[str, asyncio.TimerHandle] = {}

    @property
    def connections(self) -> int:
        """Connections that are open."""
        return len(self._connections)

    async def start(self) -> int:
        """Listen; the bound port. OSError where that fails."""
        self._doorway = TlsSniffer(self.enter, self._descriptors, self.strangers, admits=self._has_room)
        port = await self._doorway.start(self._host, self._port, shares_port=self._shares_port)
        self._repeat_tick()
        self._repeat_check()
        self._repeat_sweep()
        return port

    async def enter(self, connection: socket.socket, is_tls: bool) -> None:
        """Take a connection of a client, who begins it as TLS or not. OSError where it cannot be taken."""
        identity, mode = self._tls or (None, TlsMode.PERMISSIVE)
        if mode is not TlsMode.PERMISSIVE and not is_tls:
            raise ConnectionAbortedError("plaintext where TLS is required")
        if self._doorway is None:
            raise ConnectionAbortedError("the gRPC port is not open")
        context = identity.http2_context if identity is not None and is_tls else None
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        await asyncio.get_running_loop().connect_accepted_socket(
            lambda: cast("asyncio.Protocol", GrpcConnection(self)),
            connection,
            ssl=context,
            ssl_handshake_timeout=HANDSHAKE_LIMIT_S if context is not None else None,
        )

    async def close(self, grace_s: float) -> None:
        """Take no more calls, answer those under way for up to `grace_s`, then close every connection.

        The handler ends what would wait for longer, once this has begun.
        """
        if self._doorway is None:
            return
        self._doorway.close()
        self._doorway = None
        loop = asyncio.get_running_loop()
        end_s = loop.time() + grace_s
        for connection in list(self._connections):
            connection.say_goodbye()
        await asyncio.sleep(min(GOODBYE_S, grace_s))
        for connection in list(self._connections):
            connection.refuse_new()
        # What ends has no event of its own.
        while loop.time() < end_s and any(connection.calls for connection in self._connections):  # noqa: ASYNC110
            await asyncio.sleep(_POLL_S)
        for timer in self._timers.values():
            timer.cancel()
        for connection in list(self._connections):
            connection.close()
        # Their ends are told in the next turns.
        while self._connections and loop.time() < end_s:  # noqa: ASYNC110
            await asyncio.sleep(_POLL_S)
        for connection in list(self._connections):
            connection.abort()
        for _ in range(_LAST_TURNS):
            if not self._connections:
                break
            await asyncio.sleep(0)

    def add(self, connection: GrpcConnection) -> None:
        """A connection says that it is there."""
        self._descriptors.note()
        self._connections.add(connection)
        if not self._has_room(own=1):
            connection.abort()

    def remove(self, connection: GrpcConnection) -> None:
        """A connection says that it is gone."""
        self._descriptors.free()
        self._connections.discard(connection)

    def end_late_calls(self) -> None:
        """End the calls whose deadline has passed."""
        for call in self.deadlines.take_due(self.clock.monotonic_s()):
            cast("ServerCall", call).end_deadline()

    def check_connections(self) -> None:
        """Close the connections that speak no HTTP/2, that are gone without a word, and that nobody uses."""
        now_s = self.clock.monotonic_s()
        for connection in list(self._connections):
            silent_s = now_s - connection.last_read_s
            if connection.calls or connection.core.last_stream != connection.seen_stream:
                connection.used_s, connection.seen_stream = now_s, connection.core.last_stream
            if not connection.core.has_begun:
                if now_s - connection.began_s >= PREFACE_LIMIT_S:
                    connection.abort()
            elif connection.probed_s is not None and connection.last_read_s < connection.probed_s:
                if now_s - connection.probed_s >= PROBE_TIMEOUT_S:
                    connection.abort()
            elif now_s - connection.used_s >= IDLE_LIMIT_S:
                connection.refuse_new()
                connection.close()
            elif silent_s >= PROBE_AFTER_S:
                connection.probe(now_s)
            else:
                connection.probed_s = None

    def _has_room(self, own: int = 0) -> bool:
        """Whether one more connection may come; `own` counts the one that asks."""
        if len(self._connections) - own >= MAX_CONNECTIONS:
            words = f"Refusing a connection to {self._host}:{self._port}: {MAX_CONNECTIONS} are open."
            self.strangers.say(_log, StrangerAct.REFUSED, words)
            return False
        return True

    def _repeat_tick(self) -> None:
        self.end_late_calls()
        self._timers["tick"] = asyncio.get_running_loop().call_later(TICK_S, self._repeat_tick)

    def _repeat_check(self) -> None:
        self.check_connections()
        self._timers["check"] = asyncio.get_running_loop().call_later(_CHECK_INTERVAL_S, self._repeat_check)

    def _repeat_sweep(self) -> None:
        self.memory.sweep(self.clock.monotonic_s())
        self._timers["sweep"] = asyncio.get_running_loop().call_later(SWEEP_INTERVAL_S, self._repeat_sweep)
