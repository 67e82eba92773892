"""The gRPC port on grpc.aio: its listeners, and the relay where TLS and plaintext share a port."""

from __future__ import annotations

import errno
import socket
from typing import Final

from millstream.model.errors import StartRefused
from millstream.proxy.grpc.adapter import MessagingAdapter
from millstream.proxy.grpc.grpcio.tls_sniffing_proxy import TlsSniffingProxy
from millstream.proxy.grpc.grpcio.transport import MAX_CONNECTIONS, GrpcTransport
from millstream.security.tls import ServerIdentity, TlsMode
from millstream.transport.descriptor_budget import DescriptorBudget
from millstream.transport.strangers import StrangerLog

__all__ = ["AioListener"]

_INNER_TARGET: Final = "127.0.0.1:0"


class AioListener:
    """Build, `bind`, `serve`, `close`; once each."""

    def __init__(
        self,
        host: str,
        port: int,
        tls: tuple[ServerIdentity, TlsMode] | None,
        descriptors: DescriptorBudget,
        strangers: StrangerLog,
        *,
        carries: bool,
    ) -> None:
        self._host = host
        self._port = port
        self._tls = tls
        self._carries = carries
        self._descriptors = descriptors
        self._strangers = strangers
        self._front: TlsSniffingProxy | None = None
        self._transport: GrpcTransport | None = None

    async def bind(self) -> int:
        """Take the port. StartRefused with PORT_IN_USE or ADDRESS_NOT_LOCAL where that fails."""
        _check_free(self._host, self._port)
        # gRPC counts the connections of its own listeners by itself; those of a front are counted there.
        has_front_alone = self._tls is not None and self._tls[1] is TlsMode.PERMISSIVE
        transport = GrpcTransport(MAX_CONNECTIONS if has_front_alone else self._descriptors.set_aside(MAX_CONNECTIONS))
        try:
            port = await self._bind(transport)
        except OSError:
            raise _port_in_use(self._host, self._port) from None
        self._transport = transport
        return port

    async def serve(self, adapter: MessagingAdapter) -> None:
        """Answer calls from now on."""
        assert self._transport is not None
        await self._transport.serve(adapter)

    async def carry(self, connection: socket.socket, is_tls: bool) -> None:
        """Take a connection that came to another port. OSError where it cannot be taken."""
        if self._front is None:
            raise ConnectionAbortedError("the gRPC port takes no connections of other ports")
        await self._front.carry(connection, is_tls)

    async def close(self, grace_s: float) -> None:
        """Take no more calls and answer those under way for up to `grace_s`."""
        if self._front is not None:
            self._front.close()
        if self._transport is not None:
            await self._transport.close(grace_s)
            self._transport = None
        if self._front is not None:
            self._front.cut_off()

    async def _bind(self, transport: GrpcTransport) -> int:
        identity, mode = self._tls or (None, None)
        if mode is not TlsMode.PERMISSIVE:
            target = f"[{self._host}]:{self._port}" if ":" in self._host else f"{self._host or '[::]'}:{self._port}"
            if self._carries:
                inner = transport.bind(_INNER_TARGET, identity)
                self._front = self._front_of(inner, None) if identity is None else self._front_of(None, inner)
                transport.peer_of = self._front.peer_of
            return transport.bind(target, identity)
        self._front = self._front_of(transport.bind(_INNER_TARGET), transport.bind(_INNER_TARGET, identity))
        transport.peer_of = self._front.peer_of
        return await self._front.start(self._host, self._port)

    def _front_of(self, plain_port: int | None, tls_port: int | None) -> TlsSniffingProxy:
        return TlsSniffingProxy(plain_port, tls_port, self._descriptors, self._strangers)


def _check_free(host: str, port: int) -> None:
    """Try the port with a plain socket first: gRPC tells no reason, and writes to the terminal when it fails."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
            probe.listen(1)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise _port_in_use(host, port) from None
        raise StartRefused("ADDRESS_NOT_LOCAL", f"{host}:{port} cannot be listened on: {error}.") from None


def _port_in_use(host: str, port: int) -> StartRefused:
    return StartRefused("PORT_IN_USE", f"The gRPC port {port} on {host or 'all addresses'} is in use.")
