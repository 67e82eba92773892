"""A gRPC port that answers TLS and plaintext: gRPC's own listeners answer one of the two, so this one stands before.
It also takes the connections of gRPC clients that came to another port.

Each connection is handed to one of two inner listeners on 127.0.0.1 and its bytes are carried on as they are: TLS ends
inside gRPC. Every byte passes through this process once more; a port for TLS alone has no such front.
"""

from __future__ import annotations

import asyncio
import socket
from contextlib import ExitStack
from typing import Final

from millstream.transport.descriptor_budget import DescriptorBudget
from millstream.transport.relay import Relay
from millstream.transport.strangers import StrangerLog
from millstream.transport.tls_sniffer import TlsSniffer

__all__ = ["INNER_HOST", "MAX_CONNECTIONS", "TlsSniffingProxy"]

MAX_CONNECTIONS: Final = 5_000
"""Connections of a port that answers TLS and plaintext at most, and no more than there are descriptors for, of which
each takes three; the next one is closed at once."""

_DESCRIPTORS: Final = 3
"""Of one connection: the client's, the near end of what is carried inside, and gRPC's end of that."""

INNER_HOST = "127.0.0.1"
"""Where the inner ports are, and so the near ends of what is carried to them."""


class TlsSniffingProxy:
    """Carries connections to the inner ports, and knows who is at the far end of each."""

    def __init__(
        self, plain_port: int | None, tls_port: int | None, descriptors: DescriptorBudget, strangers: StrangerLog
    ) -> None:
        self._ports = {False: plain_port, True: tls_port}
        self._descriptors = descriptors
        self._doorway = TlsSniffer(self.carry, descriptors, strangers)
        self._outer: dict[int, _Outer] = {}

    async def start(self, host: str, port: int) -> int:
        """Listen; the bound port. OSError where that fails."""
        return await self._doorway.start(host, port)

    def close(self) -> None:
        """Stop listening; what is under way goes on."""
        self._doorway.close()

    def cut_off(self) -> None:
        """Close what is under way."""
        for outer in list(self._outer.values()):
            outer.close()

    def peer_of(self, inner_port: int) -> str | None:
        """`host:port` of the client whose connection arrives inside from that port; None for others."""
        outer = self._outer.get(inner_port)
        return None if outer is None else outer.peer

    async def carry(self, connection: socket.socket, is_tls: bool) -> None:
        """Take a connection, which begins as TLS or not. OSError where there is no port or no room for it."""
        port = self._ports[is_tls]
        if port is None:
            raise ConnectionAbortedError("no gRPC port for that kind of connection")
        if len(self._outer) >= MAX_CONNECTIONS:
            raise ConnectionAbortedError(f"{MAX_CONNECTIONS} connections are open")
        if not self._descriptors.take(_DESCRIPTORS):
            raise ConnectionAbortedError(f"{self._descriptors.used} descriptors are in use")
        # Closed once, by whichever end of it comes first.
        held = ExitStack()
        held.callback(self._descriptors.free, _DESCRIPTORS)
        try:
            await self._carry(connection, port, held)
        except BaseException:
            held.close()
            raise

    async def _carry(self, connection: socket.socket, port: int, held: ExitStack) -> None:
        loop = asyncio.get_running_loop()
        host, peer_port = connection.getpeername()[:2]
        inner = Relay()
        await loop.create_connection(lambda: inner, INNER_HOST, port)
        number = inner.local_port
        peer = f"[{host}]:{peer_port}" if ":" in host else f"{host}:{peer_port}"
        outer = _Outer(inner, peer, self._outer, number, held)
        self._outer[number] = outer
        try:
            # Only now the first bytes are read: the peer is known before any call arrives.
            await loop.connect_accepted_socket(lambda: outer, connection)
        except BaseException:
            self._outer.pop(number, None)
            inner.close()
            raise


class _Outer(Relay):
    """The client's end."""

    def __init__(self, inner: Relay, peer: str, among: dict[int, _Outer], number: int, held: ExitStack) -> None:
        super().__init__(inner)
        self.peer = peer
        self._among = among
        self._number = number
        self._held = held

    def connection_lost(self, error: Exception | None) -> None:
        super().connection_lost(error)
        if self._among.get(self._number) is self:
            del self._among[self._number]
        self._held.close()
