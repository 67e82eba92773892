"""A gRPC port that answers TLS and plaintext: it sniffs the first byte and relays to one of two gRPC listeners."""

from __future__ import annotations

import asyncio
import socket
from contextlib import ExitStack
from typing import Final, cast

from millstream.transport.descriptor_budget import DescriptorBudget
from millstream.transport.strangers import StrangerLog
from millstream.transport.tls_sniffer import TlsSniffer

__all__ = ["INNER_HOST", "MAX_CONNECTIONS", "Relay", "TlsSniffingProxy"]


_WRITE_HIGH_WATER_BYTES: Final = 256 * 1024
"""Unsent bytes of a direction over which nothing more is read from its source."""


class Relay(asyncio.Protocol):
    """One end. Whatever arrives is written to the other end, which is closed when this one is.

    The first end keeps what arrives before the second one is made with it.
    """

    def __init__(self, other: Relay | None = None) -> None:
        self.other = other
        self._transport: asyncio.Transport | None = None
        self._early: list[bytes] = []
        if other is not None:
            other.other = self

    @property
    def local_port(self) -> int:
        """The port of this side's own end."""
        assert self._transport is not None
        return int(self._transport.get_extra_info("sockname")[1])

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=_WRITE_HIGH_WATER_BYTES)
        if self.other is not None:
            early, self.other._early = self.other._early, []
            self._transport.writelines(early)

    def data_received(self, data: bytes) -> None:
        if self.other is not None and self.other._transport is not None:
            self.other._transport.write(data)
        else:
            # A server of HTTP/2 speaks first, with one short frame. Not paused instead: uvloop would read all the same.
            self._early.append(data)

    def pause_writing(self) -> None:
        if self.other is not None and self.other._transport is not None:
            self.other._transport.pause_reading()

    def resume_writing(self) -> None:
        if self.other is not None and self.other._transport is not None:
            self.other._transport.resume_reading()

    def connection_lost(self, error: Exception | None) -> None:
        self.close_other()

    def close_other(self) -> None:
        """Close the other end, after what was written to it."""
        if self.other is not None and self.other._transport is not None:
            self.other._transport.close()

    def close(self) -> None:
        """Close this end at once."""
        if self._transport is not None:
            self._transport.abort()


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
