"""The server side of remoting: listens, tracks connections, and dispatches requests to handlers."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections import Counter
from collections.abc import Mapping
from typing import Final

from millstream.model.clock import Clock, SystemClock
from millstream.protocol.remoting.frame import MAX_FRAME_BYTES
from millstream.security.tls import ServerIdentity, TlsMode
from millstream.telemetry.counters import RpcLatency
from millstream.telemetry.processes import descriptor_limit
from millstream.transport.connection_memory import SWEEP_INTERVAL_S, ConnectionMemory
from millstream.transport.descriptor_budget import DescriptorBudget
from millstream.transport.gate import RemotingGate
from millstream.transport.listening import listen_refused
from millstream.transport.remoting_connection import Connection, Handler
from millstream.transport.strangers import StrangerAct, StrangerLog
from millstream.transport.tls_sniffer import HANDSHAKE_LIMIT_S, Enter, TlsSniffer

__all__ = [
    "CLOSE_GRACE_S",
    "IDLE_LIMIT_S",
    "MAX_CONNECTIONS",
    "MAX_HELLO_BYTES",
    "RECEIVE_BYTES",
    "RemotingServer",
    "offers_http2",
    "speaks_http2",
]


MAX_HELLO_BYTES: Final = 16 * 1024 + 5
"""Bytes of a TLS record at most, which is as much of a client's hello as is looked at."""

_FIRST_LETTER: Final = b"P"
_RECORD_HEADER_BYTES: Final = 5
_SESSION_ID: Final = 4 + 2 + 32
"""Where in a hello the length of the session id is: behind its type and length, the version and the random."""
_ALPN: Final = 16
_PAUSE_S: Final = 0.005


async def speaks_http2(connection: socket.socket, is_tls: bool) -> bool:
    """Look at a connection on which something has arrived. TimeoutError where the hello does not come to its end."""
    if not is_tls:
        return connection.recv(1, socket.MSG_PEEK) == _FIRST_LETTER
    async with asyncio.timeout(HANDSHAKE_LIMIT_S):
        while True:
            seen = connection.recv(MAX_HELLO_BYTES, socket.MSG_PEEK)
            if not seen:
                raise ConnectionResetError("closed within its hello")
            if len(seen) >= _RECORD_HEADER_BYTES:
                end = _RECORD_HEADER_BYTES + int.from_bytes(seen[3:5])
                if len(seen) >= min(end, MAX_HELLO_BYTES):
                    return offers_http2(seen[_RECORD_HEADER_BYTES:end])
            # The socket counts as readable all the while, so there is nothing to wait for but time.
            await asyncio.sleep(_PAUSE_S)


def offers_http2(hello: bytes) -> bool:
    """Whether a client's hello, without the record's header, offers `h2`; False for what is none."""
    place = _behind(hello, _SESSION_ID, 1)
    place = _behind(hello, place, 2)  # cipher suites
    place = _behind(hello, place, 1) + 2  # compression methods, length of the extensions
    while place + 4 <= len(hello):
        kind, size = int.from_bytes(hello[place : place + 2]), int.from_bytes(hello[place + 2 : place + 4])
        if kind == _ALPN:
            return _names(hello[place + 6 : place + 4 + size], b"h2")
        place += 4 + size
    return False


def _behind(data: bytes, place: int, length_bytes: int) -> int:
    """Where the field ends whose length is at `place`."""
    return place + length_bytes + int.from_bytes(data[place : place + length_bytes])


def _names(offered: bytes, wanted: bytes) -> bool:
    place = 0
    while place < len(offered):
        end = place + 1 + offered[place]
        if offered[place + 1 : end] == wanted:
            return True
        place = end
    return False


_log = logging.getLogger(__name__)

MAX_CONNECTIONS: Final = 10_000
"""Connections of one server at most, and no more than there are descriptors for (DescriptorBudget); the next one is
closed at once."""

IDLE_LIMIT_S: Final = 120.0
"""Seconds without a byte from the peer and without a waiting request, after which a connection is closed."""

RECEIVE_BYTES: Final = 256 * 1024
"""Bytes that are read at a time, but for large bodies; all connections of a server share the room for them."""

CLOSE_GRACE_S: Final = 0.25
"""Seconds that requests under way get to end when the server closes; long polls are cut off then."""

_IDLE_CHECK_S = 10.0


def _keep_freed_memory() -> None:
    """Let the C library keep up to two frames of freed memory instead of giving it back after every large request.

    glibc keeps as much as twice the largest block that it has mapped and freed. This one is mapped and never touched;
    the first frame of the largest size would have the same effect. To fault its pages in again doubles what the system
    does for a large request.
    """
    bytes(MAX_FRAME_BYTES)


class RemotingServer:
    """Listens on one address and hands requests to the handler of their code."""

    def __init__(
        self,
        handlers: Mapping[int, Handler],
        host: str = "127.0.0.1",
        port: int = 0,
        *,
        clock: Clock | None = None,
        memory: ConnectionMemory | None = None,
    ) -> None:
        self.handlers = handlers
        self.memory = memory or ConnectionMemory()
        """What the connections hold; one for all servers of a process, which have the same clock."""
        self.admits = True
        """Whether connections are kept; a server that is not ready cuts them off, so that clients go elsewhere."""
        self.gate: RemotingGate | None = None
        """Asked before any handler; None lets everybody in."""
        self._host = host
        self._port = port
        self._clock = clock or SystemClock()
        self.tls: tuple[ServerIdentity, TlsMode] | None = None
        """What is shown to TLS clients, and whether others are let in; set before `start`."""
        self.carry: Enter | None = None
        """Takes the connections that speak HTTP/2 instead, as those of gRPC clients; set before `start`."""
        self.descriptors = DescriptorBudget.of_limit(descriptor_limit())
        """What connections take; set before `start` where ports share it."""
        self.strangers = StrangerLog(self._clock)
        """What they do wrong; set before `start` where ports share it."""
        self._doorway: TlsSniffer | None = None
        self._connections: set[Connection] = set()
        self.latency = RpcLatency()
        """How long the requests that it knows took, by request and response code."""
        self.unanswered: Counter[int] = Counter()
        """Requests that were read and are not answered yet, by request code."""
        self._idle_check: asyncio.TimerHandle | None = None
        self._sweep: asyncio.TimerHandle | None = None
        # One for all, because a loop asks for it right before it reads and hands it over right after.
        self.receiving = memoryview(bytearray(RECEIVE_BYTES))

    @property
    def connections(self) -> int:
        """Connections that are open."""
        return len(self._connections)

    @property
    def port(self) -> int:
        """The bound port; 0 while it does not listen."""
        return 0 if self._doorway is None else self._doorway.port

    async def start(self) -> int:
        """Listen; the port that was bound. Raises StartRefused: PORT_IN_USE, ADDRESS_NOT_LOCAL."""
        loop = asyncio.get_running_loop()
        _keep_freed_memory()
        try:
            self._doorway = TlsSniffer(self._enter, self.descriptors, self.strangers, admits=self._has_room)
            port = await self._doorway.start(self._host, self._port)
        except OSError as error:
            raise listen_refused(self._host, self._port, error) from None
        self._idle_check = loop.call_later(_IDLE_CHECK_S, self._repeat_idle_check)
        self._sweep = loop.call_later(SWEEP_INTERVAL_S, self._repeat_sweep)
        return port

    async def _enter(self, connection: socket.socket, is_tls: bool) -> None:
        """Take a connection that came through the doorway."""
        identity, mode = self.tls or (None, TlsMode.PERMISSIVE)
        if mode is TlsMode.REQUIRED and not is_tls:
            raise ConnectionAbortedError("plaintext where TLS is required")
        offers_tls = self.tls is not None or self.carry is not None
        if is_tls and identity is None and offers_tls:
            raise ConnectionAbortedError("TLS where there is none")
        if self.carry is not None and await speaks_http2(connection, is_tls):
            await self.carry(connection, is_tls)
            return
        context = identity.context if identity is not None and is_tls else None
        await asyncio.get_running_loop().connect_accepted_socket(
            lambda: Connection(self, self._clock),
            connection,
            ssl=context,
            ssl_handshake_timeout=HANDSHAKE_LIMIT_S if context is not None else None,
        )

    async def close(self) -> None:
        """Stop listening, let requests under way end for `CLOSE_GRACE_S`, then close every connection."""
        if self._idle_check is not None:
            self._idle_check.cancel()
        if self._sweep is not None:
            self._sweep.cancel()
        if self._doorway is None:
            return
        self._doorway.close()
        waiting = [future for connection in self._connections for future in connection.waiting]
        if waiting:
            await asyncio.wait(waiting, timeout=CLOSE_GRACE_S)
            # Their answers are made in callbacks, which run after this turn at the latest.
            await asyncio.sleep(0)
        for connection in list(self._connections):
            connection.close()
        for future in waiting:
            future.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        self._doorway = None

    def close_idle(self) -> None:
        """Close the connections whose peer said nothing for `IDLE_LIMIT_S` and waits for nothing."""
        limit_s = self._clock.monotonic_s() - IDLE_LIMIT_S
        for connection in list(self._connections):
            if connection.last_read_s < limit_s and not connection.waiting:
                # Who does not read would keep the connection open for as long as it likes.
                (connection.abort if connection.has_unread else connection.close)()

    def add(self, connection: Connection) -> None:
        """A connection says that it is there."""
        self.descriptors.note()
        if self._has_room():
            self._connections.add(connection)
        else:
            connection.abort()

    def remove(self, connection: Connection) -> None:
        """A connection says that it is gone."""
        self.descriptors.free()
        self._connections.discard(connection)

    def _has_room(self) -> bool:
        """Whether one more connection may come."""
        if self.admits and len(self._connections) >= MAX_CONNECTIONS:
            words = f"Refusing a connection to {self._host}:{self._port}: {MAX_CONNECTIONS} are open."
            self.strangers.say(_log, StrangerAct.REFUSED, words)
            return False
        return self.admits

    def _repeat_idle_check(self) -> None:
        self.close_idle()
        self._idle_check = asyncio.get_running_loop().call_later(_IDLE_CHECK_S, self._repeat_idle_check)

    def _repeat_sweep(self) -> None:
        self.memory.sweep(self._clock.monotonic_s())
        self._sweep = asyncio.get_running_loop().call_later(SWEEP_INTERVAL_S, self._repeat_sweep)
