"""The broker of a process: its port, its log and what answers on it."""

from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

from millstream.broker.broker import Broker, BrokerOptions
from millstream.broker.remoting import broker_handlers
from millstream.broker.remoting.clients import ConsumerRegistry
from millstream.broker.remoting.permissions import BROKER_NEEDS
from millstream.model.message import Address
from millstream.server.site import Site
from millstream.store.message_store import StoreOptions
from millstream.store.retention import RetentionPolicy
from millstream.transport.gate import RemotingGate
from millstream.transport.remoting_server import RemotingServer

__all__ = ["BrokerRole", "BrokerRoleOptions"]

_HOUR_MS = 3_600_000


@dataclass(frozen=True, slots=True)
class BrokerRoleOptions:
    """Where the broker keeps its data and what it is called; port 0 takes a free one. `sync_flush` is the ack level,
    `retention_hours` how long messages are kept."""

    directory: Path
    port: int = 10911
    name: str = "broker-a"
    cluster: str = "DefaultCluster"
    sync_flush: bool = False
    retention_hours: int = 72


class BrokerRole:
    """Started once; `broker` and `consumers` are there after `start`."""

    def __init__(self, site: Site, options: BrokerRoleOptions) -> None:
        self._site = site
        self._options = options
        self._resources = AsyncExitStack()
        self.consumers = ConsumerRegistry()
        self.server = RemotingServer({}, site.host, options.port, clock=site.clock)
        self.broker: Broker

    async def start(self) -> Address:
        """Take the port, recover the log and answer; where clients reach it. Raises StartRefused, StoreError.

        What was opened before a failure is for `close`.
        """
        # The port is taken before the log is opened: the records carry the port, and a port in use is found before
        # any file is touched. Nobody finds the broker until a nameserver tells of it, which comes last.
        site = self._site
        self.server.tls = site.identity
        address = Address(site.reachable_host, await self.server.start())
        self._resources.push_async_callback(self.server.close)
        self.broker = await self._open_broker(address)
        # Once more, so that it is closed before the broker: what is under way must not meet a closed log.
        self._resources.push_async_callback(self.server.close)
        # After the broker: it has the directory's lock by then.
        site.open_access_control(self._options.directory)
        self.server.gate = RemotingGate(site.guard, BROKER_NEEDS) if site.guard else None
        self.server.handlers = broker_handlers(self.broker, site.guard, self.consumers)
        return address

    async def close(self) -> None:
        """Take no more requests, answer what is under way, write what is to be kept."""
        await self._resources.aclose()

    async def _open_broker(self, advertised: Address) -> Broker:
        options = self._options
        retention = RetentionPolicy(keep_ms=options.retention_hours * _HOUR_MS)
        store = StoreOptions(sync_flush=options.sync_flush, retention=retention)
        broker = Broker(
            options.directory,
            name=options.name,
            cluster=options.cluster,
            options=BrokerOptions(store=store, offer_own_topics=True),
            clock=self._site.clock,
            advertised=advertised,
        )
        await broker.start()
        self._resources.push_async_callback(broker.close)
        return broker
