"""The gRPC port of a proxy."""

from __future__ import annotations

import socket
from enum import Enum
from typing import TYPE_CHECKING, Final

from millstream.broker.delivery_service import DeliveryService
from millstream.model.clock import SystemClock
from millstream.model.message import Address
from millstream.proxy.grpc.adapter import MessagingAdapter
from millstream.proxy.grpc.calls import MessagingCalls, PlainCalls, offered_methods
from millstream.proxy.grpc.plain_acks import PlainAcks
from millstream.proxy.grpc.plain_receives import PlainReceives
from millstream.proxy.grpc.plain_sends import PlainSends
from millstream.proxy.grpc.route import Advertised
from millstream.proxy.processor import Processor
from millstream.security.guard import Guard
from millstream.security.tls import ServerIdentity, TlsMode
from millstream.telemetry.processes import descriptor_limit
from millstream.transport.connection_memory import ConnectionMemory
from millstream.transport.descriptor_budget import DescriptorBudget
from millstream.transport.grpc.server import GrpcPort
from millstream.transport.listening import listen_refused
from millstream.transport.strangers import StrangerLog

if TYPE_CHECKING:
    from millstream.proxy.grpc.grpcio.listener import AioListener

__all__ = ["GrpcServer", "GrpcTransportKind"]

_WILDCARDS: Final = ("", "0.0.0.0", "::")


class GrpcTransportKind(Enum):
    """What carries gRPC: our own HTTP/2, or grpc.aio, which stays for one release to compare with."""

    HTTP2 = "http2"
    GRPCIO = "grpcio"


class GrpcServer:
    """Serves clients on `host`:`port` (0 takes a free port). The processor is started and closed by its owner.

    Routes tell clients to dial `advertised` (its port 0 means the bound one). Without it that is the host itself, or,
    where it stands for all addresses of the machine, the address by which each client came.

    `guard` is the access control, `tls` what is shown to TLS clients and whether others are let in.
    `memory`, `descriptors` and `strangers` are for servers that share them with others of the process.
    `delivery` is that of a broker in the same process: ordinary sends that arrive together are stored together there.
    `keeps_deadlines` is for a processor that waits for other processes. With `carries` other ports may hand over
    connections of gRPC clients by `carry`. With `shares_port` other processes may listen on the port as well; grpc.aio
    cannot do that.
    """

    def __init__(
        self,
        processor: Processor,
        host: str,
        port: int,
        *,
        advertised: Address | None = None,
        guard: Guard | None = None,
        tls: tuple[ServerIdentity, TlsMode] | None = None,
        keeps_deadlines: bool = False,
        carries: bool = False,
        memory: ConnectionMemory | None = None,
        descriptors: DescriptorBudget | None = None,
        strangers: StrangerLog | None = None,
        transport: GrpcTransportKind = GrpcTransportKind.HTTP2,
        delivery: DeliveryService | None = None,
        shares_port: bool = False,
    ) -> None:
        self._processor = processor
        self._host = host
        self._port = port
        self._advertised = advertised
        self._guard = guard
        self._tls = tls
        self._keeps_deadlines = keeps_deadlines
        self._carries = carries
        self._memory = memory
        self._descriptors = descriptors or DescriptorBudget.of_limit(descriptor_limit())
        self._strangers = strangers or StrangerLog(SystemClock())
        self._kind = transport
        self._delivery = delivery
        self._shares_port = shares_port
        self._listener: _Http2Listener | AioListener | None = None

    async def start(self) -> int:
        """Listen; the bound port. StartRefused with PORT_IN_USE or ADDRESS_NOT_LOCAL where that fails."""
        listener = self._http2() if self._kind is GrpcTransportKind.HTTP2 else self._grpcio()
        port = await listener.bind()
        adapter = MessagingAdapter(
            self._processor, self._reachable(port), guard=self._guard, keeps_deadlines=self._keeps_deadlines
        )
        await listener.serve(adapter)
        self._listener = listener
        return port

    async def carry(self, connection: socket.socket, is_tls: bool) -> None:
        """Take a connection that came to another port. OSError where it cannot be taken."""
        if self._listener is None:
            raise ConnectionAbortedError("the gRPC port is not open")
        await self._listener.carry(connection, is_tls)

    async def close(self, grace_s: float = 1.0) -> None:
        """Take no more calls and answer those under way for up to `grace_s`; long polls end at once."""
        listener, self._listener = self._listener, None
        if listener is not None:
            await listener.close(grace_s)

    def _http2(self) -> _Http2Listener:
        return _Http2Listener(
            self._host,
            self._port,
            self._tls,
            self._memory or ConnectionMemory(),
            self._descriptors,
            self._strangers,
            self._processor,
            self._delivery,
            shares_port=self._shares_port,
        )

    def _grpcio(self) -> AioListener:
        # Only here: grpcio takes memory and time to load.
        from millstream.proxy.grpc.grpcio.listener import AioListener

        return AioListener(self._host, self._port, self._tls, self._descriptors, self._strangers, carries=self._carries)

    def _reachable(self, port: int) -> Advertised:
        if self._advertised is not None:
            return Advertised(Address(self._advertised.host, self._advertised.port or port))
        if self._host in _WILDCARDS:
            return Advertised(Address("127.0.0.1", port), as_reached=True)
        return Advertised(Address(self._host, port))


class _Http2Listener:
    """Our own transport."""

    def __init__(
        self,
        host: str,
        port: int,
        tls: tuple[ServerIdentity, TlsMode] | None,
        memory: ConnectionMemory,
        descriptors: DescriptorBudget,
        strangers: StrangerLog,
        processor: Processor,
        delivery: DeliveryService | None,
        *,
        shares_port: bool,
    ) -> None:
        self._processor = processor
        self._delivery = delivery
        self._host, self._wanted_port = host, port
        self._port = GrpcPort(
            offered_methods(),
            host,
            port,
            memory=memory,
            tls=tls,
            descriptors=descriptors,
            strangers=strangers,
            shares_port=shares_port,
        )
        self._adapter: MessagingAdapter | None = None
        self._calls: MessagingCalls | None = None

    async def bind(self) -> int:
        """Listen; calls are taken with `serve`, in the same turn."""
        try:
            return await self._port.start()
        except OSError as error:
            raise listen_refused(self._host, self._wanted_port, error) from None

    async def serve(self, adapter: MessagingAdapter) -> None:
        """Answer calls from now on."""
        self._adapter = adapter
        delivery = self._delivery
        clock = self._port.clock
        plain = None
        if delivery is not None:
            plain = PlainCalls(
                PlainSends(adapter, delivery, clock),
                PlainReceives(adapter, self._processor, delivery, clock),
                PlainAcks(adapter, self._processor, delivery, clock),
            )
        self._calls = self._port.handler = MessagingCalls(adapter, clock, lambda: self._port.calls, plain)

    async def carry(self, connection: socket.socket, is_tls: bool) -> None:
        """Take a connection."""
        await self._port.enter(connection, is_tls)

    async def close(self, grace_s: float) -> None:
        """End in good order."""
        if self._adapter is not None and self._calls is not None:
            self._adapter.end_waits()
            self._calls.end_streams()
        await self._port.close(grace_s)
