"""The server's side of remoting: one asyncio protocol per connection, any number of requests in flight.

All frames of one chunk are handled in the turn in which it arrived, and all answers of one turn leave in one write:
the system calls, not the codec, set the cost of a small message. Of a large one it is the copies: its body is received
where it stays, and its answer's slices of the log are written as they are.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, Final, TypeVar, cast

from millstream.model.clock import Clock, SystemClock
from millstream.model.errors import ConnectionFailed, ConsumeRefused, MillstreamError, Refused, Unreachable
from millstream.model.message import Address
from millstream.protocol.remoting.codes import ResponseCode
from millstream.protocol.remoting.command import RemotingCommand
from millstream.protocol.remoting.frame import MAX_FRAME_BYTES, FrameDecoder, encode_frame, written_parts
from millstream.protocol.remoting.refusals import response_code_of
from millstream.security.tls import ServerIdentity, TlsMode
from millstream.telemetry.rpc_latency import RpcLatency
from millstream.transport.awaited_answers import AwaitedAnswers
from millstream.transport.doorway import HANDSHAKE_LIMIT_S, Doorway, Enter
from millstream.transport.gate import RemotingGate
from millstream.transport.listening import listen_refused
from millstream.transport.preface import speaks_http2
from millstream.transport.turns import TurnHandler

__all__ = [
    "CLOSE_GRACE_S",
    "IDLE_LIMIT_S",
    "MAX_ASKED",
    "MAX_CONNECTIONS",
    "MAX_IN_FLIGHT",
    "RECEIVE_BYTES",
    "WRITE_HIGH_WATER_BYTES",
    "Connection",
    "Handler",
    "RemotingServer",
]

_log = logging.getLogger(__name__)

MAX_CONNECTIONS: Final = 10_000
"""Connections of one server at most; the next one is closed at once."""

MAX_IN_FLIGHT: Final = 8192
"""Unanswered requests of one connection at most; over it nothing more is read from the connection."""

MAX_ASKED: Final = 64
"""Requests of the server's own that one client may have to answer at a time; the next one is refused."""

IDLE_LIMIT_S: Final = 120.0
"""Seconds without a byte from the peer and without a waiting request, after which a connection is closed."""

WRITE_HIGH_WATER_BYTES: Final = 4 * 1024 * 1024
"""Unsent bytes of a connection over which nothing more is read from it, so that a peer that does not read cannot
make the server hold its answers."""

RECEIVE_BYTES: Final = 256 * 1024
"""Bytes that are read at a time, but for large bodies; all connections of a server share the room for them."""

CLOSE_GRACE_S: Final = 0.25
"""Seconds that requests under way get to end when the server closes; long polls are cut off then."""

_IDLE_CHECK_S = 10.0
_REMARK_LIMIT = 4096
_Result = TypeVar("_Result")

Handler = Callable[[RemotingCommand, "Connection"], "Awaitable[RemotingCommand | None] | RemotingCommand | None"]
"""Answers one request. An answer that needs no waiting is returned as it is, and one that somebody else will set as a
future, both of which save a task; None answers nothing (the peer is answered in another way)."""


class Connection(asyncio.BufferedProtocol):
    """One client's connection as handlers see it. `peer` is its address; `on_close` is called once it is gone."""

    def __init__(self, server: RemotingServer, clock: Clock) -> None:
        self.peer = Address("0.0.0.0", 0)
        self.on_close: list[Callable[[Connection], None]] = []
        self.last_read_s = 0.0
        self._server = server
        self._clock = clock
        self._transport: asyncio.Transport | None = None
        self._decoder = FrameDecoder()
        self._outgoing: list[bytes | memoryview] = []
        self._flush_is_due = False
        self._waiting: set[asyncio.Future[Any]] = set()
        self._in_flight = 0
        self._answers = AwaitedAnswers()
        self._unsent = False
        self._reads = True
        self._loop = asyncio.get_running_loop()

    @property
    def is_open(self) -> bool:
        """Whether something sent now can still reach the peer."""
        return self._transport is not None and not self._transport.is_closing()

    @property
    def waiting(self) -> tuple[asyncio.Future[Any], ...]:
        """What requests wait for, some of them together."""
        return tuple(self._waiting)

    def ask(self, command: RemotingCommand, timeout_s: float) -> asyncio.Future[RemotingCommand]:
        """The client's answer to a request of the server's own. Raises TimedOut, Unreachable, TOO_MANY_REQUESTS."""
        error: MillstreamError | None = None
        if not self.is_open:
            error = self._gone()
        elif len(self._answers) >= MAX_ASKED:
            error = ConsumeRefused(
                "TOO_MANY_REQUESTS", f"{self.peer.host}:{self.peer.port} has {MAX_ASKED} requests to answer already."
            )
        if error is not None:
            failed: asyncio.Future[RemotingCommand] = self._loop.create_future()
            failed.set_exception(error)
            return failed
        answer = self._answers.expect(command, self.peer, timeout_s)
        self.send(command)
        return answer

    def send(self, command: RemotingCommand) -> None:
        """Send a request of the server's own, or an answer; it leaves at the end of this turn."""
        if not self.is_open:
            return
        try:
            self._outgoing += encode_frame(command)
        except (ValueError, UnicodeEncodeError):
            _log.exception("An answer to %s cannot be encoded.", self.peer)
            self._outgoing += encode_frame(
                RemotingCommand(
                    ResponseCode.SYSTEM_ERROR, {}, b"", command.opaque, command.flag, "The answer cannot be encoded.",
                    header_type=command.header_type,
                )
            )  # fmt: skip
        self._flush_soon()

    def _flush_soon(self) -> None:
        if not self._flush_is_due:
            self._flush_is_due = True
            self._loop.call_soon(self._flush)

    def close(self) -> None:
        """Close after what was sent; requests under way are cut off."""
        self._flush()
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Close at once."""
        if self._transport is not None:
            self._transport.abort()

    # asyncio.BufferedProtocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Not isinstance: uvloop's transports are none of asyncio's classes.
        transport = cast("asyncio.Transport", transport)
        self._transport = transport
        transport.set_write_buffer_limits(high=WRITE_HIGH_WATER_BYTES)
        name = transport.get_extra_info("peername")
        if name:
            self.peer = Address(str(name[0]).partition("%")[0], int(name[1]))
        self.last_read_s = self._clock.monotonic_s()
        self._server.joined(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._decoder.room() or self._server.receiving

    def buffer_updated(self, nbytes: int) -> None:
        self.last_read_s = self._clock.monotonic_s()
        if self._decoder.room() is not None:
            self._decoder.filled(nbytes)
            return
        # Answers made here wait for the end of the chunk: a turn's answers are one write.
        self._flush_is_due = True
        commands: list[RemotingCommand] = []
        try:
            # Not a list of all: what came before a bad frame is handled.
            commands.extend(self._decoder.feed(self._server.receiving[:nbytes]))
        except ConnectionFailed as error:
            self._serve(commands)
            _log.warning("Closing the connection from %s:%d. %s", self.peer.host, self.peer.port, error.message)
            self._flush()
            self.abort()
            return
        self._serve(commands)
        self._flush()
        self._throttle()

    def pause_writing(self) -> None:
        self._unsent = True
        self._throttle()

    def resume_writing(self) -> None:
        self._unsent = False
        self._throttle()

    def connection_lost(self, error: Exception | None) -> None:
        self._outgoing.clear()
        for waiting in self.waiting:
            waiting.cancel()
        self._answers.fail(self._gone())
        self._server.left(self)
        for listener in self.on_close:
            listener(self)
        self.on_close.clear()

    # inside

    def _gone(self) -> Unreachable:
        return Unreachable(f"{self.peer.host}:{self.peer.port} closed the connection.")

    def _serve(self, commands: list[RemotingCommand]) -> None:
        """Handle what one chunk brought: together what a handler takes together, the rest one by one."""
        handlers = self._server.handlers if self._server.gate is None else {}
        position = 0
        while position < len(commands):
            command = commands[position]
            handler = handlers.get(command.code)
            if isinstance(handler, TurnHandler) and not command.flag:
                turn = handler.take(commands, position, self)
                if turn is not None:
                    taken = commands[position : position + turn.count]
                    self._wait_for(turn.frames, partial(self._turn_ended, taken, self.last_read_s), turn.count)
                    position += turn.count
                    continue
            self._handle(command)
            position += 1

    def _handle(self, command: RemotingCommand) -> None:
        if command.is_response:
            self._answers.arrived(command)
            return
        gate = self._server.gate
        if gate is not None:
            try:
                gate.check(command, self.peer)
            except Exception as error:  # noqa: BLE001 - the connection's edge: what cannot be checked is not let in
                self._refuse(command, _failure_answer(command, error))
                return
        handler = self._server.handlers.get(command.code)
        if handler is None:
            remark = f"The server does not know request code {command.code}."
            self._refuse(command, command.response(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark=remark))
            return
        try:
            result = handler(command, self)
        except Exception as error:  # noqa: BLE001 - the connection's edge: every failure becomes an answer
            result = _failure_answer(command, error)
        if result is None or isinstance(result, RemotingCommand):
            self._answer(command, result, self.last_read_s)
            return
        self._wait_for(asyncio.ensure_future(result), partial(self._ended, command, self.last_read_s), 1)

    def _wait_for(
        self, future: asyncio.Future[_Result], ended: Callable[[asyncio.Future[_Result]], None], count: int
    ) -> None:
        self._waiting.add(future)
        self._in_flight += count
        future.add_done_callback(ended)

    def _no_longer(self, future: asyncio.Future[Any], count: int) -> None:
        self._waiting.discard(future)
        self._in_flight -= count
        if not self._reads:
            self._throttle()

    def _turn_ended(self, taken: list[RemotingCommand], arrived_s: float, frames: asyncio.Future[bytes]) -> None:
        self._no_longer(frames, len(taken))
        if frames.cancelled():
            return
        error = frames.exception()
        if error is None:
            elapsed_s = self._clock.monotonic_s() - arrived_s
            self._server.latency.note(taken[0].code, ResponseCode.SUCCESS, elapsed_s, len(taken))
            self._outgoing.append(frames.result())
            if not self._flush_is_due:
                self._flush()
        elif isinstance(error, Refused):
            for command in taken:
                self._handle(command)
        elif isinstance(error, Exception):
            for command in taken:
                self._answer(command, _failure_answer(command, error), arrived_s)

    def _ended(
        self, command: RemotingCommand, arrived_s: float, future: asyncio.Future[RemotingCommand | None]
    ) -> None:
        self._no_longer(future, 1)
        if future.cancelled():
            return
        error = future.exception()
        if error is None:
            self._answer(command, future.result(), arrived_s)
        elif isinstance(error, Exception):
            self._answer(command, _failure_answer(command, error), arrived_s)

    def _refuse(self, command: RemotingCommand, answer: RemotingCommand) -> None:
        """Answer what no handler gets. It is not counted: its code may be any number that a stranger thinks of."""
        if not command.is_oneway:
            self.send(answer)

    def _answer(self, command: RemotingCommand, answer: RemotingCommand | None, arrived_s: float) -> None:
        if answer is not None:
            self._server.latency.note(command.code, answer.code, self._clock.monotonic_s() - arrived_s)
        if answer is not None and not command.is_oneway:
            self.send(answer)

    def _flush(self) -> None:
        self._flush_is_due = False
        if self._outgoing and self.is_open:
            assert self._transport is not None
            for part in written_parts(self._outgoing):
                self._transport.write(part)
        self._outgoing.clear()

    def _throttle(self) -> None:
        """Read only while the peer takes its answers and does not ask faster than it can be answered."""
        wanted = not self._unsent and self._in_flight < (MAX_IN_FLIGHT if self._reads else MAX_IN_FLIGHT // 2)
        if wanted is self._reads or not self.is_open:
            return
        assert self._transport is not None
        self._reads = wanted
        if wanted:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()


def _keep_freed_memory() -> None:
    """Let the C library keep up to two frames of freed memory instead of giving it back after every large request.

    glibc keeps as much as twice the largest block that it has mapped and freed. This one is mapped and never touched;
    the first frame of the largest size would have the same effect. To fault its pages in again doubles what the system
    does for a large request.
    """
    bytes(MAX_FRAME_BYTES)


def _failure_answer(command: RemotingCommand, error: Exception) -> RemotingCommand:
    """The answer for a handler's error: refusals by their table, anything else SYSTEM_ERROR with a line in the log."""
    if isinstance(error, MillstreamError):
        return command.response(response_code_of(error), remark=str(error)[:_REMARK_LIMIT])
    _log.error("Request code %d failed.", command.code, exc_info=error)
    return command.response(ResponseCode.SYSTEM_ERROR, remark=f"{type(error).__name__} in the server; see its log.")


class RemotingServer:
    """Listens on one address and hands requests to the handler of their code."""

    def __init__(
        self, handlers: Mapping[int, Handler], host: str = "127.0.0.1", port: int = 0, *, clock: Clock | None = None
    ) -> None:
        self.handlers = handlers
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
        self._server: asyncio.Server | Doorway | None = None
        self._connections: set[Connection] = set()
        self.latency = RpcLatency()
        """How long the requests that it knows took, by request and response code."""
        self._idle_check: asyncio.TimerHandle | None = None
        # One for all, because a loop asks for it right before it reads and hands it over right after.
        self.receiving = memoryview(bytearray(RECEIVE_BYTES))

    @property
    def connections(self) -> int:
        """Connections that are open."""
        return len(self._connections)

    async def start(self) -> int:
        """Listen; the port that was bound. Raises StartRefused: PORT_IN_USE, ADDRESS_NOT_LOCAL."""
        loop = asyncio.get_running_loop()
        _keep_freed_memory()
        try:
            port = await self._listen(loop)
        except OSError as error:
            raise listen_refused(self._host, self._port, error) from None
        self._idle_check = loop.call_later(_IDLE_CHECK_S, self._repeat_idle_check)
        return port

    async def _listen(self, loop: asyncio.AbstractEventLoop) -> int:
        if self.tls is not None or self.carry is not None:
            self._server = Doorway(self._enter)
            return await self._server.start(self._host, self._port)
        self._server = await loop.create_server(
            lambda: Connection(self, self._clock), self._host, self._port, backlog=1024
        )
        return int(self._server.sockets[0].getsockname()[1])

    async def _enter(self, connection: socket.socket, is_tls: bool) -> None:
        """Take a connection that came through the doorway."""
        identity, mode = self.tls or (None, TlsMode.PERMISSIVE)
        if mode is TlsMode.REQUIRED and not is_tls:
            raise ConnectionAbortedError("plaintext where TLS is required")
        if is_tls and identity is None:
            raise ConnectionAbortedError("TLS where there is none")
        if self.carry is not None and await speaks_http2(connection, is_tls):
            await self.carry(connection, is_tls)
            return
        await asyncio.get_running_loop().connect_accepted_socket(
            lambda: Connection(self, self._clock),
            connection,
            ssl=identity.context if identity is not None and is_tls else None,
            ssl_handshake_timeout=HANDSHAKE_LIMIT_S if is_tls else None,
        )

    async def close(self) -> None:
        """Stop listening, let requests under way end for `CLOSE_GRACE_S`, then close every connection."""
        if self._idle_check is not None:
            self._idle_check.cancel()
        if self._server is None:
            return
        self._server.close()
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
        self._server = None

    def close_idle(self) -> None:
        """Close the connections whose peer said nothing for `IDLE_LIMIT_S` and waits for nothing."""
        limit_s = self._clock.monotonic_s() - IDLE_LIMIT_S
        for connection in list(self._connections):
            if connection.last_read_s < limit_s and not connection.waiting:
                connection.close()

    def joined(self, connection: Connection) -> None:
        """A connection says that it is there."""
        if not self.admits:
            connection.abort()
            return
        if len(self._connections) >= MAX_CONNECTIONS:
            _log.warning("Refusing the connection from %s: %d are open.", connection.peer.host, MAX_CONNECTIONS)
            connection.abort()
            return
        self._connections.add(connection)

    def left(self, connection: Connection) -> None:
        """A connection says that it is gone."""
        self._connections.discard(connection)

    def _repeat_idle_check(self) -> None:
        self.close_idle()
        self._idle_check = asyncio.get_running_loop().call_later(_IDLE_CHECK_S, self._repeat_idle_check)
