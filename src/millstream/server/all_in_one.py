"""All roles in one process: nameserver, broker and proxy ("merged" deployment).

What the nameserver of a process tells of the broker of the same process.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from millstream.broker.broker import Broker
from millstream.broker.data_directory import check_directory, document
from millstream.broker.registrar import REGISTRATION_INTERVAL_S, TopicRegistration
from millstream.cluster.nameserver import BrokerRegistration, RouteRegistry
from millstream.model.clock import Clock, SystemClock
from millstream.model.message import Address
from millstream.model.topic import TopicConfig
from millstream.protocol.remoting.administration.static_topics import mapping_info
from millstream.proxy.grpc.server import GrpcTransportKind
from millstream.proxy.local import LocalBackend
from millstream.security.signature import Credentials
from millstream.security.tls import TlsFiles, TlsMode
from millstream.server.broker_role import BrokerRole, BrokerRoleOptions
from millstream.server.condition import Condition
from millstream.server.nameserver_role import NameserverRole
from millstream.server.protocol_ports import ProtocolPorts, WantedPort
from millstream.server.proxy_role import ProxyRole
from millstream.server.served import Served
from millstream.server.site import Site
from millstream.tiered.places import ObjectPlace

__all__ = ["AllInOne", "AllInOneOptions", "Endpoints", "OwnRegistration"]


class OwnRegistration:
    """Registers from `start` to `close`, at each change and, like other brokers, all again every 30 s.

    No other broker takes the name, and no request changes what is told of its topics.
    """

    def __init__(self, broker: Broker, registry: RouteRegistry) -> None:
        self._broker = broker
        self._registry = registry
        self._address = f"{broker.advertised.host}:{broker.advertised.port}"
        self._registration = TopicRegistration(broker)
        self._beats: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin; the nameserver knows the broker when this returns."""
        self.register()
        self._registration.watch(self._update)
        broker, registry, topics = self._broker, self._registry, self._broker.topics
        topics.on_mapping_change.append(lambda name, mapping: registry.update_mapping(broker.name, name, mapping))
        broker.maintenance.permission.on_change.append(self.register)
        self._beats = asyncio.create_task(self._beat(), name="register-own-broker")

    def register(self) -> None:
        """Tell everything."""
        broker = self._broker
        mappings = {mapping.topic: mapping_info(mapping) for mapping in broker.topics.mappings()}
        registration = BrokerRegistration(
            broker.cluster, broker.name, self._address, tuple(self._registration.all()), mappings=mappings
        )
        self._registry.register(registration, lease_s=math.inf)

    async def close(self) -> None:
        """Register no more."""
        if self._beats is not None:
            self._beats.cancel()
            await asyncio.gather(self._beats, return_exceptions=True)

    def _update(self, name: str, topic: TopicConfig | None) -> None:
        self._registry.update_topic(self._broker.name, name, topic)

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(REGISTRATION_INTERVAL_S)
            self.register()


@dataclass(frozen=True, slots=True)
class AllInOneOptions:
    """Where the roles listen and keep their data; port 0 takes a free one. `sync_flush` is the ack level,
    `retention_hours` how long messages are kept.

    `trace` has the proxy note what becomes of messages in the topic RMQ_SYS_TRACE_TOPIC.
    `metrics_port` is where /metrics, /healthz and /readyz are; None offers none of them.

    `advertised_host` is what clients are told to connect to; by default `host`, or this machine's own name where
    `host` stands for all addresses.

    `secure` turns access control on; a directory without a super user gets `first_user`, or `admin` with a random
    secret. `tls` answers TLS on all ports, with `tls_files` or a certificate of its own. `grpc_transport` is what
    carries gRPC, `protocols` are the ports for further protocols.
    """

    directory: Path
    host: str = "127.0.0.1"
    grpc_port: int = 8081
    remoting_port: int = 10911
    nameserver_port: int = 9876
    metrics_port: int | None = None
    trace: bool = False
    sync_flush: bool = False
    retention_hours: int = 72
    advertised_host: str | None = None
    secure: bool = False
    first_user: Credentials | None = None
    tls: TlsMode | None = None
    tls_files: TlsFiles | None = None
    grpc_transport: GrpcTransportKind = GrpcTransportKind.HTTP2
    protocols: tuple[WantedPort, ...] = ()
    cold: ObjectPlace | None = None
    """Where cold messages lie; None where all stay on the disk."""
    catalog: str = ""
    """Where the Iceberg tables over copies of topics are known; blank where there are files alone."""


@dataclass(frozen=True, slots=True)
class Endpoints:
    """The addresses that clients reach, with the ports that were taken."""

    nameserver: Address
    broker: Address
    grpc: Address
    metrics: Address | None = None
    protocols: Mapping[str, Address] = field(default_factory=dict)
    """Those for further protocols."""
    missing: Mapping[str, str] = field(default_factory=dict)
    """Why others of them were not opened."""


class AllInOne(Served[Endpoints]):
    """Starts and stops all roles in the right order."""

    def __init__(self, options: AllInOneOptions, *, clock: Clock | None = None) -> None:
        self._options = options
        site = Site(
            options.host,
            options.advertised_host,
            options.secure,
            options.first_user,
            options.tls,
            options.tls_files,
            clock or SystemClock(),
        )
        super().__init__(site, Condition())

    async def _open(self) -> Endpoints:
        options = self._options
        check_directory(options.directory)
        metrics = None if options.metrics_port is None else await self._open_pages(options.metrics_port)
        self.site.open_tls(options.directory)
        broker, broker_address = await self._open_broker()
        grpc, ports = await self._open_proxy(broker)
        nameserver = await self._open_nameserver(broker)
        return Endpoints(nameserver, broker_address, grpc, metrics, ports.addresses, ports.missing)

    async def _open_broker(self) -> tuple[Broker, Address]:
        options = self._options
        role = BrokerRole(
            self.site,
            BrokerRoleOptions(
                options.directory,
                options.remoting_port,
                sync_flush=options.sync_flush,
                retention_hours=options.retention_hours,
                cold=options.cold,
                catalog=options.catalog,
            ),
        )
        self._resources.push_async_callback(role.close)
        address = await role.start()
        self._metrics.broker, self._metrics.consumers = role.broker, role.consumers
        self._metrics.producers = role.producers
        self._metrics.remoting["broker"] = role.server
        self._condition.broker = role.broker
        return role.broker, address

    async def _open_proxy(self, broker: Broker) -> tuple[Address, ProtocolPorts]:
        backend = LocalBackend(broker)
        traces = backend if self._options.trace else None
        options = self._options
        role = ProxyRole(
            self.site,
            backend,
            options.grpc_port,
            traces=traces,
            transport=options.grpc_transport,
            protocols=options.protocols,
        )
        broker.groups.member_sources.append(role.processor.clients.members)
        self._resources.push_async_callback(role.close)
        address = await role.start()
        self._metrics.processor, self._metrics.tracer = role.processor, role.tracer
        self._metrics.additions.append(role.protocols.add_metrics)
        return address, role.protocols

    async def _open_nameserver(self, broker: Broker) -> Address:
        keys = document(self._options.directory, "config/nameserver.json")
        role = NameserverRole(self.site, self._options.nameserver_port, keys=keys)
        own = OwnRegistration(broker, role.registry)
        own.start()
        self._resources.push_async_callback(own.close)
        self._resources.push_async_callback(role.close)
        address = await role.start()
        self._metrics.remoting["nameserver"] = role.server
        return address
