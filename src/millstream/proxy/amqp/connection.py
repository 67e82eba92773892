"""One client's connection at the AMQP port.

All frames of one chunk are handled in the turn in which it arrived, and all answers of a turn leave in one write.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final, Protocol, cast

from millstream.model.clock import Clock
from millstream.model.errors import ConnectionFailed
from millstream.model.message import Address
from millstream.protocol.amqp.connection import AmqpCore, AmqpLimits
from millstream.protocol.amqp.reply_codes import ConnectionFailure, ReplyCode
from millstream.proxy.amqp.session import AmqpSession, AmqpShared
from millstream.transport.connection_memory import SMALL_BYTES, ConnectionMemory, HalfFrame, UnreadAnswer
from millstream.transport.strangers import StrangerAct, StrangerLog

__all__ = ["CLOSE_LIMIT_S", "WRITE_HIGH_WATER_BYTES", "AmqpConnection", "AmqpPort"]

_log = logging.getLogger(__name__)

WRITE_HIGH_WATER_BYTES: Final = 256 * 1024
"""Unread bytes of a connection over which its consumers get nothing."""

CLOSE_LIMIT_S: Final = 2.0
"""Seconds that a client has to answer a close before its connection is cut off."""

_HALF_BYTES: Final = 8 * 1024
"""Bytes of what is not whole from which on it counts in the budget of all connections; most chunks end within some
message of less, and thousands of connections may have no more."""


class AmqpPort(Protocol):
    """What a connection needs of its port."""

    clock: Clock
    memory: ConnectionMemory
    strangers: StrangerLog
    limits: AmqpLimits
    version: str

    @property
    def shared(self) -> AmqpShared:
        """What its session shares with others."""

    def next_name(self) -> str:
        """A name for the connection that no other one has."""

    def add(self, connection: AmqpConnection) -> None:
        """A connection says that it is there."""

    def remove(self, connection: AmqpConnection) -> None:
        """A connection says that it is gone."""


class AmqpConnection(asyncio.Protocol):
    """One connection."""

    def __init__(self, port: AmqpPort) -> None:
        self._port = port
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self.core = AmqpCore(port.limits, product="Millstream", version=port.version, now_s=port.clock.monotonic_s())
        self.session = AmqpSession(port.shared, self.core, port.next_name(), Address("0.0.0.0", 0), self.flush_soon)
        self._flush_is_due = False
        self._reads = True
        self._closing: asyncio.TimerHandle | None = None
        self._half = HalfFrame(self._read_on, self._give_up)
        self._is_half = False
        self._unread = UnreadAnswer(self._measure_unread, self.flush_soon, self._give_up)

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Not isinstance: uvloop's transports are none of asyncio's classes.
        transport = cast("asyncio.Transport", transport)
        self._transport = transport
        transport.set_write_buffer_limits(high=WRITE_HIGH_WATER_BYTES)
        peer = transport.get_extra_info("peername")
        if isinstance(peer, tuple):
            self.session.peer = Address(str(peer[0]), int(peer[1]))
        self._port.add(self)

    def data_received(self, data: bytes) -> None:
        # Answers made here wait for the end of the chunk.
        self._flush_is_due = True
        now_s = self._port.clock.monotonic_s()
        self.session.take(self.core.receive(data, now_s))
        self._note_half(now_s)
        if self.session.is_congested:
            self._pause_reading()
        self.flush()

    def pause_writing(self) -> None:
        self.session.is_unread = True
        self._port.memory.answers.note_unread(self._unread, self._measure_unread(), self._port.clock.monotonic_s())

    def resume_writing(self) -> None:
        self.session.is_unread = False
        self._port.memory.answers.end(self._unread)
        self.session.wake_readers()

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        if self._closing is not None:
            self._closing.cancel()
        if self._is_half:
            self._port.memory.frames.end(self._half, self._port.clock.monotonic_s())
        self._port.memory.answers.end(self._unread)
        self.session.end()
        self.core.forget()
        self._port.remove(self)

    # for the session and the port

    def flush_soon(self) -> None:
        """Let what was sent leave at the end of this turn."""
        if not self._flush_is_due:
            self._flush_is_due = True
            self._loop.call_soon(self.flush)

    def flush(self) -> None:
        """Write what is outgoing, and close where that was the last of it."""
        self._flush_is_due = False
        transport = self._transport
        if transport is None:
            return
        self.session.send_confirms()
        data = self.core.take_outgoing(self._port.clock.monotonic_s())
        if data:
            transport.write(data)
        if self.session.note_sent():
            # Consumers were held back by what lay here alone.
            self._loop.call_soon(self.session.wake_readers)
        if self.core.is_over:
            self._close()
        elif self.core.failure is not None and self._closing is None:
            words = f"Closing the AMQP connection from {self.session.peer.host}. {self.core.failure.text}"
            self._port.strangers.say(_log, StrangerAct.BAD_FRAME, words)
            self._closing = self._loop.call_later(CLOSE_LIMIT_S, self._close)
        if not self._reads and not self.session.is_congested and not self._half.waits:
            self._resume_reading()

    def tick(self, now_s: float) -> None:
        """Time has gone by."""
        if not self.core.tick(now_s):
            words = f"Closing the AMQP connection from {self.session.peer.host}: it was silent for too long."
            self._port.strangers.say(_log, StrangerAct.BAD_REQUEST, words, level=logging.INFO)
            self.abort()
            return
        self.session.follow_rights()
        self.flush()

    def stop(self) -> None:
        """The server stops."""
        if self.core.is_open:
            self.session.fail(ConnectionFailure(ReplyCode.CONNECTION_FORCED, "the server stops"))
            self.flush()
        else:
            self._close()

    def abort(self) -> None:
        """Cut the connection off."""
        if self._transport is not None:
            self._transport.abort()

    def _close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def _note_half(self, now_s: float) -> None:
        """Tell the process's memory of what has arrived of a message that is not whole."""
        held_bytes = self.core.held_bytes
        if held_bytes >= _HALF_BYTES:
            begins, self._is_half = not self._is_half, True
            missing_bytes = max(self.core.missing_bytes, SMALL_BYTES)
            may_go_on = self._port.memory.frames.note_bytes(self._half, held_bytes, missing_bytes, now_s, begins=begins)
            if not may_go_on:
                self._pause_reading()
        elif self._is_half:
            self._is_half = False
            self._port.memory.frames.end(self._half, now_s)

    def _read_on(self) -> None:
        if not self.session.is_congested:
            self._resume_reading()

    def _pause_reading(self) -> None:
        if self._reads and self._transport is not None:
            self._reads = False
            self._transport.pause_reading()

    def _resume_reading(self) -> None:
        if not self._reads and self._transport is not None and not self._transport.is_closing():
            self._reads = True
            self._transport.resume_reading()

    def _measure_unread(self) -> int:
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    def _give_up(self, error: ConnectionFailed) -> None:
        words = f"Closing the AMQP connection from {self.session.peer.host}. {error}"
        self._port.strangers.say(_log, StrangerAct.BAD_REQUEST, words)
        self.abort()
