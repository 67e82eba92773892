"""A port that answers TLS and plaintext: it looks at the first byte of each connection, and takes nothing from it.

asyncio's own servers and gRPC's cannot do that. The connection is handed on as a socket, so what is not looked at costs
nothing later.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable
from typing import Final

from millstream.security.tls import CLIENT_HELLO

__all__ = ["FIRST_BYTE_LIMIT_S", "HANDSHAKE_LIMIT_S", "MAX_AT_THE_DOOR", "Doorway", "Enter"]

_log = logging.getLogger(__name__)

FIRST_BYTE_LIMIT_S: Final = 120.0
"""Seconds that a connection may stay silent before it is closed: as long as an idle one."""

HANDSHAKE_LIMIT_S: Final = 10.0
"""Seconds that a TLS handshake may take."""

MAX_AT_THE_DOOR: Final = 2_000
"""Connections that have not said anything yet at most; the next one is closed at once."""

_ACCEPT_PAUSE_S = 1.0

Enter = Callable[[socket.socket, bool], Awaitable[None]]
"""Takes a connection and whether it begins as TLS does. OSError: it could not be taken."""


class Doorway:
    """Accepts connections on `host`:`port` and hands each to `enter`."""

    def __init__(self, enter: Enter) -> None:
        self._enter = enter
        self._listening: list[socket.socket] = []
        self._accepting: list[asyncio.Task[None]] = []
        self._entering: set[asyncio.Task[None]] = set()

    async def start(self, host: str, port: int) -> int:
        """Listen; the bound port. OSError where that fails."""
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        try:
            for family, kind, protocol, _, address in dict.fromkeys(found):
                listening = socket.socket(family, kind, protocol)
                self._listening.append(listening)
                listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if family == socket.AF_INET6:
                    listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                # All addresses of a host share the port that the first of them was given.
                listening.bind((address[0], port or self.port or 0, *address[2:]))
                listening.listen(1024)
                listening.setblocking(False)
        except OSError:
            self.close()
            raise
        self._accepting = [asyncio.create_task(self._accept_forever(one), name="doorway") for one in self._listening]
        return self.port

    @property
    def port(self) -> int:
        """The bound port; 0 if there is none yet."""
        return int(self._listening[0].getsockname()[1]) if self._listening else 0

    def close(self) -> None:
        """Stop listening; those that have not entered yet are closed."""
        for task in (*self._accepting, *self._entering):
            task.cancel()
        for listening in self._listening:
            listening.close()
        self._listening.clear()

    async def _accept_forever(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, address = await loop.sock_accept(listening)
            except OSError as error:
                # As where all descriptors are in use: that passes when others are closed.
                _log.warning("No connection can be accepted for now: %s", error)
                await asyncio.sleep(_ACCEPT_PAUSE_S)
                continue
            if len(self._entering) >= MAX_AT_THE_DOOR:
                _log.warning("Refusing the connection from %s: %d have said nothing.", address[0], MAX_AT_THE_DOOR)
                connection.close()
                continue
            task = asyncio.create_task(self._look(connection))
            self._entering.add(task)
            task.add_done_callback(self._entering.discard)

    async def _look(self, connection: socket.socket) -> None:
        try:
            connection.setblocking(False)
            async with asyncio.timeout(FIRST_BYTE_LIMIT_S):
                await _readable(connection)
            first = connection.recv(1, socket.MSG_PEEK)
            if not first:
                raise ConnectionResetError("closed before it said anything")
            await self._enter(connection, first[0] == CLIENT_HELLO)
        except (OSError, TimeoutError) as error:
            _log.info("A connection did not come to be: %s", error)
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
