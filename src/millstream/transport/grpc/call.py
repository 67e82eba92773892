"""One call as service handlers see it, and the interface of a handler to the port."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from millstream.model.errors import ConnectionFailed
from millstream.protocol.grpc.framing import PREFIX, PREFIX_BYTES, GrpcStatus, encode_status_message
from millstream.protocol.http2.connection import Http2Core
from millstream.protocol.http2.hpack import Header
from millstream.protocol.http2.stream import Http2Stream
from millstream.transport.connection_memory import HalfFrame

__all__ = [
    "MAX_STATUS_CHARACTERS",
    "STREAM_HIGH_WATER_BYTES",
    "WRITE_HIGH_WATER_BYTES",
    "CallHandler",
    "GrpcMethod",
    "ServerCall",
]

STREAM_HIGH_WATER_BYTES: Final = 64 * 1024
"""Bytes of one call's answer that wait for its client over which `ready` waits."""

WRITE_HIGH_WATER_BYTES: Final = 4 * 1024 * 1024
"""Unread bytes of a connection over which nothing more is read from it and no more is made for it."""

MAX_STATUS_CHARACTERS: Final = 1024
"""Characters of a status's words at most; the rest is cut off."""

_PIECE_BYTES: Final = 16 * 1024
"""Messages of an answer are joined until they have so many bytes."""

_RESPONSE: Final = ((":status", "200"), ("content-type", "application/grpc"))
_OK: Final = (("grpc-status", "0"),)
_ACCEPTED: Final = ("grpc-accept-encoding", "identity,gzip")


@dataclass(frozen=True, slots=True)
class GrpcMethod:
    """One method that a port offers. `streams` where the client sends any number of messages."""

    name: str
    streams: bool = False


class CallHandler(Protocol):
    """What a service does with calls. All is called in the event loop; nothing of it may raise."""

    def admit(self, call: ServerCall) -> None:
        """The headers of a call are there. What is ended here is not read."""

    def serve(self, calls: list[ServerCall]) -> None:
        """Answer calls, now or later: their requests came whole with one chunk of bytes."""

    def open(self, call: ServerCall) -> None:
        """Begin a call whose client sends a stream."""

    def refuse(self, call: ServerCall, error: ConnectionFailed) -> None:
        """End a call whose request is given up: there is no memory for it, or it came too slowly."""


class CallConnection(Protocol):
    """What a call needs of its connection."""

    peer: str
    core: Http2Core
    is_stuffed: bool

    def call_ended(self, call: ServerCall) -> None:
        """The answer of a call is whole, or waits for nothing but the peer's window."""

    def end_deadline(self, call: ServerCall) -> None:
        """The time of a call is over."""

    def flush_soon(self) -> None:
        """Let what was sent leave at the end of this turn."""

    def wait_for_room(self, call: ServerCall) -> None:
        """Wake the call's writer once it may go on."""

    def note_taken(self, call: ServerCall) -> None:
        """A message of a client that streams was taken: more may come."""

    def half_of(self, call: ServerCall) -> HalfFrame:
        """What the process's memory asks of a message that is arriving."""


class ServerCall:
    """One call. `request` is its message once `CallHandler.serve` gets it; `on_gone` is called once if the client gives
    the call up or its deadline passes before the answer is whole.

    Answer with `answer` alone, or with any number of `write` and then `end`.
    """

    __slots__ = (
        "_connection",
        "_half",
        "_has_headers",
        "_inbound",
        "_is_gone",
        "_pieces",
        "_pieces_bytes",
        "_reader",
        "_writer",
        "bucket",
        "deadline_at_s",
        "deadline_s",
        "expected_bytes",
        "is_compressed",
        "metadata",
        "method",
        "on_gone",
        "request",
        "state",
        "stream",
        "untaken_bytes",
    )

    def __init__(
        self, connection: CallConnection, stream: Http2Stream, method: GrpcMethod, deadline_s: float | None
    ) -> None:
        self.method = method
        self.metadata = stream.head.metadata
        self.deadline_s = deadline_s
        """Seconds that the client gave the call, None for as long as it takes."""
        self.request = b""
        self.on_gone: Callable[[], object] | None = None
        self.state: object = None
        """Whatever the handler keeps with the call."""
        self.stream = stream
        self.deadline_at_s = 0.0
        self.bucket = 0
        """Where the port's table of deadlines has it; 0 where it does not."""
        self.expected_bytes = 0
        """Of the message that is arriving, with its prefix; 0 while that is not known."""
        self.is_compressed = False
        self.untaken_bytes = 0
        """Of the messages of a client that streams, those that `messages` has not handed out."""
        self._half: HalfFrame | None = None
        self._connection = connection
        self._has_headers = False
        self._is_gone = False
        self._pieces: list[bytes] = []
        self._pieces_bytes = 0
        self._inbound: deque[bytes] | None = None
        self._reader: asyncio.Future[None] | None = None
        self._writer: asyncio.Future[None] | None = None

    @property
    def peer(self) -> str:
        """The client's address, as in `192.0.2.7:50312` or `[2001:db8::1]:50312`."""
        return self._connection.peer

    @property
    def is_open(self) -> bool:
        """Whether an answer can still reach the client: it is there, and the call was not ended."""
        return self.stream.owner is self and self.stream.is_open

    @property
    def is_ended(self) -> bool:
        """Whether the client has sent all."""
        return self.stream.is_ended

    def answer(self, message: bytes) -> None:
        """The call's only message; it ended well."""
        self.answer_frames(PREFIX.pack(0, len(message)) + message)

    def answer_frames(self, data: bytes) -> None:
        """All messages of the call, each behind its prefix; it ended well."""
        stream = self.stream
        # An answer that was ended may wait for its client's window, on a stream that is open.
        if stream.owner is not self or not stream.is_open:
            return
        self._connection.core.send_whole(stream, _RESPONSE, data, _OK)
        self._connection.call_ended(self)

    def write(self, message: bytes) -> None:
        """One more message of the answer; it may wait for further ones, until `flush`, `ready` or `end`."""
        self._pieces += (PREFIX.pack(0, len(message)), message)
        self._pieces_bytes += len(message) + PREFIX_BYTES
        if self._pieces_bytes >= _PIECE_BYTES:
            self.flush()

    def flush(self) -> None:
        """Let what was written leave."""
        if self._pieces:
            data = b"".join(self._pieces)
            self._pieces.clear()
            self._pieces_bytes = 0
            if self.is_open:
                self._begin()
                self._connection.core.send_data(self.stream, data)
                self._connection.flush_soon()

    async def ready(self) -> None:
        """Return once the client has read most of what was written. CancelledError where it is gone meanwhile."""
        self.flush()
        while self.is_stuffed and self.is_open:
            self._writer = asyncio.get_running_loop().create_future()
            self._connection.wait_for_room(self)
            await self._writer

    @property
    def is_stuffed(self) -> bool:
        """Whether the client leaves so much unread that no more should be made for it."""
        connection = self._connection
        return (
            self.stream.queued_bytes > STREAM_HIGH_WATER_BYTES
            or connection.is_stuffed
            or connection.core.outgoing_bytes >= WRITE_HIGH_WATER_BYTES
        )

    def end(self, status: GrpcStatus = GrpcStatus.OK, words: str = "") -> None:
        """End the answer behind what was written. A second time is no error."""
        if not self.is_open:
            return
        core = self._connection.core
        if self._pieces or self._has_headers:
            data = b"".join(self._pieces)
            self._pieces.clear()
            self._pieces_bytes = 0
            trailers = _OK if status is GrpcStatus.OK else _trailers(status, words)
            if self._has_headers:
                core.send_data(self.stream, data, trailers)
            else:
                core.send_whole(self.stream, _RESPONSE, data, trailers)
        else:
            # An answer without messages has one block of headers (Trailers-Only).
            core.send_headers(self.stream, (*_RESPONSE, *_trailers(status, words)), ends=True)
        self._connection.call_ended(self)

    async def next_message(self) -> bytes | None:
        """The next message of a client that streams, or None when it has sent all."""
        inbound = self._inbound
        assert inbound is not None
        while not inbound:
            if self.stream.is_ended or not self.is_open:
                return None
            self._reader = asyncio.get_running_loop().create_future()
            await self._reader
        message = inbound.popleft()
        self.untaken_bytes -= len(message) + PREFIX_BYTES
        self._connection.note_taken(self)
        return message

    async def wait_for_words(self) -> None:
        """Return once the client has sent anything, or will send nothing."""
        while not self.stream.received_bytes and self.stream.is_open and not self.stream.is_ended:
            self._reader = asyncio.get_running_loop().create_future()
            await self._reader

    # for the connection

    def take_whole(self) -> bool:
        """Take the call's only message where it came in one piece, as it is, with the end of its stream; whether it
        did, and is `request` now. Nothing is changed where somebody has to look closer."""
        stream = self.stream
        inbox = stream.inbox
        if len(inbox) != 1 or not stream.is_ended or self.expected_bytes or self._half is not None:
            return False
        data = inbox[0]
        size = len(data)
        if size < PREFIX_BYTES or size > _PIECE_BYTES or data[0] or data[1] or data[2]:
            return False
        if (data[3] << 8 | data[4]) != size - PREFIX_BYTES:
            return False
        self.expected_bytes = size
        self.request = data[PREFIX_BYTES:]
        inbox.clear()
        stream.inbox_bytes = 0
        return True

    def expect_stream(self) -> None:
        """Keep messages until `next_message` hands them out."""
        self._inbound = deque()

    def deliver(self, message: bytes | None) -> None:
        """One more message of a client that streams; None: something else has changed for who waits."""
        if message is not None:
            assert self._inbound is not None
            self._inbound.append(message)
            self.untaken_bytes += len(message) + PREFIX_BYTES
        if self._reader is not None:
            reader, self._reader = self._reader, None
            if not reader.done():
                reader.set_result(None)

    def wake_writer(self) -> None:
        """Let `ready` look again."""
        if self._writer is not None:
            writer, self._writer = self._writer, None
            if not writer.done():
                writer.set_result(None)

    def end_deadline(self) -> None:
        """The time of the call is over."""
        self._connection.end_deadline(self)

    def note_gone(self) -> None:
        """The client is gone, or does not wait any longer."""
        if self._is_gone:
            return
        self._is_gone = True
        self._pieces.clear()
        self._pieces_bytes = 0
        gone, self.on_gone = self.on_gone, None
        if gone is not None:
            gone()
        self.deliver(None)
        self.wake_writer()

    @property
    def half(self) -> HalfFrame:
        """What the process's memory knows of the message that is arriving."""
        if self._half is None:
            self._half = self._connection.half_of(self)
        return self._half

    @property
    def is_half(self) -> bool:
        """Whether the process's memory was told of it."""
        return self._half is not None

    def forget_half(self) -> None:
        """The message is whole, or the call over."""
        self._half = None

    def _begin(self) -> None:
        if not self._has_headers:
            self._has_headers = True
            self._connection.core.send_headers(self.stream, _RESPONSE)


def _trailers(status: GrpcStatus, words: str) -> tuple[Header, ...]:
    code = ("grpc-status", str(int(status)))
    accepted = (_ACCEPTED,) if status is GrpcStatus.UNIMPLEMENTED else ()
    if not words:
        return (code, *accepted)
    return (code, ("grpc-message", encode_status_message(words[:MAX_STATUS_CHARACTERS])), *accepted)
