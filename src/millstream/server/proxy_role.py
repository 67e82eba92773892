"""The proxy role: its gRPC port over a backend, its remoting ports, and those of further protocols."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AsyncExitStack

from millstream.model.message import Address
from millstream.proxy.backend import BrokerBackend
from millstream.proxy.grpc.server import GrpcServer, GrpcTransportKind
from millstream.proxy.local import LocalBackend
from millstream.proxy.processor import Processor
from millstream.proxy.remote.backend import RemoteBackend
from millstream.proxy.tracer import Tracer, TraceSink
from millstream.server.protocol_ports import ProtocolPorts, WantedPort
from millstream.server.proxy_ports import AccessNetwork, ProxyPorts
from millstream.server.site import Site

__all__ = ["ProxyRole"]


class ProxyRole:
    """Started once; `backend` is opened and closed by its owner. Port 0 takes a free one.

    `traces` takes what became of messages, for the topic RMQ_SYS_TRACE_TOPIC; None notes nothing. `networks` are the
    ports for remoting clients, which need brokers in other processes; `told` is what their clients are told there.
    With `shares_port` other processes may listen on the gRPC port as well. `protocols` are
    those for further protocols.
    """

    def __init__(
        self,
        site: Site,
        backend: BrokerBackend,
        port: int = 8081,
        *,
        traces: TraceSink | None = None,
        networks: Sequence[AccessNetwork] = (),
        transport: GrpcTransportKind = GrpcTransportKind.HTTP2,
        shares_port: bool = False,
        protocols: Sequence[WantedPort] = (),
    ) -> None:
        self._site = site
        self._port = port
        self._transport = transport
        self._shares_port = shares_port
        self._resources = AsyncExitStack()
        self.tracer = None if traces is None else Tracer(traces, site.clock)
        self.processor = Processor(backend, clock=site.clock, tracer=self.tracer)
        self.remoting: ProxyPorts | None = None
        self.protocols = ProtocolPorts(site, self.processor, protocols)
        """The ports for further protocols."""
        self.told: list[Address] = []
        self._delivery = backend.delivery if isinstance(backend, LocalBackend) else None
        if isinstance(backend, RemoteBackend):
            backend.announce(self.processor.clients.published_topics)
            self.remoting = ProxyPorts(site, self.processor, backend, networks)

    async def start(self) -> Address:
        """Listen and answer; where clients reach it. Raises StartRefused; `close` ends what was opened before."""
        site = self._site
        if self.tracer is not None:
            await self.tracer.start()
            self._resources.push_async_callback(self.tracer.close)
        await self.processor.start()
        self._resources.push_async_callback(self.processor.close)
        announced_host = site.announced_host
        server = GrpcServer(
            self.processor,
            site.host,
            self._port,
            advertised=None if announced_host is None else Address(announced_host, 0),
            guard=site.guard,
            tls=site.identity,
            keeps_deadlines=self.remoting is not None,
            carries=self.remoting is not None,
            memory=site.memory,
            descriptors=site.descriptors,
            strangers=site.strangers,
            transport=self._transport,
            delivery=self._delivery,
            shares_port=self._shares_port,
        )
        if self.remoting is not None:
            self._resources.push_async_callback(self.remoting.close)
            self.remoting.carry = server.carry
            self.told = await self.remoting.start()
        port = await server.start()
        self._resources.push_async_callback(server.close)
        self._resources.push_async_callback(self.processor.reconnect_all)
        self._resources.push_async_callback(self.protocols.close)
        await self.protocols.start()
        return Address(site.reachable_host, port)

    async def close(self) -> None:
        """Tell the clients to go elsewhere, answer what is under way, end."""
        await self._resources.aclose()
