"""The remoting ports of a proxy: its own, and one per additional network."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from millstream.broker.remoting.permissions import BROKER_NEEDS
from millstream.cluster.permissions import NAMESERVER_NEEDS
from millstream.model.errors import StartRefused
from millstream.model.message import Address
from millstream.proxy.processor import Processor
from millstream.proxy.remote.backend import RemoteBackend
from millstream.proxy.remoting import RemotingFront
from millstream.server.site import Site
from millstream.transport.gate import RemotingGate
from millstream.transport.remoting_server import RemotingServer
from millstream.transport.tls_sniffer import Enter

__all__ = ["AccessNetwork", "ProxyPorts", "parse_access_network"]


@dataclass(frozen=True, slots=True)
class AccessNetwork:
    """Where to listen, and what clients that come there are told to connect to; None: where the port is reached."""

    host: str
    port: int
    announced: Address | None = None


def parse_access_network(text: str) -> AccessNetwork:
    """Of `HOST:PORT=ANNOUNCED_HOST:PORT`. Raises ILLEGAL_SETTING."""
    try:
        listening, announced = (_address(part) for part in text.split("="))
    except ValueError:
        words = f"access_networks: {text[:200]!r} is not of the form host:port=announced_host:port."
        raise StartRefused("ILLEGAL_SETTING", words) from None
    return AccessNetwork(listening.host, listening.port, announced)


def _address(text: str) -> Address:
    host, mark, port = text.strip().rpartition(":")
    if not mark or not host or not port.isascii() or not port.isdecimal() or int(port) > 65_535:
        raise ValueError(text)
    return Address(host.strip("[]"), int(port))


class ProxyPorts:
    """Opened once, for a processor that was started."""

    def __init__(
        self, site: Site, processor: Processor, backend: RemoteBackend, networks: Sequence[AccessNetwork]
    ) -> None:
        self._site = site
        self._networks = networks
        self._front = RemotingFront(processor, backend, site.clock, site.guard)
        self.carry: Enter | None = None
        """Takes connections of gRPC clients; set before `start`."""
        self.servers: list[RemotingServer] = []

    async def start(self) -> list[Address]:
        """Listen; what clients are told at each port. Raises StartRefused; `close` ends what was opened before."""
        site, found = self._site, []
        for network in self._networks:
            server = RemotingServer({}, network.host, network.port, clock=site.clock, memory=site.memory)
            server.tls = site.identity
            server.carry = self.carry
            server.descriptors, server.strangers = site.descriptors, site.strangers
            server.gate = RemotingGate(site.guard, {**BROKER_NEEDS, **NAMESERVER_NEEDS}) if site.guard else None
            port = await server.start()
            self.servers.append(server)
            announced = network.announced or Address(site.reachable_host, port)
            server.handlers = self._front.handlers(announced)
            found.append(announced)
        return found

    async def close(self) -> None:
        """Take no more requests, and let what clients held go back to the brokers."""
        for server in self.servers:
            await server.close()
        await self._front.close()
