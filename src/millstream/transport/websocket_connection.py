"""One WebSocket of an HTTP port: messages of text in both directions, bounded in bytes, number and time.

The application reads with `receive` and writes with `send`. Pings, closes, slow and silent clients are dealt with here.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import Final, Protocol

from millstream.model.clock import Clock
from millstream.model.errors import ConnectionFailed
from millstream.protocol.websocket import (
    CloseCode,
    FrameRefused,
    Opcode,
    TextMessages,
    encode_close,
    encode_frame,
    encode_head,
)
from millstream.transport.connection_memory import ConnectionMemory, HalfFrame
from millstream.transport.strangers import StrangerAct, StrangerLog
from millstream.transport.unread_buffer import UnreadBuffer

__all__ = [
    "CLOSE_LIMIT_S",
    "MAX_WAITING_MESSAGES",
    "MAX_WEBSOCKET_MESSAGE_BYTES",
    "PIECE_BYTES",
    "PING_AFTER_S",
    "PONG_LIMIT_S",
    "SOCKET_UNREAD_LIMIT_S",
    "WebSocketConnection",
    "WebSocketPort",
]

_log = logging.getLogger(__name__)

MAX_WEBSOCKET_MESSAGE_BYTES: Final = 256 * 1024
"""Bytes of one message of a client at most, in however many frames."""

MAX_WAITING_MESSAGES: Final = 16
"""Messages of a client that wait to be handled; while there are so many, the client is not read."""

PING_AFTER_S: Final = 20.0
"""Seconds of silence after which a client is sent a ping."""

PONG_LIMIT_S: Final = 20.0
"""Seconds in which it has to say something then; else the connection ends."""

SOCKET_UNREAD_LIMIT_S: Final = 30.0
"""Seconds that a client may leave messages unread once the buffer is full; then the connection ends."""

CLOSE_LIMIT_S: Final = 2.0
"""Seconds that a client has to answer a close; then the connection ends all the same."""

PIECE_BYTES: Final = 4 * 1024
"""Bytes of a client that are taken in one turn of the event loop: they may be frames of six bytes. No more are read
at a time, where the transport lets itself be told: what is read and not taken is in no budget."""

_JOINED_BYTES: Final = 64 * 1024
"""Bytes of a message up to which its frame is one write."""


class WebSocketPort(Protocol):
    """The port of a WebSocket, as `AsgiPort` is one."""

    clock: Clock
    memory: ConnectionMemory
    strangers: StrangerLog

    def remove(self, connection: WebSocketConnection) -> None:
        """The connection says that it is gone."""
        ...


class WebSocketConnection(asyncio.Protocol):
    """A connection whose handshake was answered. `feed` takes what came behind it already."""

    def __init__(self, port: WebSocketPort, transport: asyncio.Transport, peer: str) -> None:
        self.transport = transport
        if hasattr(transport, "max_size"):
            transport.max_size = PIECE_BYTES
        self.unread = UnreadBuffer(port, transport, peer)
        self._port = port
        self._peer = peer
        self._messages = TextMessages(MAX_WEBSOCKET_MESSAGE_BYTES)
        self._held = b""
        """What was read and not taken, behind `_held_from`."""
        self._held_from = 0
        self._waits_for_turn = False
        self._waiting: deque[str] = deque()
        self._changed = asyncio.Event()
        self._has_room = asyncio.Event()
        self._has_room.set()
        self._frame = HalfFrame(self._throttle, self._give_up)
        self._is_half = False
        self._reads = True
        self._read_s = port.clock.monotonic_s()
        self._pinged_s: float | None = None
        self._closing_since_s: float | None = None
        self._is_lost = False
        self._is_deaf = False
        """Whether bytes of the client have no meaning any more."""

    @property
    def is_open(self) -> bool:
        """Whether what is sent now can still reach the client."""
        return self._closing_since_s is None and not self._is_lost and not self.transport.is_closing()

    # For the application

    async def receive(self) -> str | None:
        """The client's next message; None once the WebSocket is closed and all of them were read."""
        while not self._waiting:
            if not self.is_open:
                return None
            self._changed.clear()
            await self._changed.wait()
        message = self._waiting.popleft()
        self._throttle()
        return message

    async def send(self, data: bytes) -> None:
        """Send a message; returns once the connection's buffer has room again. ConnectionError once it is closed."""
        if self.is_open:
            self._write_frame(data)
        # The frame is the transport's: one copy is enough while the client does not read.
        del data
        await self._has_room.wait()
        if not self.is_open:
            raise ConnectionAbortedError("the WebSocket is closed")

    def close(self, code: CloseCode, words: str = "") -> None:
        """Close it, and say why. The connection ends when the client answers, or after `CLOSE_LIMIT_S`."""
        if self.is_open:
            self.transport.write(encode_close(code, words))
            self._end()

    def refuse(self, code: CloseCode, words: str) -> None:
        """The same for what the client should not have sent; the log has a line."""
        if self.is_open:
            line = f"Closing the WebSocket of {self._peer}: {words}"
            self._port.strangers.say(_log, StrangerAct.BAD_FRAME, line)
        self.close(code, words)

    # For the port

    def shutdown(self) -> None:
        """The server stops."""
        self.close(CloseCode.GOING_AWAY, "The server stops.")

    def check_times(self, now_s: float) -> None:
        """Ask a silent client whether it is there, and end the connection of one that is not, or does not read."""
        if self._closing_since_s is not None:
            if now_s - self._closing_since_s >= CLOSE_LIMIT_S:
                self.transport.abort()
        elif self.unread.since_s is not None:
            if now_s - self.unread.since_s >= SOCKET_UNREAD_LIMIT_S:
                self.transport.abort()
        elif not self._reads:
            # It is this side that does not listen.
            self._read_s, self._pinged_s = now_s, None
        elif self._pinged_s is not None:
            if now_s - self._pinged_s >= PONG_LIMIT_S:
                self.transport.abort()
        elif now_s - self._read_s >= PING_AFTER_S:
            self._pinged_s = now_s
            self.transport.write(encode_frame(Opcode.PING, b""))

    # asyncio.Protocol

    def data_received(self, data: bytes) -> None:
        self.feed(data)

    def feed(self, data: bytes) -> None:
        """Take bytes of the client, many of them in several turns."""
        self._read_s, self._pinged_s = self._port.clock.monotonic_s(), None
        if self._is_deaf:
            return
        if self._held:
            self._held, self._held_from = self._held[self._held_from :] + data, 0
        elif len(data) <= PIECE_BYTES and self._port.memory.input.take_now(len(data)):
            self._take(data)
        else:
            self._held, self._held_from = data, 0
            self._throttle()

    def _go_on(self) -> None:
        """Take a piece of what was read."""
        self._waits_for_turn = False
        if self._is_full or not self._held:
            return
        end = self._held_from + PIECE_BYTES
        piece = self._held[self._held_from : end]
        self._held_from = end
        if end >= len(self._held):
            self._held, self._held_from = b"", 0
        self._take(piece)

    def _take(self, data: bytes) -> None:
        frames = self._messages.frames
        try:
            messages = self._messages.feed(data)
        except FrameRefused as error:
            self._refuse_frame(error)
            return
        if self._closing_since_s is None:
            self._waiting += messages
            if frames.answers:
                self.transport.write(frames.answers)
        frames.answers = b""
        self._note_half(begins=bool(messages))
        if frames.is_closed:
            self._end()
            self.transport.close()
        self._changed.set()
        self._throttle()

    def pause_writing(self) -> None:
        self.unread.note_full()
        self._has_room.clear()
        self._throttle()

    def resume_writing(self) -> None:
        self.unread.note_read()
        self._has_room.set()
        self._throttle()

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_lost = True
        self._held = b""
        # A connection is part of reference circles: what it holds would wait for the garbage collection.
        self._messages = TextMessages(MAX_WEBSOCKET_MESSAGE_BYTES)
        self._forget_half()
        self.unread.note_read()
        self._wake()
        self._port.remove(self)

    # inside

    def _write_frame(self, data: bytes) -> None:
        """Write a message. A large one is not copied into a frame, nor what is left of it when a part was sent: each
        copy of it would be megabytes, for a moment, and for many connections at once."""
        if len(data) <= _JOINED_BYTES:
            self.transport.write(encode_frame(Opcode.TEXT, data))
            return
        self.transport.write(encode_head(Opcode.TEXT, len(data)))
        self.transport.write(memoryview(data))

    def _refuse_frame(self, error: FrameRefused) -> None:
        """What follows a bad frame has no meaning. It is read all the same for a while: bytes that nobody reads would
        make the system throw the close away."""
        self._is_deaf = True
        self._held = b""
        self._forget_half()
        self._messages = TextMessages(MAX_WEBSOCKET_MESSAGE_BYTES)
        if self.is_open:
            self.refuse(error.code, error.message)
        else:
            self.transport.abort()

    def _end(self) -> None:
        self._closing_since_s = self._port.clock.monotonic_s()
        self._wake()
        self._throttle()

    def _wake(self) -> None:
        self._changed.set()
        self._has_room.set()

    def _note_half(self, *, begins: bool) -> None:
        """Tell the process what lies here of a message."""
        held_bytes, missing_bytes = self._messages.held_bytes, self._messages.frames.missing_bytes
        if not held_bytes and not missing_bytes:
            self._forget_half()
            return
        self._is_half = True
        self._port.memory.frames.note_bytes(self._frame, held_bytes, missing_bytes, self._read_s, begins=begins)

    def _forget_half(self) -> None:
        if self._is_half:
            self._is_half = False
            self._port.memory.frames.end(self._frame, self._port.clock.monotonic_s())

    def _give_up(self, error: ConnectionFailed) -> None:
        is_slow = error.name == "REQUEST_TOO_SLOW"
        self._is_half = False
        self.refuse(CloseCode.POLICY_VIOLATION if is_slow else CloseCode.TRY_AGAIN_LATER, error.message)

    @property
    def _is_full(self) -> bool:
        """Whether no more is taken: the client does not read, its messages wait, or there is no memory for more."""
        waits = len(self._waiting) >= MAX_WAITING_MESSAGES and self._closing_since_s is None
        return waits or self.unread.since_s is not None or self._frame.waits

    def _throttle(self) -> None:
        """Read only while what was read is taken."""
        if self._held and not self._waits_for_turn and not self._is_full:
            self._waits_for_turn = True
            self._port.memory.input.wait(min(len(self._held) - self._held_from, PIECE_BYTES), self._go_on)
        wanted = not self._held and not self._is_full
        if wanted is self._reads or self._is_lost or self.transport.is_closing():
            return
        self._reads = wanted
        if wanted:
            self.transport.resume_reading()
        else:
            self.transport.pause_reading()
