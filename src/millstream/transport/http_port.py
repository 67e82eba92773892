"""An HTTP/1.1 port: detects TLS by the first byte, serves an ASGI application through uvicorn.

Heads, idle connections and answers that are not read are bounded. A GET that asks for a WebSocket comes to the
application as any other, with `WEBSOCKET_EXTENSION` among the extensions of its scope: a call that answers the
handshake and gives back the WebSocket, after which the request has no other answer.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from http import HTTPStatus
from typing import Any, Final, cast

import httptools
import uvicorn
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from millstream.model.clock import Clock, SystemClock
from millstream.model.errors import ConnectionFailed, MillstreamError
from millstream.protocol.problem import PROBLEM_TYPE, encode_problem
from millstream.protocol.websocket import accept_fields
from millstream.security.tls import ServerIdentity, TlsMode
from millstream.telemetry.processes import descriptor_limit
from millstream.transport.connection_memory import SWEEP_INTERVAL_S, ConnectionMemory
from millstream.transport.descriptor_budget import DescriptorBudget
from millstream.transport.listening import listen_refused
from millstream.transport.strangers import StrangerAct, StrangerLog
from millstream.transport.tls_sniffer import HANDSHAKE_LIMIT_S, TlsSniffer
from millstream.transport.unread_buffer import UnreadBuffer
from millstream.transport.websocket_connection import WebSocketConnection

__all__ = [
    "HEAD_LIMIT_S",
    "HTTP_IDLE_LIMIT_S",
    "HTTP_UNREAD_LIMIT_S",
    "LINGER_S",
    "MAX_HTTP_CONNECTIONS",
    "MAX_HTTP_HEAD_BYTES",
    "MAX_PIPELINED_REQUESTS",
    "READ_AHEAD_BYTES",
    "WEBSOCKET_EXTENSION",
    "AsgiPort",
]

_log = logging.getLogger(__name__)

MAX_HTTP_CONNECTIONS: Final = 10_000
"""Connections of one HTTP port at most, and no more than there are descriptors for; the next one is closed at once."""

MAX_HTTP_HEAD_BYTES: Final = 64 * 1024
"""Bytes of a request's line and headers at most."""

MAX_PIPELINED_REQUESTS: Final = 16
"""Requests of a connection that wait behind one that is under way; while there are so many, the client is not read."""

HEAD_LIMIT_S: Final = 10.0
"""Seconds in which the head of a request must have arrived, from its first byte on."""

HTTP_IDLE_LIMIT_S: Final = 75
"""Seconds without a request after which a connection is closed; proxies of others keep theirs for 60 s."""

HTTP_UNREAD_LIMIT_S: Final = 30.0
"""Seconds that a client may leave its answer unread once the buffer is full; then the connection is closed."""

LINGER_S: Final = 2.0
"""Seconds that a refused client may go on sending: a connection that is closed before has its answer thrown away."""

WEBSOCKET_EXTENSION: Final = "millstream.websocket"
"""The name of what opens a WebSocket: called with the header fields of a handshake that was checked."""

_PIECE_BYTES: Final = 1024
"""Bytes that the parser gets at a time, unless a body goes on: it does not stop within them, and each request of a few
bytes is kilobytes."""

_READ_BYTES: Final = 16 * 1024
_BODY_AHEAD_BYTES: Final = 8 * 1024
"""Bytes that one read takes at most, where the transport lets itself be told, and bytes of a body that its application
has not asked for over which no more are read: there may be ten thousand connections."""

READ_AHEAD_BYTES: Final = 16 * 1024
"""Bytes of a body that a port reads ahead of the application, mostly: it counts them with those that it has taken."""

_HEADER_MARKS: Final = 4
"""Bytes that a header has beside its name and value."""

_POLL_S: Final = 0.01
_LAST_TURNS: Final = 10
"""Turns of the event loop in which the end of every connection is told; TLS needs three."""


class AsgiPort:
    """Hands the requests that come to `host`:`port` to `application`, an application of ASGI 3.

    `tls` is what is shown to TLS clients and whether others are let in. `memory`, `descriptors` and `strangers` are for
    ports that share them with others of the process.
    """

    def __init__(
        self,
        application: Any,
        host: str = "127.0.0.1",
        port: int = 0,
        *,
        clock: Clock | None = None,
        memory: ConnectionMemory | None = None,
        tls: tuple[ServerIdentity, TlsMode] | None = None,
        descriptors: DescriptorBudget | None = None,
        strangers: StrangerLog | None = None,
    ) -> None:
        self.clock = clock or SystemClock()
        self.memory = memory or ConnectionMemory()
        self.strangers = strangers or StrangerLog(self.clock)
        self._descriptors = descriptors or DescriptorBudget.of_limit(descriptor_limit())
        self._host = host
        self._port = port
        self._tls = tls
        self._config = uvicorn.Config(
            application,
            http="httptools",
            ws="none",
            lifespan="off",
            interface="asgi3",
            log_config=None,
            log_level=logging.CRITICAL,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            date_header=False,
            timeout_keep_alive=HTTP_IDLE_LIMIT_S,
        )
        self._state = ServerState()
        self._doorway: TlsSniffer | None = None
        self._connections: set[_HttpConnection | WebSocketConnection] = set()
        self._sweep: asyncio.TimerHandle | None = None

    @property
    def connections(self) -> int:
        """Connections that are open."""
        return len(self._connections)

    async def start(self, listening: Sequence[socket.socket] = ()) -> int:
        """Listen, on sockets that do so already if there are some; the bound port.

        StartRefused with PORT_IN_USE or ADDRESS_NOT_LOCAL where that fails.
        """
        self._config.load()
        self._doorway = TlsSniffer(self.enter, self._descriptors, self.strangers, admits=self._has_room)
        try:
            port = await self._doorway.start(self._host, self._port, listening=listening)
        except OSError as error:
            self._doorway = None
            raise listen_refused(self._host, self._port, error) from None
        self._repeat_sweep()
        return port

    async def enter(self, connection: socket.socket, is_tls: bool) -> None:
        """Take a connection of a client, who begins it as TLS or not. OSError where it cannot be taken."""
        identity, mode = self._tls or (None, TlsMode.PERMISSIVE)
        if mode is not TlsMode.PERMISSIVE and not is_tls:
            raise ConnectionAbortedError("plaintext where TLS is required")
        if self._doorway is None:
            raise ConnectionAbortedError("the HTTP port is not open")
        context = identity.context if identity is not None and is_tls else None
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        await asyncio.get_running_loop().connect_accepted_socket(
            partial(_HttpConnection, self, self._config, self._state),
            connection,
            ssl=context,
            ssl_handshake_timeout=HANDSHAKE_LIMIT_S if context is not None else None,
        )

    def stop_listening(self) -> None:
        """Take no more connections, and close those that have no request under way."""
        if self._doorway is None:
            return
        self._doorway.close()
        self._doorway = None
        for connection in list(self._connections):
            connection.shutdown()

    async def close(self, grace_s: float) -> None:
        """Take no more requests, answer those under way for up to `grace_s`, then close every connection."""
        self.stop_listening()
        loop = asyncio.get_running_loop()
        end_s = loop.time() + grace_s
        # What ends has no event of its own.
        while self._connections and loop.time() < end_s:  # noqa: ASYNC110
            await asyncio.sleep(_POLL_S)
        if self._sweep is not None:
            self._sweep.cancel()
        for connection in list(self._connections):
            connection.transport.abort()
        for _ in range(_LAST_TURNS):
            if not self._connections:
                break
            await asyncio.sleep(0)

    def add(self, connection: _HttpConnection) -> None:
        """A connection says that it is there."""
        self._descriptors.note()
        self._connections.add(connection)
        if not self._has_room(own=1):
            connection.transport.abort()

    def remove(self, connection: _HttpConnection | WebSocketConnection) -> None:
        """A connection says that it is gone."""
        self._descriptors.free()
        self._connections.discard(connection)

    def replace(self, connection: _HttpConnection, websocket: WebSocketConnection) -> None:
        """A connection says that it is a WebSocket from now on."""
        self._connections.discard(connection)
        self._connections.add(websocket)

    def check_connections(self) -> None:
        """End the connections whose head does not come, and those that do not read."""
        now_s = self.clock.monotonic_s()
        for connection in list(self._connections):
            connection.check_times(now_s)
            connection.unread.measure(now_s)

    def _has_room(self, own: int = 0) -> bool:
        """Whether one more connection may come; `own` counts the one that asks."""
        if len(self._connections) - own < MAX_HTTP_CONNECTIONS:
            return True
        words = f"Refusing a connection to {self._host}:{self._port}: {MAX_HTTP_CONNECTIONS} are open."
        self.strangers.say(_log, StrangerAct.REFUSED, words)
        return False

    def _repeat_sweep(self) -> None:
        self.check_connections()
        self.memory.sweep(self.clock.monotonic_s())
        self._sweep = asyncio.get_running_loop().call_later(SWEEP_INTERVAL_S, self._repeat_sweep)


class _HttpConnection(HttpToolsProtocol):
    """uvicorn's connection, which counts what it has received of a head and since when."""

    def __init__(self, port: AsgiPort, config: uvicorn.Config, state: ServerState) -> None:
        super().__init__(config, state, {})
        self._port = port
        self._is_in_head = True
        self._has_turned = False
        """Whether the chunk that is being read had the end of a head."""
        self._head_bytes = 0
        self._head_since_s: float | None = None
        self._refused_s: float | None = None
        self._cycles: list[RequestResponseCycle] = []
        """The requests that are under way, or wait behind one that is."""
        self._body_left = 0
        """Bytes of the present body that are still to come, as its head says."""
        self._chunk = b""
        self._held = b""
        """What was received and not parsed, because too many requests wait."""
        self._early: bytes | None = None
        """What came behind a request for a WebSocket; None as long as there was none."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if hasattr(transport, "max_size"):
            transport.max_size = _READ_BYTES
        self.unread = UnreadBuffer(self._port, transport, self._host)
        self._port.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._port.remove(self)
        self.unread.note_read()
        self._held = b""
        self._early = None if self._early is None else b""
        super().connection_lost(exc)
        # uvicorn tells the last request alone, which may wait behind one that goes on for ever.
        self._leave_requests()

    def data_received(self, data: bytes) -> None:
        if self._held:
            self._held += data
            self.flow.pause_reading()
        else:
            self._parse(data)

    def _parse(self, data: bytes) -> None:
        """Parse piece by piece until too many requests wait; the rest is kept."""
        place, end = 0, len(data)
        while place < end:
            if self.parser is None or self.transport.is_closing() or self._refused_s is not None:
                return
            if self._early is not None:
                self._early += data[place:]
                self.flow.pause_reading()
                return
            if len(self.pipeline) >= MAX_PIPELINED_REQUESTS:
                self._held = data[place:]
                self.flow.pause_reading()
                return
            size = max(self._body_left, _PIECE_BYTES)
            self._parse_piece(data[place : place + size] if place or end > size else data)
            place += size
        if self.pipeline and self._has_room and self._early is None and self._refused_s is None:
            # uvicorn does not read on behind a request that waits, and would not see the client go.
            self.flow.resume_reading()

    @property
    def _has_room(self) -> bool:
        """Whether one more request may wait."""
        waiting = len(self.pipeline)
        return waiting < MAX_PIPELINED_REQUESTS and sum([len(one.body) for one, _ in self.pipeline]) <= HIGH_WATER_LIMIT

    def _parse_piece(self, data: bytes) -> None:
        if self._is_in_head and self._head_since_s is None:
            self._head_since_s = self._port.clock.monotonic_s()
        began_in_head, self._has_turned = self._is_in_head, False
        self._chunk = data
        super().data_received(data)
        self._chunk = b""
        if began_in_head and not self._has_turned:
            self._head_bytes += len(data)
            if self._head_bytes > MAX_HTTP_HEAD_BYTES:
                self._refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, _head_too_large(self._head_bytes))

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._is_in_head = True

    def on_headers_complete(self) -> None:
        self._is_in_head, self._has_turned = False, True
        self._head_bytes, self._head_since_s = 0, None
        length = next((value for name, value in self.headers if name == b"content-length"), b"")
        self._body_left = int(length) if length.isdigit() else 0
        if self._refused_s is not None:
            # Behind a request that was refused, in the same chunk.
            return
        size_bytes = len(self.url) + sum([len(name) + len(value) + _HEADER_MARKS for name, value in self.headers])
        if size_bytes > MAX_HTTP_HEAD_BYTES:
            self._refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, _head_too_large(size_bytes))
            return
        if self._asks_for_websocket():
            self._early = b""
            # The parser reads no further request behind it.
            scope = cast("dict[str, Any]", self.scope)
            scope["extensions"] = {WEBSOCKET_EXTENSION: partial(self._open_websocket, scope)}
        super().on_headers_complete()
        if self._early is not None:
            self.cycle.keep_alive = False
        self._cycles = [one for one in self._cycles if not one.response_complete]
        self._cycles.append(self.cycle)

    def on_body(self, body: bytes) -> None:
        self._body_left = max(self._body_left - len(body), 0)
        if self.cycle is not None and self._refused_s is None:
            super().on_body(body)
            if len(self.cycle.body) > _BODY_AHEAD_BYTES:
                self.flow.pause_reading()

    def on_message_complete(self) -> None:
        self._is_in_head = True
        if self.cycle is not None:
            super().on_message_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._held:
            data, self._held = self._held, b""
            self._parse(data)
            if self._held:
                # uvicorn reads on as soon as one request is answered, however many wait.
                self.flow.pause_reading()

    def _asks_for_websocket(self) -> bool:
        is_get = self.parser.get_method() == b"GET" and self.parser.get_http_version() == "1.1"
        return is_get and bool(self.parser.should_upgrade()) and self._get_upgrade() == b"websocket"

    def _unsupported_upgrade_warning(self) -> None:
        # uvicorn calls it for each upgrade, while it handles the error of the parser that tells where the head ends.
        error = sys.exception()
        if self._early is not None and isinstance(error, httptools.HttpParserUpgrade):
            self._early += self._chunk[error.args[0] :]

    def _open_websocket(self, scope: Mapping[str, Any], fields: Mapping[str, str]) -> WebSocketConnection:
        """Answer the handshake. ConnectionError where the client is gone."""
        cycle = self.cycle
        if cycle is None or cycle.scope is not scope or cycle.disconnected or self.transport.is_closing():
            raise ConnectionAbortedError("the client went before its WebSocket was open")
        websocket = WebSocketConnection(self._port, self.transport, self._host)
        self._port.replace(self, websocket)
        self.connections.discard(self)
        # uvicorn is done with the connection: what the application leaves it to write comes to nothing.
        cycle.disconnected = True
        cycle.message_event.set()
        self.transport.set_protocol(websocket)
        lines = "".join([f"{name}: {value}\r\n" for name, value in accept_fields(fields)])
        self.transport.write(f"HTTP/1.1 101 Switching Protocols\r\n{lines}\r\n".encode())
        self.flow.resume_reading()
        self.unread.note_read()
        if self.flow.write_paused:
            # Answers before the handshake fill the buffer, and the transport says so once.
            websocket.pause_writing()
        # This object is done, and part of circles: nothing tells it of the connection's end.
        early, self._early = self._early, b""
        self._cycles = []
        self.parser = None  # type: ignore[assignment]
        if early:
            websocket.feed(early)
        return websocket

    @property
    def _host(self) -> str:
        return self.client[0] if self.client is not None else "unknown"

    def pause_writing(self) -> None:
        super().pause_writing()
        self.unread.note_full()

    def resume_writing(self) -> None:
        super().resume_writing()
        self.unread.note_read()

    def send_400_response(self, msg: str) -> None:
        words = "The bytes are no HTTP/1.1 request."
        self._refuse(HTTPStatus.BAD_REQUEST, ConnectionFailed("REQUEST_MALFORMED", words))

    def check_times(self, now_s: float) -> None:
        """End the connection where its head, or its reading of an answer, takes too long."""
        if self._refused_s is not None:
            if now_s - self._refused_s >= LINGER_S:
                self.transport.abort()
        elif self.unread.since_s is not None and now_s - self.unread.since_s >= HTTP_UNREAD_LIMIT_S:
            self.transport.abort()
        elif self._head_since_s is not None and now_s - self._head_since_s >= HEAD_LIMIT_S:
            words = f"The head of the request did not arrive whole in {HEAD_LIMIT_S:g} s."
            self._refuse(HTTPStatus.REQUEST_TIMEOUT, ConnectionFailed("REQUEST_TOO_SLOW", words))

    def _refuse(self, status: HTTPStatus, error: MillstreamError) -> None:
        """Answer in the place of the application, and close. A request that is under way gets no answer any more."""
        if self.transport.is_closing() or self._refused_s is not None:
            return
        self._refused_s = self._port.clock.monotonic_s()
        cycle = self.cycle
        if cycle is None or cycle.response_complete:
            body = encode_problem(status, error)
            head = (
                f"HTTP/1.1 {status.value} {status.phrase}\r\nContent-Type: {PROBLEM_TYPE}\r\n"
                f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
            )
            self.transport.write(head.encode() + body)
        # Their applications must not write behind the end of what is sent.
        self._leave_requests()
        self._held = b""
        if self.transport.can_write_eof():
            self.transport.write_eof()
        else:
            self.transport.close()

    def _leave_requests(self) -> None:
        """Tell all requests that nobody waits for their answers any more; those that wait do not begin."""
        for one in self._cycles:
            if not one.response_complete:
                one.disconnected, one.waiting_for_100_continue = True, False
                # Not later, with the garbage collection of the circle in which it is.
                one.body = bytearray()
                one.message_event.set()
        self._cycles = []
        self.pipeline.clear()


def _head_too_large(size_bytes: int) -> ConnectionFailed:
    words = f"The head of the request has {size_bytes} bytes or more; the limit is {MAX_HTTP_HEAD_BYTES}."
    return ConnectionFailed("HEADERS_TOO_LARGE", words)
