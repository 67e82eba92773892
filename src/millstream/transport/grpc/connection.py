"""One client's HTTP/2 connection at a gRPC port.

All requests that one chunk of bytes brings are handed over together, and all answers of one turn of the event loop
leave in one write, as on the remoting port.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import Any, Final, Protocol, cast

from millstream.model.clock import Clock
from millstream.model.errors import ConnectionFailed, Refused
from millstream.protocol.grpc.framing import (
    PREFIX,
    PREFIX_BYTES,
    GrpcStatus,
    InflatedTooLarge,
    inflate_message,
    parse_timeout_s,
)
from millstream.protocol.http2.connection import Http2Core, Http2Limits
from millstream.protocol.http2.frames import ErrorCode
from millstream.protocol.http2.stream import ENDED, OPENED, RESET, WRITABLE, Http2Stream
from millstream.transport.connection_memory import ConnectionMemory, HalfFrame, UnreadAnswer
from millstream.transport.grpc.call import WRITE_HIGH_WATER_BYTES, CallHandler, GrpcMethod, ServerCall
from millstream.transport.grpc.deadlines import DeadlineTable
from millstream.transport.heavy_work import HEAVY_BYTES, HEAVY_WORK
from millstream.transport.strangers import StrangerAct, StrangerLog

__all__ = ["GRANT_BYTES", "MAX_INFLATED_MESSAGE_BYTES", "MAX_REQUEST_BYTES", "GrpcConnection"]

_log = logging.getLogger(__name__)

MAX_REQUEST_BYTES: Final = 16 * 1024 * 1024
"""Bytes of one request at most, also unpacked: well above the limit of a body, so that a large body gets a status that
says so."""

MAX_INFLATED_MESSAGE_BYTES: Final = 1024 * 1024
"""Bytes that a compressed message of a client that streams may have unpacked: it is unpacked at once, in the turn in
which it comes."""

GRANT_BYTES: Final = 1024 * 1024
"""Bytes of a large request that a client may send at a time, while there is memory for them."""

_METHOD_NOT_ALLOWED: Final = ((":status", "405"), ("allow", "POST"), ("content-type", "text/plain"))
_UNSUPPORTED_MEDIA: Final = ((":status", "415"), ("content-type", "text/plain"))
_NO_GRPC: Final = b"This port answers calls of gRPC.\n"
_CONTENT_TYPE: Final = "application/grpc"
_CONTENT_TYPES: Final = ("application/grpc+", "application/grpc;")


class ConnectionOwner(Protocol):
    """What a connection needs of its port."""

    clock: Clock
    memory: ConnectionMemory
    strangers: StrangerLog
    handler: CallHandler
    methods: dict[str, GrpcMethod]
    unknown: GrpcMethod
    http2_limits: Http2Limits
    deadlines: DeadlineTable
    calls: int

    def add(self, connection: GrpcConnection) -> None:
        """A connection says that it is there."""

    def remove(self, connection: GrpcConnection) -> None:
        """A connection says that it is gone."""


class GrpcConnection:
    """One connection, an `asyncio.Protocol` by its methods. Its port knows the methods and limits, its core the
    protocol."""

    __slots__ = (
        "_block",
        "_deadlines",
        "_flush_is_due",
        "_is_unread",
        "_loop",
        "_memory",
        "_port",
        "_reads",
        "_transport",
        "_unanswered",
        "_unread",
        "_unsent",
        "_wants_room",
        "began_s",
        "core",
        "is_stuffed",
        "last_read_s",
        "peer",
        "probed_s",
        "seen_stream",
        "used_s",
    )

    def __init__(self, port: ConnectionOwner) -> None:
        self.peer = ""
        self.core = Http2Core(port.http2_limits)
        self.last_read_s = 0.0
        self.began_s = 0.0
        self.probed_s: float | None = None
        """When the peer was asked for a sign of life that has not come yet."""
        self.used_s = 0.0
        """When the port last saw it with calls, or with calls since it had looked before."""
        self.seen_stream = 0
        """Its highest stream then."""
        self.is_stuffed = False
        """Whether answers lie here that the peer does not read."""
        self._port = port
        self._memory = port.memory
        self._deadlines = port.deadlines
        self._transport: asyncio.Transport | None = None
        self._block: HalfFrame | None = None
        """What the process's memory knows of headers that are arriving."""
        self._unread = UnreadAnswer(self._measure_unread, self._read_on, self._give_up)
        self._is_unread = False
        self._unsent = False
        self._reads = True
        self._flush_is_due = False
        self._unanswered = 0
        """Calls under way whose clients do not stream."""
        self._wants_room: dict[ServerCall, None] = {}
        self._loop = asyncio.get_running_loop()

    @property
    def calls(self) -> int:
        """Calls under way."""
        return len(self.core.streams)

    @property
    def is_open(self) -> bool:
        """Whether something that is sent can still reach the peer."""
        return self._transport is not None and not self._transport.is_closing()

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Not isinstance: uvloop's transports are none of asyncio's classes.
        transport = cast("asyncio.Transport", transport)
        self._transport = transport
        # Whether the transport keeps anything is all that has to be known. Not 0, which is always reached at TLS.
        transport.set_write_buffer_limits(high=1)
        self.peer = _address(transport.get_extra_info("peername"))
        self.last_read_s = self.began_s = self.used_s = self._port.clock.monotonic_s()
        self._port.add(self)
        self.flush()

    def data_received(self, data: bytes) -> None:
        now_s = self.last_read_s = self._port.clock.monotonic_s()
        # Answers made here wait for the end of the chunk.
        self._flush_is_due = True
        core = self.core
        whole: list[ServerCall] = []
        for stream in core.receive(data, now_s):
            news, stream.news = stream.news, 0
            if news & RESET:
                if stream.owner is not None:
                    self._end_call(stream.owner)
                continue
            if news & OPENED:
                self._open(stream, now_s)
            call: ServerCall | None = stream.owner
            if call is None:
                continue
            is_whole = news & ENDED and not call.method.streams and call.take_whole()
            if is_whole or (news != WRITABLE and self._take(call, news, now_s)):
                whole.append(call)
            if news & WRITABLE:
                call.wake_writer()
        if whole:
            self._port.handler.serve(whole)
        if core.block_bytes or self._block is not None:
            self._note_block(now_s)
        if core.failure is not None:
            words = f"Closing the connection from {self.peer}. {core.failure.words} [{core.failure.code.name}]"
            self._port.strangers.say(_log, StrangerAct.BAD_FRAME, words)
            self.close()
            return
        self.flush()

    def pause_writing(self) -> None:
        self._unsent = True
        self._note_unread()

    def resume_writing(self) -> None:
        self._unsent = False
        self.flush()
        self._note_unread()

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        for stream in list(self.core.streams.values()):
            stream.is_open = False
            if stream.owner is not None:
                self._end_call(stream.owner)
        self.core.streams.clear()
        if self._is_unread:
            self._is_unread = self.is_stuffed = False
            self._memory.answers.end(self._unread)
        if self._block is not None:
            self._memory.frames.end(self._block, self.last_read_s)
        self._wants_room.clear()
        self._port.remove(self)

    # for calls

    def call_ended(self, call: ServerCall) -> None:
        """The answer of a call is whole, or waits for nothing but the peer's window."""
        if call.bucket:
            self._deadlines.remove(call)
        if call.is_half:
            self._forget_half(call)
        self._port.calls -= 1
        if not call.method.streams:
            self._unanswered -= 1
        call.stream.owner = None
        if self._wants_room:
            self._wants_room.pop(call, None)
        if self._flush_is_due:
            return
        if self._unanswered:
            # Others may be answered in this turn, and leave with it.
            self.flush_soon()
        else:
            self.flush()

    def flush_soon(self) -> None:
        """Let what was sent leave at the end of this turn."""
        if not self._flush_is_due:
            self._flush_is_due = True
            self._loop.call_soon(self.flush)

    def wait_for_room(self, call: ServerCall) -> None:
        """Wake the call's writer once it may go on."""
        self._wants_room[call] = None

    def note_taken(self, call: ServerCall) -> None:
        """A message of a client that streams was taken: more may come."""
        if call.is_open:
            self._note_held(call, self._port.clock.monotonic_s(), begins=True)
            self.flush_soon()

    def half_of(self, call: ServerCall) -> HalfFrame:
        """What the process's memory asks of a message that is arriving."""

        def go_on() -> None:
            self._grant(call)
            self.flush_soon()

        def give_up(error: ConnectionFailed) -> None:
            self._refuse_half(call, error)

        return HalfFrame(go_on, give_up)

    # for the port

    def end_deadline(self, call: ServerCall) -> None:
        """The time of a call is over."""
        if call.stream.queued_bytes:
            # Its client does not read it, and will not look at the status behind it.
            self.core.reset(call.stream, ErrorCode.CANCEL)
            self._end_call(call)
            self.flush_soon()
            return
        call.end(GrpcStatus.DEADLINE_EXCEEDED, "The call's deadline has passed.")
        call.note_gone()

    def say_goodbye(self) -> None:
        """Tell the peer that the connection ends."""
        self.core.say_goodbye()
        self.core.ping()
        self.flush()

    def refuse_new(self) -> None:
        """Take no further calls."""
        self.core.refuse_new()
        self.flush()

    def probe(self, now_s: float) -> None:
        """Ask the peer for a sign of life."""
        self.probed_s = now_s
        self.core.ping()
        self.flush()

    def close(self) -> None:
        """Close after what was sent, or at once where the peer leaves much of it unread."""
        self.flush()
        if self._transport is None:
            return
        if self._measure_unread() > WRITE_HIGH_WATER_BYTES:
            self._transport.abort()
            return
        if self.core.outgoing:
            self._transport.write(b"".join(self.core.take_outgoing()))
        self._transport.close()

    def abort(self) -> None:
        """Close at once."""
        if self._transport is not None:
            self._transport.abort()

    def flush(self) -> None:
        """Write what is there, unless the peer still has to read what was written before."""
        self._flush_is_due = False
        core = self.core
        if not core.outgoing or self._unsent:
            # Also where nothing is to be written: a stream that was given up may have freed what was unread.
            if self._unsent or self._is_unread:
                self._note_unread()
            return
        if self._transport is None or self._transport.is_closing():
            core.take_outgoing()
            return
        self._transport.write(b"".join(core.take_outgoing()))
        if self._is_unread or core.queued_bytes or self._wants_room:
            self._note_unread()

    # inside

    def _open(self, stream: Http2Stream, now_s: float) -> None:
        """Make a call of a request's headers, or refuse it."""
        head = stream.head
        metadata = head.metadata
        if head.method != "POST":
            self.core.send_page(stream, _METHOD_NOT_ALLOWED, _NO_GRPC)
            return
        kind = metadata.get("content-type", "")
        if kind != _CONTENT_TYPE and not kind.startswith(_CONTENT_TYPES):
            self.core.send_page(stream, _UNSUPPORTED_MEDIA, _NO_GRPC)
            return
        port = self._port
        timeout = metadata.get("grpc-timeout")
        deadline_s = None if timeout is None else parse_timeout_s(timeout)
        method = port.methods.get(head.path)
        call = ServerCall(self, stream, method or port.unknown, deadline_s)
        stream.owner = call
        port.calls += 1
        if not call.method.streams:
            self._unanswered += 1
        if method is None:
            call.end(GrpcStatus.UNIMPLEMENTED, "The service does not have this method.")
            return
        if timeout is not None and deadline_s is None:
            call.end(GrpcStatus.INTERNAL, f"The timeout {timeout[:32]!r} cannot be read.")
            return
        encoding = metadata.get("grpc-encoding", "identity")
        if encoding not in ("identity", "gzip"):
            call.end(GrpcStatus.UNIMPLEMENTED, f"The compression {encoding[:32]!r} is not offered.")
            return
        if deadline_s is not None:
            self._deadlines.add(call, now_s + deadline_s, now_s)
        port.handler.admit(call)
        if method.streams and stream.owner is not None:
            call.expect_stream()
            port.handler.open(call)

    def _take(self, call: ServerCall, news: int, now_s: float) -> bool:
        """Take what arrived of a call's messages; whether its only one is there now."""
        stream = call.stream
        if call.method.streams:
            self._take_messages(call, now_s)
            if news & ENDED:
                call.deliver(None)
            return False
        if not call.expected_bytes and not self._read_prefix(call):
            if news & ENDED:
                if stream.inbox_bytes:
                    call.end(GrpcStatus.INTERNAL, "The call ended within its request.")
                    return False
                return True
            self._note_half(call, now_s)
            return False
        if stream.owner is None:
            return False
        missing_bytes = call.expected_bytes - stream.inbox_bytes
        if missing_bytes < 0:
            call.end(GrpcStatus.INTERNAL, "The call has more than one request.")
            return False
        if not news & ENDED:
            self._note_half(call, now_s)
            return False
        if call.is_half:
            self._forget_half(call)
        if missing_bytes:
            call.end(GrpcStatus.INTERNAL, "The call ended within its request.")
            return False
        call.request = stream.take_inbox()[PREFIX_BYTES:]
        if call.is_compressed:
            self._inflate_request(call)
            return False
        return True

    def _read_prefix(self, call: ServerCall) -> bool:
        """Whether the prefix of a message is there; a message that must not come ends the call."""
        stream = call.stream
        if stream.inbox_bytes < PREFIX_BYTES:
            return False
        first = stream.inbox[0]
        if len(first) < PREFIX_BYTES:
            first = b"".join(stream.inbox)
            stream.inbox[:] = [first]
        self._note_prefix(call, *PREFIX.unpack_from(first))
        return True

    def _note_prefix(self, call: ServerCall, compressed: int, size: int) -> None:
        """Note what a message says of itself; one that must not come ends the call."""
        call.is_compressed = bool(compressed)
        call.expected_bytes = size + PREFIX_BYTES
        if size > MAX_REQUEST_BYTES:
            words = f"The request has {size} bytes; the limit is {MAX_REQUEST_BYTES}."
            call.end(GrpcStatus.RESOURCE_EXHAUSTED, words)
        elif compressed and call.metadata.get("grpc-encoding", "identity") == "identity":
            call.end(GrpcStatus.INTERNAL, "The request is compressed, and no header says how.")

    def _take_messages(self, call: ServerCall, now_s: float) -> None:
        """Hand over the whole messages of a client that streams."""
        stream = call.stream
        has_prefix = call.expected_bytes > 0 or self._read_prefix(call)
        is_whole = has_prefix and stream.owner is not None and stream.inbox_bytes >= call.expected_bytes
        if is_whole:
            self._hand_over(call, stream.take_inbox())
        if stream.owner is None:
            return
        if stream.inbox_bytes and stream.is_ended:
            call.end(GrpcStatus.INTERNAL, "The call ended within a message.")
            call.note_gone()
        else:
            self._note_held(call, now_s, begins=is_whole)

    def _hand_over(self, call: ServerCall, data: bytes) -> None:
        """Hand over the whole messages of `data`, of whose first the prefix was read, and keep the rest."""
        stream, at, size = call.stream, 0, len(data)
        while size - at >= call.expected_bytes:
            end = at + call.expected_bytes
            call.request, at = data[at + PREFIX_BYTES : end], end
            call.expected_bytes = 0
            if call.is_compressed and not self._inflate_message(call):
                return
            message, call.request = call.request, b""
            call.deliver(message)
            if size - at < PREFIX_BYTES:
                break
            self._note_prefix(call, *PREFIX.unpack_from(data, at))
            if stream.owner is None:
                return
        if at < size:
            stream.inbox.append(data[at:])
            stream.inbox_bytes = size - at

    def _inflate_request(self, call: ServerCall) -> None:
        """Unpack a call's only message and have it served: a small one now, a large one from a thread."""
        try:
            message = inflate_message(call.request, HEAVY_BYTES)
        except InflatedTooLarge:
            call.on_gone = self._loop.create_task(self._inflate_in_thread(call)).cancel
        except ValueError as error:
            call.end(GrpcStatus.INTERNAL, f"The request cannot be unpacked: {error}.")
        else:
            call.request = message
            self._port.handler.serve([call])

    async def _inflate_in_thread(self, call: ServerCall) -> None:
        inflate = partial(inflate_message, call.request, MAX_REQUEST_BYTES)
        try:
            call.request = await HEAVY_WORK.run(MAX_REQUEST_BYTES, inflate)
        except (InflatedTooLarge, Refused) as error:
            call.end(GrpcStatus.RESOURCE_EXHAUSTED, str(error))
        except ValueError as error:
            call.end(GrpcStatus.INTERNAL, f"The request cannot be unpacked: {error}.")
        else:
            call.on_gone = None
            if call.stream.owner is not None:
                self._port.handler.serve([call])

    def _inflate_message(self, call: ServerCall) -> bool:
        """Unpack one message of a client that streams."""
        try:
            call.request = inflate_message(call.request, MAX_INFLATED_MESSAGE_BYTES)
        except InflatedTooLarge as error:
            call.end(GrpcStatus.RESOURCE_EXHAUSTED, str(error))
            return False
        except ValueError as error:
            call.end(GrpcStatus.INTERNAL, f"The request cannot be unpacked: {error}.")
            return False
        return True

    def _note_block(self, now_s: float) -> None:
        """Tell the process's memory of headers that have not come to their end; its limits of time hold for them."""
        block = self._block
        if not self.core.block_bytes:
            if block is not None:
                self._memory.frames.end(block, now_s)
                self._block = None
            return
        begins = block is None
        if block is None:
            block = self._block = HalfFrame(lambda: None, self._give_up)
        self._memory.frames.note_bytes(block, self.core.block_bytes, 0, now_s, begins=begins)

    def _note_half(self, call: ServerCall, now_s: float, *, begins: bool = False) -> None:
        """Tell the process's memory what lies here of a message, and let the rest come if there is room."""
        begins = begins or not call.is_half
        half, stream = call.half, call.stream
        held_bytes = stream.inbox_bytes + call.untaken_bytes
        missing_bytes = max(call.expected_bytes - stream.inbox_bytes, 0)
        if self._memory.frames.note_bytes(half, held_bytes, missing_bytes, now_s, begins=begins):
            self._grant(call)

    def _note_held(self, call: ServerCall, now_s: float, *, begins: bool) -> None:
        """The same for a client that streams, whose messages count until they are taken. `begins`: one is whole now, or
        was taken, so that its time starts over."""
        if call.stream.inbox_bytes or call.untaken_bytes:
            self._note_half(call, now_s, begins=begins)
            return
        if call.is_half:
            self._forget_half(call)
        self._grant(call)

    def _grant(self, call: ServerCall) -> None:
        stream = call.stream
        if not stream.is_open:
            return
        room_bytes = stream.receive_window_bytes
        missing_bytes = min(call.expected_bytes - stream.inbox_bytes, GRANT_BYTES)
        if missing_bytes > room_bytes and not call.untaken_bytes:
            self.core.grant(stream, missing_bytes - room_bytes)
        elif call.method.streams:
            # As much as a stream begins with, in steps that are worth a frame.
            begins_with_bytes = self._port.http2_limits.stream_window_bytes
            wanted_bytes = begins_with_bytes - stream.inbox_bytes - call.untaken_bytes
            if wanted_bytes - room_bytes >= begins_with_bytes // 4:
                self.core.grant(stream, wanted_bytes - room_bytes)

    def _forget_half(self, call: ServerCall) -> None:
        self._memory.frames.end(call.half, self.last_read_s)
        call.forget_half()

    def _refuse_half(self, call: ServerCall, error: ConnectionFailed) -> None:
        """Give up a message for the memory that it holds: its sender is too slow, or too many send at once."""
        call.forget_half()
        call.stream.inbox.clear()
        call.stream.inbox_bytes = 0
        self._port.handler.refuse(call, error)

    def _end_call(self, call: ServerCall) -> None:
        """The client is gone, or has given the call up."""
        self._deadlines.remove(call)
        if call.is_half:
            self._forget_half(call)
        if call.stream.owner is not None:
            call.stream.owner = None
            self._port.calls -= 1
            if not call.method.streams:
                self._unanswered -= 1
        self._wants_room.pop(call, None)
        call.note_gone()

    def _measure_unread(self) -> int:
        if self._transport is None:
            return 0
        return self._transport.get_write_buffer_size() + self.core.outgoing_bytes + self.core.queued_bytes

    def _note_unread(self) -> None:
        """Tell the process what lies here for the peer, and learn whether that is too much."""
        held_bytes = self._measure_unread()
        if held_bytes:
            self._is_unread = True
            may = self._memory.answers.note_unread(self._unread, held_bytes, self._port.clock.monotonic_s())
            self.is_stuffed = not may or held_bytes >= WRITE_HIGH_WATER_BYTES
        elif self._is_unread:
            self._is_unread = self.is_stuffed = False
            self._memory.answers.end(self._unread)
        self._throttle()

    def _read_on(self) -> None:
        self._loop.call_soon(self._note_unread)

    def _throttle(self) -> None:
        """Read only while the peer takes its answers. What the peer's windows hold back alone does not count: it could
        open them only by what it sends."""
        if not self.is_stuffed and self._wants_room:
            for call in [call for call in self._wants_room if not call.is_stuffed]:
                del self._wants_room[call]
                call.wake_writer()
        wants_reading = not (self.is_stuffed and self._unsent)
        if wants_reading == self._reads or not self.is_open:
            return
        assert self._transport is not None
        self._reads = wants_reading
        if wants_reading:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()

    def _give_up(self, error: ConnectionFailed) -> None:
        """Close the connection for the memory that it holds."""
        if self.is_open:
            line = f"Closing the connection from {self.peer}. {error.message} [{error.label}]"
            self._port.strangers.say(_log, StrangerAct.BAD_FRAME, line)
        self.abort()


def _address(name: Any) -> str:
    """`host:port` of a socket's peer, `unknown` where the transport does not tell."""
    if not name:
        return "unknown"
    host = str(name[0]).partition("%")[0]
    return f"[{host}]:{name[1]}" if ":" in host else f"{host}:{name[1]}"
