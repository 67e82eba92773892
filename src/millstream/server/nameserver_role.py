"""The nameserver role: its port and its route registry."""

from __future__ import annotations

from millstream.cluster.key_values import KeyValues
from millstream.cluster.nameserver import RouteRegistry
from millstream.cluster.permissions import NAMESERVER_NEEDS
from millstream.cluster.remoting import nameserver_handlers
from millstream.model.message import Address
from millstream.server.site import Site
from millstream.store.snapshot import Snapshot
from millstream.transport.gate import RemotingGate
from millstream.transport.remoting_server import RemotingServer

__all__ = ["NameserverRole"]


class NameserverRole:
    """Started once; `registry` may be filled before. Port 0 takes a free one.

    `keys` is where the keys are saved that tools keep here; None keeps them in memory. Raises STORE_FORMAT.
    """

    def __init__(self, site: Site, port: int = 9876, *, keys: Snapshot | None = None) -> None:
        self._site = site
        self.registry = RouteRegistry()
        key_values = KeyValues(keys)
        handlers = nameserver_handlers(self.registry, clock=site.clock, key_values=key_values)
        self.server = RemotingServer(handlers, site.host, port, clock=site.clock, memory=site.memory)

    async def start(self) -> Address:
        """Listen and answer; where clients reach it. Raises StartRefused."""
        self.server.tls = self._site.identity
        self.server.descriptors, self.server.strangers = self._site.descriptors, self._site.strangers
        self.server.gate = RemotingGate(self._site.guard, NAMESERVER_NEEDS) if self._site.guard else None
        return Address(self._site.reachable_host, await self.server.start())

    async def close(self) -> None:
        """Stop answering."""
        await self.server.close()
