"""One client's connection at a remoting server, with many requests in flight.

All frames of one chunk are handled in the turn in which it arrived, and all answers of one turn leave in one write:
the system calls, not the codec, set the cost of a small message. Of a large one it is the copies: its body is received
where it stays, and its answer's slices of the log are written as they are.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from millstream.model.clock import Clock
from millstream.model.errors import ConnectionFailed, ConsumeRefused, MillstreamError, Refused, Unreachable
from millstream.model.message import Address
from millstream.protocol.remoting.codes import ResponseCode
from millstream.protocol.remoting.command import RemotingCommand
from millstream.protocol.remoting.frame import FrameDecoder, encode_frame, written_parts
from millstream.protocol.remoting.refusals import response_code_of
from millstream.protocol.remoting.request_shape import ShapedRun, as_commands
from millstream.security.signature import ACCESS_KEY, SIGNATURE
from millstream.transport.awaited_answers import AwaitedAnswers
from millstream.transport.connection_memory import HalfFrame, UnreadAnswer
from millstream.transport.request_batches import BatchHandler, RequestBatch, RunHandler
from millstream.transport.strangers import StrangerAct

if TYPE_CHECKING:
    from millstream.transport.remoting_server import RemotingServer

__all__ = [
    "MAX_ASKED",
    "MAX_FIRST_SIGNED_BYTES",
    "MAX_IN_FLIGHT",
    "MAX_UNSIGNED_BYTES",
    "WRITE_HIGH_WATER_BYTES",
    "Connection",
    "Handler",
]

_log = logging.getLogger(__name__)

MAX_IN_FLIGHT: Final = 8192
"""Unanswered requests of one connection at most; over it nothing more is read from the connection."""

MAX_ASKED: Final = 64
"""Requests of the server that one client may have to answer at a time; the next one is refused."""

WRITE_HIGH_WATER_BYTES: Final = 4 * 1024 * 1024
"""Unread bytes of a connection over which none of its requests is served and nothing more is read from it, so that a
peer that does not read cannot make the server hold its answers."""

MAX_UNSIGNED_BYTES: Final = 128 * 1024
"""Bytes of a request without a signature, as long as none was good on its connection, where access control is on."""

MAX_FIRST_SIGNED_BYTES: Final = 5 * 1024 * 1024
"""Bytes of a request with a signature, as long as none was good on its connection: a producer may begin with the
largest message."""

_PIECE_BYTES: Final = 512 * 1024
"""Bytes that are read into a large body, or handed to the transport, at a time: it copies what it cannot send."""

_REQUEST_BYTES: Final = 1024
"""What a decoded request takes beside its body, about."""

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
        self._is_signed = server.gate is None
        if not self._is_signed:
            self._decoder.judge = _judge_unsigned
        self._memory = server.memory
        self._frames = self._memory.frames if self._is_signed else self._memory.unsigned_frames
        self._frame = HalfFrame(self._read_on, self._give_up)
        self._is_half = False
        self._outgoing: list[bytes | memoryview] = []
        self._outgoing_bytes = 0
        self._backlog: list[RemotingCommand] = []
        self._backlog_bytes = 0
        self._unread = UnreadAnswer(self._measure_unread, self._serve_soon, self._give_up)
        self._is_unread = False
        self._late: list[asyncio.Future[None]] = []
        self._flush_is_due = False
        self._waiting: set[asyncio.Future[Any]] = set()
        self._in_flight = 0
        self._answers = AwaitedAnswers()
        self._unsent = False
        self._is_stuffed = False
        self._frame_waits = False
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

    @property
    def has_unread(self) -> bool:
        """Whether answers lie here that the peer has not read."""
        return self._is_unread

    def ask(self, command: RemotingCommand, timeout_s: float) -> asyncio.Future[RemotingCommand]:
        """The client's answer to a request of the server's own. Raises TimedOut, Unreachable, TOO_MANY_REQUESTS."""
        error: MillstreamError | None = None
        if not self.is_open:
            error = self._closed_error()
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

    async def ready(self) -> None:
        """Return once an answer to a request that waited may be made: the peer has read, and others had their turn."""
        while True:
            while self._is_stuffed:
                place: asyncio.Future[None] = self._loop.create_future()
                self._late.append(place)
                await place
            await self._memory.late_answers.turn()
            if not self._is_stuffed:
                return

    def note_size(self, size_bytes: int) -> None:
        """Note how large that answer is."""
        self._memory.late_answers.note_size(size_bytes)

    def send(self, command: RemotingCommand) -> None:
        """Send a request of the server's own, or an answer; it leaves at the end of this turn."""
        if not self.is_open:
            return
        try:
            parts = encode_frame(command)
        except (ValueError, UnicodeEncodeError):
            _log.exception("An answer to %s cannot be encoded.", self.peer)
            parts = encode_frame(
                RemotingCommand(
                    ResponseCode.SYSTEM_ERROR, {}, b"", command.opaque, command.flag, "The answer cannot be encoded.",
                    header_type=command.header_type,
                )
            )  # fmt: skip
        self._outgoing += parts
        self._outgoing_bytes += sum(map(len, parts))
        self._flush_soon()

    def _flush_soon(self) -> None:
        if not self._flush_is_due:
            self._flush_is_due = True
            self._loop.call_soon(self._flush)

    def close(self) -> None:
        """Close after what was sent, or at once where the peer leaves much of it unread; requests under way are cut
        off."""
        self._flush()
        if self._transport is None:
            return
        if self._outgoing_bytes > WRITE_HIGH_WATER_BYTES:
            self.abort()
            return
        self._transport.writelines(self._outgoing)
        self._drop_answers()
        self._transport.close()

    def abort(self) -> None:
        """Close at once."""
        if self._transport is not None:
            self._drop_answers()
            self._transport.abort()

    # asyncio.BufferedProtocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Not isinstance: uvloop's transports are none of asyncio's classes.
        transport = cast("asyncio.Transport", transport)
        self._transport = transport
        # Whether the transport keeps anything is all that has to be known: it is given little at a time.
        # Not 0, which is always reached at TLS.
        transport.set_write_buffer_limits(high=1)
        name = transport.get_extra_info("peername")
        if name:
            self.peer = Address(str(name[0]).partition("%")[0], int(name[1]))
        self.last_read_s = self._clock.monotonic_s()
        self._server.add(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        room = self._decoder.room()
        return self._server.receiving if room is None else room[:_PIECE_BYTES]

    def buffer_updated(self, nbytes: int) -> None:
        self.last_read_s = self._clock.monotonic_s()
        if self._decoder.room() is not None:
            self._decoder.note_filled(nbytes)
            self._note_frame(begins=False)
            return
        # Answers made here wait for the end of the chunk: a turn's answers are one write.
        self._flush_is_due = True
        requests: list[RemotingCommand | ShapedRun] = []
        try:
            # Not a list of all: what came before a bad frame is handled.
            requests.extend(self._decoder.feed_runs(self._server.receiving[:nbytes]))
        except ConnectionFailed as error:
            self._serve(requests)
            self._log_closing(error)
            self._flush()
            self.abort()
            return
        if self._backlog:
            self._put_off([*as_commands(requests)])
        else:
            self._serve(requests)
        self._flush()
        if self._is_half or self._decoder.held_bytes:
            self._note_frame(begins=bool(requests))
        self._throttle()

    def pause_writing(self) -> None:
        self._unsent = True
        self._note_unread()

    def resume_writing(self) -> None:
        self._unsent = False
        self._flush()
        if not self._unsent:
            self._note_unread()
        self._serve_backlog()

    def connection_lost(self, error: Exception | None) -> None:
        self._drop_answers()
        self._decoder = FrameDecoder()
        self._note_frame(begins=False)
        for waiting in self.waiting:
            waiting.cancel()
        self._answers.fail(self._closed_error())
        self._server.remove(self)
        for listener in self.on_close:
            listener(self)
        self.on_close.clear()

    # inside

    def _closed_error(self) -> Unreachable:
        return Unreachable(f"{self.peer.host}:{self.peer.port} closed the connection.")

    def _serve(self, requests: Sequence[RemotingCommand | ShapedRun]) -> None:
        """Handle what one chunk brought: together what a handler takes together, the rest one by one."""
        commands: list[RemotingCommand] = []
        for number, one in enumerate(requests):
            if not isinstance(one, ShapedRun):
                commands.append(one)
                continue
            left, number = self._serve_commands(commands), number
            if not left:
                left, number = self._serve_run(one), number + 1
            if left:
                self._put_off([*left, *as_commands(requests[number:])])
                return
            commands = []
        left = self._serve_commands(commands)
        if left:
            self._put_off(left)

    def _serve_run(self, run: ShapedRun) -> Sequence[RemotingCommand]:
        """Handle requests that are alike; those that have to wait until the peer has read."""
        handler = self._server.handlers.get(run.shape.code) if self._server.gate is None else None
        if isinstance(handler, RunHandler):
            return self._answer_run(run, handler)
        served = 0
        if isinstance(handler, BatchHandler) and self._has_room():
            turn = handler.take_run(run, self)
            if turn is not None:
                served = turn.count
                self._wait_for_turn(turn, run.shape.code, partial(run.commands, 0, served))
        return () if served == len(run.requests) else self._serve_commands(run.commands(served))

    def _answer_run(self, run: ShapedRun, handler: RunHandler) -> Sequence[RemotingCommand]:
        """Answer requests that are alike; those that have to wait until the peer has read."""
        answers, requests, position = handler.open_run(run.shape), run.requests, 0
        while answers is not None and position < len(requests):
            if not self._has_room():
                return run.commands(position)
            frames: list[bytes | memoryview] = []
            try:
                count = answers.answer(requests, position, frames, _PIECE_BYTES - self._outgoing_bytes)
            except Exception:  # noqa: BLE001 - the connection's edge: each request has its own answer then
                _log.exception("Requests of code %d could not be answered together.", run.shape.code)
                break
            if count:
                position += count
                self._outgoing += frames
                self._outgoing_bytes += sum(map(len, frames))
                elapsed_s = self._clock.monotonic_s() - self.last_read_s
                self._server.latency.note(run.shape.code, ResponseCode.SUCCESS, elapsed_s, count)
            else:
                self._handle(run.shape.command(requests[position]))
                position += 1
        return self._serve_commands(run.commands(position)) if position < len(requests) else ()

    def _serve_commands(self, commands: Sequence[RemotingCommand]) -> Sequence[RemotingCommand]:
        """Handle requests of any kind; those that have to wait until the peer has read."""
        handlers = self._server.handlers if self._server.gate is None else {}
        position = 0
        while position < len(commands):
            # Before each request: the answers to one chunk may be a thousand times its size.
            if not self._has_room():
                return commands[position:]
            command = commands[position]
            handler = handlers.get(command.code)
            if isinstance(handler, BatchHandler) and not command.flag:
                turn = handler.take(commands, position, self)
                if turn is not None:
                    taken = commands[position : position + turn.count]
                    self._wait_for_turn(turn, command.code, partial(tuple, taken))
                    position += turn.count
                    continue
            self._handle(command)
            position += 1
        return ()

    def _has_room(self) -> bool:
        """Whether the peer reads its answers, so that more of them may be made."""
        return not (self._unsent or self._outgoing_bytes >= _PIECE_BYTES) or self._may_serve()

    def _handle(self, command: RemotingCommand) -> None:
        if command.is_response:
            self._answers.deliver(command)
            return
        if command.refusal is not None:
            self._refuse(command, _failure_answer(command, command.refusal))
            return
        gate = self._server.gate
        if gate is not None:
            try:
                gate.check(command, self.peer)
            except Exception as error:  # noqa: BLE001 - the connection's edge: what cannot be checked is not let in
                self._refuse(command, _failure_answer(command, error))
                return
            if not self._is_signed:
                self._is_signed, self._decoder.judge = True, None
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
        self._wait_for(
            asyncio.ensure_future(result), partial(self._end_request, command, self.last_read_s), command.code, 1
        )

    def _wait_for(
        self, future: asyncio.Future[_Result], ended: Callable[[asyncio.Future[_Result]], None], code: int, count: int
    ) -> None:
        self._waiting.add(future)
        self._in_flight += count
        self._server.unanswered[code] += count
        future.add_done_callback(ended)

    def _no_longer(self, future: asyncio.Future[Any], code: int, count: int) -> None:
        self._waiting.discard(future)
        self._in_flight -= count
        self._server.unanswered[code] -= count
        if not self._reads:
            self._throttle()

    def _wait_for_turn(self, turn: RequestBatch, code: int, taken: Callable[[], Sequence[RemotingCommand]]) -> None:
        ended = partial(self._turn_ended, code, turn.count, taken, self.last_read_s)
        self._wait_for(turn.frames, ended, code, turn.count)

    def _turn_ended(
        self,
        code: int,
        count: int,
        taken: Callable[[], Sequence[RemotingCommand]],
        arrived_s: float,
        frames: asyncio.Future[bytes],
    ) -> None:
        self._no_longer(frames, code, count)
        if frames.cancelled():
            return
        error = frames.exception()
        if error is None:
            elapsed_s = self._clock.monotonic_s() - arrived_s
            self._server.latency.note(code, ResponseCode.SUCCESS, elapsed_s, count)
            answers = frames.result()
            self._outgoing.append(answers)
            self._outgoing_bytes += len(answers)
            if not self._flush_is_due:
                self._flush()
        elif isinstance(error, Refused):
            for command in taken():
                self._handle(command)
        elif isinstance(error, Exception):
            for command in taken():
                self._answer(command, _failure_answer(command, error), arrived_s)

    def _end_request(
        self, command: RemotingCommand, arrived_s: float, future: asyncio.Future[RemotingCommand | None]
    ) -> None:
        self._no_longer(future, command.code, 1)
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
        if not self._outgoing:
            return
        if not self.is_open:
            self._drop_answers()
            return
        if not self._unsent:
            self._write()
        if self._unsent or self._outgoing:
            self._note_unread()

    def _write(self) -> None:
        """Hand the answers to the transport, piece by piece as long as it sends them at once."""
        assert self._transport is not None
        parts = written_parts(self._outgoing)
        if self._outgoing_bytes <= _PIECE_BYTES:
            self._outgoing.clear()
            self._outgoing_bytes = 0
            for part in parts:
                self._transport.write(part)
            return
        self._outgoing = parts
        done = 0
        while done < len(parts) and not self._unsent:
            part = parts[done]
            if len(part) > _PIECE_BYTES:
                parts[done] = memoryview(part)[_PIECE_BYTES:]
                part = memoryview(part)[:_PIECE_BYTES]
            else:
                done += 1
            self._outgoing_bytes -= len(part)
            self._transport.write(part)
        del parts[:done]

    def _may_serve(self) -> bool:
        """Whether the peer reads what it is given, so that it may be given more."""
        self._flush()
        self._flush_is_due = True
        if not self.is_open:
            return False
        self._note_unread()
        return not self._is_stuffed

    def _put_off(self, commands: Sequence[RemotingCommand]) -> None:
        """Keep requests until the peer has read; they are dropped where it is gone."""
        if not self.is_open:
            return
        self._backlog += commands
        self._backlog_bytes += sum(len(command.body) + _REQUEST_BYTES for command in commands)
        if not self._unsent:
            # The transport has sent all by its next turn, or says then that it could not.
            self._serve_soon()

    def _serve_soon(self) -> None:
        self._loop.call_soon(self._serve_backlog)

    def _serve_backlog(self) -> None:
        if self._backlog and self.is_open:
            backlog, self._backlog, self._backlog_bytes = self._backlog, [], 0
            self._flush_is_due = True
            self._note_unread()
            self._serve(backlog)
            self._flush()
        self._throttle()

    def _measure_unread(self) -> int:
        assert self._transport is not None
        return self._transport.get_write_buffer_size() + self._outgoing_bytes + self._backlog_bytes

    def _note_unread(self) -> None:
        """Tell the process what lies here for the peer, and learn whether that is too much."""
        if not self.is_open:
            return
        held_bytes = self._measure_unread()
        if held_bytes:
            self._is_unread = True
            may = self._memory.answers.note_unread(self._unread, held_bytes, self._clock.monotonic_s())
            self._is_stuffed = not may or held_bytes >= WRITE_HIGH_WATER_BYTES
        elif self._is_unread:
            self._is_unread = self._is_stuffed = False
            self._memory.answers.end(self._unread)
        self._throttle()

    def _drop_answers(self) -> None:
        self._outgoing.clear()
        self._backlog.clear()
        self._outgoing_bytes = self._backlog_bytes = 0
        if self._is_unread:
            self._is_unread = self._is_stuffed = False
            self._memory.answers.end(self._unread)

    def _note_frame(self, *, begins: bool) -> None:
        """Tell the process what lies here of a frame, and learn whether its rest may be read now."""
        held_bytes, now_s = self._decoder.held_bytes, self._clock.monotonic_s()
        if held_bytes:
            self._is_half = True
            missing_bytes = self._decoder.missing_bytes
            self._frame_waits = not self._frames.note_bytes(
                self._frame, held_bytes, missing_bytes, now_s, begins=begins
            )
            if self._frame_waits:
                self._throttle()
        elif self._is_half:
            self._is_half = self._frame_waits = False
            self._frames.end(self._frame, now_s)
            if self._is_signed:
                self._frames = self._memory.frames

    def _read_on(self) -> None:
        self._frame_waits = False
        self._throttle()

    def _give_up(self, error: ConnectionFailed) -> None:
        """Close the connection for the memory that it holds."""
        if self.is_open:
            self._log_closing(error)
        self._decoder = FrameDecoder()
        self.abort()

    def _log_closing(self, error: ConnectionFailed) -> None:
        line = f"Closing the connection from {self.peer.host}:{self.peer.port}. {error.message} [{error.label}]"
        self._server.strangers.say(_log, StrangerAct.BAD_FRAME, line)

    def _throttle(self) -> None:
        """Read only while the peer takes its answers, does not ask faster than it can be answered, and there is memory
        for its requests."""
        if self._late and not self._is_stuffed:
            late, self._late = self._late, []
            for place in late:
                if not place.done():
                    place.set_result(None)
        wanted = (
            self._in_flight < (MAX_IN_FLIGHT if self._reads else MAX_IN_FLIGHT // 2)
            and not self._is_stuffed
            and not self._backlog
            and not self._frame_waits
        )
        if wanted is self._reads or not self.is_open:
            return
        assert self._transport is not None
        self._reads = wanted
        if wanted:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()


def _judge_unsigned(command: RemotingCommand, size_bytes: int) -> None:
    """Refuse a large frame before its body is received. That its signature is good is not known before."""
    is_signed = ACCESS_KEY in command.ext and SIGNATURE in command.ext
    limit_bytes = MAX_FIRST_SIGNED_BYTES if is_signed else MAX_UNSIGNED_BYTES
    if size_bytes > limit_bytes:
        raise ConnectionFailed(
            "UNSIGNED_TOO_LARGE",
            f"It signed no request yet and announces {size_bytes} bytes; the limit is {limit_bytes}.",
        )


def _failure_answer(command: RemotingCommand, error: Exception) -> RemotingCommand:
    """The answer for a handler's error: refusals by their table, anything else SYSTEM_ERROR with a line in the log."""
    if isinstance(error, MillstreamError):
        return command.response(response_code_of(error), remark=str(error)[:_REMARK_LIMIT])
    _log.error("Request code %d failed.", command.code, exc_info=error)
    return command.response(ResponseCode.SYSTEM_ERROR, remark=f"{type(error).__name__} in the server; see its log.")
