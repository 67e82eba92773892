"""What the client of one connection of an HTTP port has not read, as the budget of all connections counts it."""

from __future__ import annotations

import asyncio
import logging
from typing import Protocol

from millstream.model.clock import Clock
from millstream.model.errors import ConnectionFailed
from millstream.transport.connection_memory import ConnectionMemory, UnreadAnswer
from millstream.transport.strangers import StrangerAct, StrangerLog

__all__ = ["UnreadBuffer", "UnreadPort"]

_log = logging.getLogger(__name__)


class UnreadPort(Protocol):
    """What connections have in common."""

    clock: Clock
    memory: ConnectionMemory
    strangers: StrangerLog


class UnreadBuffer:
    """The buffer of a transport, from `note_full` to `note_read`. Whoever writes waits in between: what an application
    has ahead is one write. Where all buffers together are too much, the client that has read nothing for longest is cut
    off: what it is sent has to come again."""

    def __init__(self, port: UnreadPort, transport: asyncio.Transport, peer: str) -> None:
        self.since_s: float | None = None
        """Since when the buffer is full; None where it is not."""
        self._port = port
        self._transport = transport
        self._peer = peer
        self._answer: UnreadAnswer | None = None
        """There while the buffer is full: it knows this object, which would wait for the search for such circles."""

    def note_full(self) -> None:
        """The buffer is full."""
        self.since_s = self._port.clock.monotonic_s()
        if self._answer is None:
            self._answer = UnreadAnswer(self._transport.get_write_buffer_size, _serve_no_more, self._give_up)
        self.measure(self.since_s)

    def note_read(self) -> None:
        """The client has read, or is gone; a second time is no error."""
        self.since_s = None
        if self._answer is not None:
            self._port.memory.answers.end(self._answer)
            self._answer = None

    def measure(self, now_s: float) -> None:
        """Tell the budget what the client has read of a full buffer meanwhile."""
        if self._answer is not None and not self._transport.is_closing():
            self._port.memory.answers.note_unread(self._answer, self._transport.get_write_buffer_size(), now_s)

    def _give_up(self, error: ConnectionFailed) -> None:
        if not self._transport.is_closing():
            line = f"Closing the connection from {self._peer}. {error.message} [{error.label}]"
            self._port.strangers.say(_log, StrangerAct.BAD_FRAME, line)
        self._transport.abort()


def _serve_no_more() -> None:
    """Nothing: who writes goes on when the buffer itself has room."""
