"""The door of a port: it accepts, and keeps each connection as a bare socket until its first byte has come, which it
looks at and takes nothing from.

So a port can answer TLS and plaintext, which asyncio's own servers and gRPC's cannot, and a silent connection costs a
socket and no more. Where there are too many, or descriptors are scarce, the one that has waited for longest gives way:
who has something to say says it at once.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Final

from millstream.security.tls import CLIENT_HELLO
from millstream.transport.descriptor_budget import DescriptorBudget
from millstream.transport.listening import open_listening
from millstream.transport.strangers import StrangerAct, StrangerLog

__all__ = [
    "ACCEPTS_PER_TURN",
    "ACCEPT_PAUSE_S",
    "FIRST_BYTE_LIMIT_S",
    "HANDSHAKE_LIMIT_S",
    "MAX_SILENT_CONNECTIONS",
    "Enter",
    "TlsSniffer",
]

_log = logging.getLogger(__name__)

FIRST_BYTE_LIMIT_S: Final = 120.0
"""Seconds that a connection may stay silent before it is closed: as long as an idle one."""

HANDSHAKE_LIMIT_S: Final = 10.0
"""Seconds that a TLS handshake may take."""

MAX_SILENT_CONNECTIONS: Final = 2_000
"""Connections of a port that have sent nothing yet at most, and no more than a quarter of the descriptors for
connections; the next one replaces the one that is silent for longest."""

ACCEPTS_PER_TURN: Final = 64
"""Connections that a port accepts in one turn of the event loop at most, so that a flood of them delays nobody."""

ACCEPT_PAUSE_S: Final = 0.1
"""Seconds until the next attempt if none can be accepted, as without free descriptors."""

_GONE: Final = frozenset({errno.ECONNABORTED, errno.EAGAIN, errno.EINTR, errno.EPROTO})
"""Why there is nothing to accept after all."""

Enter = Callable[[socket.socket, bool], Awaitable[None]]
"""Takes a connection and whether it begins as TLS does. OSError: it could not be taken."""


class TlsSniffer:
    """Accepts connections and hands each to `enter`, which notes its descriptor in the budget before it returns.

    While `admits` says no, every connection is closed at once.
    """

    def __init__(
        self,
        enter: Enter,
        descriptors: DescriptorBudget,
        strangers: StrangerLog,
        *,
        admits: Callable[[], bool] = lambda: True,
        first_byte_limit_s: float = FIRST_BYTE_LIMIT_S,
    ) -> None:
        self._enter = enter
        self._admits = admits
        self._descriptors = descriptors
        self._strangers = strangers
        self._first_byte_limit_s = first_byte_limit_s
        self._listening: list[socket.socket] = []
        self._paused: dict[socket.socket, asyncio.TimerHandle] = {}
        # In the order in which they came.
        self._entering: dict[asyncio.Task[None], str] = {}

    async def start(
        self, host: str, port: int, *, shares_port: bool = False, listening: Sequence[socket.socket] = ()
    ) -> int:
        """Listen; the bound port. See `open_listening`, which opens the sockets where `listening` has none that listen
        already. OSError where that fails."""
        loop = asyncio.get_running_loop()
        self._listening = [*listening] or await open_listening(host, port, shares_port=shares_port)
        for one in self._listening:
            loop.add_reader(one, self._accept_some, one)
        return self.port

    @property
    def port(self) -> int:
        """The bound port; 0 if there is none yet."""
        return int(self._listening[0].getsockname()[1]) if self._listening else 0

    @property
    def waiting(self) -> int:
        """Connections that have not entered yet."""
        return len(self._entering)

    def close(self) -> None:
        """Stop listening; those that have not entered yet are closed."""
        for pause in self._paused.values():
            pause.cancel()
        self._paused.clear()
        for task in list(self._entering):
            task.cancel()
        for listening in self._listening:
            asyncio.get_running_loop().remove_reader(listening)
            listening.close()
        self._listening.clear()

    def _accept_some(self, listening: socket.socket) -> None:
        for _ in range(ACCEPTS_PER_TURN):
            try:
                connection, address = listening.accept()
            except OSError as error:
                if error.errno not in _GONE:
                    self._pause(listening, error)
                return
            self._let_in(connection, address)

    def _pause(self, listening: socket.socket, error: OSError) -> None:
        """Accept none for a while: the port would count as readable all the time."""
        words = f"No connection to port {self.port} can be accepted for now: {error.strerror or error}."
        self._strangers.say(_log, StrangerAct.NOT_ACCEPTED, words)
        self._close_longest_silent()
        loop = asyncio.get_running_loop()
        loop.remove_reader(listening)
        self._paused[listening] = loop.call_later(ACCEPT_PAUSE_S, self._resume, listening)

    def _resume(self, listening: socket.socket) -> None:
        del self._paused[listening]
        asyncio.get_running_loop().add_reader(listening, self._accept_some, listening)

    def _let_in(self, connection: socket.socket, address: Any) -> None:
        peer = f"{address[0]}:{address[1]}"
        if not self._admits():
            connection.close()
            return
        has_room = self._descriptors.take()
        if not has_room or len(self._entering) >= min(MAX_SILENT_CONNECTIONS, max(self._descriptors.room // 4, 1)):
            if not self._close_longest_silent() and not has_room:
                words = f"Refusing the connection from {peer}: {self._descriptors.used} descriptors are in use."
                self._strangers.say(_log, StrangerAct.REFUSED, words)
                connection.close()
                return
            if not has_room:
                self._descriptors.note()
        task = asyncio.create_task(self._look(connection, peer), name="doorway")
        self._entering[task] = peer
        task.add_done_callback(partial(self._end_entry, connection))

    def _end_entry(self, connection: socket.socket, task: asyncio.Task[None]) -> None:
        # Here and not in the task, which never begins where it is cancelled in its first turn.
        self._entering.pop(task, None)
        self._descriptors.free()
        if task.cancelled():
            connection.close()

    def _close_longest_silent(self) -> bool:
        """Whether there was one."""
        if not self._entering:
            return False
        task = next(iter(self._entering))
        words = f"Closing the connection from {self._entering.pop(task)}: {self.waiting + 1} have said nothing yet."
        self._strangers.say(_log, StrangerAct.REFUSED, words)
        task.cancel()
        return True

    async def _look(self, connection: socket.socket, peer: str) -> None:
        try:
            connection.setblocking(False)
            try:
                # The client of a protocol that speaks first has mostly done so by now.
                first = connection.recv(1, socket.MSG_PEEK)
            except BlockingIOError:
                async with asyncio.timeout(self._first_byte_limit_s):
                    await _readable(connection)
                first = connection.recv(1, socket.MSG_PEEK)
            if not first:
                raise ConnectionResetError("closed before it said anything")
            await self._enter(connection, first[0] == CLIENT_HELLO)
        except (OSError, TimeoutError) as error:
            words = f"The connection from {peer} did not come to be: {error or 'it was silent for too long'}."
            self._strangers.say(_log, StrangerAct.NOT_ENTERED, words, level=logging.INFO)
            connection.close()
        except BaseException:
            connection.close()
            raise


async def _readable(connection: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    ready = loop.create_future()

    def set_once() -> None:
        if not ready.done():
            ready.set_result(None)

    loop.add_reader(connection.fileno(), set_once)
    try:
        await ready
    finally:
        loop.remove_reader(connection.fileno())
