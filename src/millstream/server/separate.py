"""One role in its own process ("separated" deployment)."""

from __future__ import annotations

import socket
from functools import partial
from pathlib import Path
from typing import Final

from millstream.broker.broker import Broker
from millstream.broker.cold_tier import TieredOptions
from millstream.broker.data_directory import check_directory, document, note_directory
from millstream.broker.remoting.access import access_handlers
from millstream.client.operations import parse_addresses
from millstream.client.profiles import credentials_of_environment, tls_of_environment
from millstream.model.clock import Clock, SystemClock
from millstream.model.errors import ExtraMissing, StartRefused
from millstream.model.message import Address
from millstream.proxy.grpc.server import GrpcTransportKind
from millstream.proxy.remote.backend import RemoteBackend
from millstream.proxy.remote.routes import parse_cluster_rule
from millstream.proxy.throttle import Throttle, parse_throttle_rule
from millstream.replication.sync_set import AckPolicy, ReplicaAck
from millstream.security.tls import TlsFiles, TlsMode
from millstream.server.broker_role import BrokerRole, BrokerRoleOptions
from millstream.server.condition import Condition
from millstream.server.configuration.roles import (
    BrokerConfiguration,
    ControllerConfiguration,
    ControllerSettings,
    NameserverConfiguration,
    ProxyConfiguration,
    SqlGatewayConfiguration,
)
from millstream.server.controller_role import ControllerRole
from millstream.server.nameserver_role import NameserverRole
from millstream.server.protocol_ports import WantedPort, amqp_port, http_port, mqtt_port
from millstream.server.proxy_ports import AccessNetwork, parse_access_network
from millstream.server.proxy_role import ProxyRole
from millstream.server.served import Served
from millstream.server.site import Site
from millstream.server.tiered_settings import catalog_of, place_of
from millstream.store.directory_lock import DirectoryLock
from millstream.store.files import FileLayer

__all__ = ["SeparateRole"]

RoleConfiguration = (
    NameserverConfiguration
    | ControllerConfiguration
    | BrokerConfiguration
    | ProxyConfiguration
    | SqlGatewayConfiguration
)


_MB: Final = 1_000_000


class SeparateRole(Served[dict[str, Address]]):
    """Its start gives where the role's ports are reached, by their name; `configuration` decides which role it is."""

    def __init__(self, configuration: RoleConfiguration, *, clock: Clock | None = None) -> None:
        self._configuration = configuration
        self.directory = Path(configuration.directory)
        super().__init__(_site(configuration, clock or SystemClock()), Condition(holds_log=self.holds_messages))
        self.broker_role: BrokerRole | None = None
        self.controller_role: ControllerRole | None = None
        self.nameserver_role: NameserverRole | None = None

    @property
    def holds_messages(self) -> bool:
        """Whether its directory holds messages."""
        return isinstance(self._configuration, BrokerConfiguration)

    async def _open(self) -> dict[str, Address]:
        found: dict[str, Address] = {}
        check_directory(self.directory)
        if self._configuration.metrics_port >= 0:
            found["metrics"] = await self._open_pages(self._configuration.metrics_port)
        self.site.open_tls(self.directory)
        match self._configuration:
            case BrokerConfiguration() as broker:
                found["broker"] = await self._open_broker(broker)
            case NameserverConfiguration() as nameserver:
                found |= await self._open_nameserver(nameserver)
            case ControllerConfiguration() as controller:
                self._lock_directory()
                self.site.open_access_control(self.directory)
                found["controller"] = await self._open_controller(controller.port, controller.controller)
            case ProxyConfiguration() as proxy:
                found |= await self._open_proxy(proxy)
            case SqlGatewayConfiguration() as gateway:
                found["sql-gateway"] = await self._open_sql_gateway(gateway)
        return found

    async def _open_broker(self, told: BrokerConfiguration) -> Address:
        options = BrokerRoleOptions(
            self.directory,
            told.port,
            told.name,
            told.cluster,
            told.store.sync_flush,
            told.store.retention_hours,
            _addresses(told.nameservers),
            _addresses(told.controllers),
            AckPolicy(
                told.replicas.all_in_set,
                told.replicas.in_sync_replicas,
                told.replicas.min_in_sync,
                ReplicaAck(told.replicas.ack),
            ),
            told.replicas.priority,
            told.replicas.serve_reads,
            told.replicas.old_percent,
            told.replicas.scrub_bytes_per_s,
            place_of(told),
            TieredOptions(
                told.tiered.topics,
                told.tiered.keep_hours,
                told.tiered.roll_minutes * 60.0,
                drops_unuploaded=told.tiered.when_behind == "drop_unuploaded",
                cached_bytes=told.tiered.cache_mb * _MB,
            ),
            catalog_of(told),
        )
        self.broker_role = role = BrokerRole(self.site, options)
        role.on_broker = self._note_broker
        self._resources.push_async_callback(role.close)
        metrics = self._metrics
        metrics.cluster, metrics.node_id = told.cluster, told.name
        metrics.remoting["broker"] = role.server
        address = await role.start()
        self._condition.replicated = metrics.replicated = role.replicated
        return address

    def _note_broker(self, broker: Broker | None) -> None:
        """Tell of the broker that takes requests now, or of none."""
        role = self.broker_role
        assert role is not None
        self._condition.broker = self._metrics.broker = broker
        self._metrics.consumers, self._metrics.producers = role.consumers, role.producers

    async def _open_nameserver(self, told: NameserverConfiguration) -> dict[str, Address]:
        self._lock_directory()
        self.site.open_access_control(self.directory)
        self.nameserver_role = role = NameserverRole(
            self.site, told.port, keys=document(self.directory, "nameserver.json")
        )
        if self.site.guard is not None:
            # Its users are its own: whoever administers access tells every nameserver as well as every broker.
            role.server.handlers = {**role.server.handlers, **access_handlers(self.site.guard)}
        self._resources.push_async_callback(role.close)
        address = await role.start()
        found = {"nameserver": address}
        if told.controller.enabled:
            found["controller"] = await self._open_controller(told.controller.port, told.controller)
        self._metrics.node_id = f"{address.host}:{address.port}"
        self._metrics.remoting["nameserver"] = role.server
        return found

    async def _open_controller(self, port: int, told: ControllerSettings) -> Address:
        self.controller_role = role = ControllerRole(self.site, self.directory, port, told)
        self._resources.push_async_callback(role.close)
        address = await role.start()
        self._metrics.node_id = f"{address.host}:{address.port}"
        self._metrics.controller, self._metrics.remoting["controller"] = role.handlers, role.server
        return address

    async def _open_proxy(self, told: ProxyConfiguration) -> dict[str, Address]:
        _check_shared_port(told)
        networks = [parse_access_network(text) for text in told.access_networks]
        if told.remoting_port >= 0:
            networks.insert(0, AccessNetwork(told.host, told.remoting_port))
        self._lock_directory()
        self.site.open_access_control(self.directory)
        backend = RemoteBackend(
            ";".join(_addresses(told.nameservers)),
            credentials=credentials_of_environment(),
            tls=tls_of_environment(),
            clock=self.site.clock,
            clusters=[parse_cluster_rule(text) for text in told.clusters],
        )
        rules = [parse_throttle_rule(text) for text in told.throttle]
        await backend.start()
        self._resources.push_async_callback(backend.close)
        if self.site.guard is not None:
            follower = backend.follow_access(self.site.guard.book)
            self._resources.push_async_callback(follower.close)
            await follower.start()
        traces = backend if told.trace else None
        role = ProxyRole(
            self.site,
            backend,
            told.grpc_port,
            traces=traces,
            networks=networks,
            transport=GrpcTransportKind(told.grpc_transport),
            shares_port=told.share_port,
            protocols=_protocols(told),
        )
        role.processor.throttle = Throttle(rules)
        self._resources.push_async_callback(role.close)
        address = await role.start()
        # Those that share a port have different directories.
        sharer = f" {self.directory.name}" if told.share_port else ""
        self._metrics.node_id = f"{address.host}:{address.port}{sharer}"
        self._metrics.processor, self._metrics.tracer = role.processor, role.tracer
        self._metrics.additions.append(role.protocols.add_metrics)
        found = {"grpc": address}
        if role.told:
            assert role.remoting is not None
            self._metrics.remoting["proxy"] = role.remoting.servers[0]
            found["remoting"] = role.told[0]
        return found | role.protocols.addresses

    async def _open_sql_gateway(self, told: SqlGatewayConfiguration) -> Address:
        try:
            # The stream engine is an extra.
            from millstream.server.sql_gateway_role import SqlGatewayRole
        except ModuleNotFoundError as error:
            raise ExtraMissing("The SQL gateway", error.name, extra="streams") from None
        self._lock_directory()
        self.site.open_access_control(self.directory)
        nameserver = ";".join(_addresses(told.nameservers))
        role = SqlGatewayRole(self.site, self.directory, told.port, nameserver, warm=told.warm)
        self._resources.push_async_callback(role.close)
        address = await role.start()
        self._metrics.node_id = f"{address.host}:{address.port}"
        return address

    def _lock_directory(self) -> None:
        """Take the directory, and what is there for what must be there, where no broker does it."""
        lock = DirectoryLock(self.directory, FileLayer())
        self._resources.callback(lock.release)
        note_directory(self.directory)


def _site(configuration: RoleConfiguration, clock: Clock) -> Site:
    tls, is_secure = configuration.tls, configuration.access.enabled
    if bool(tls.certificate) != bool(tls.key):
        raise StartRefused("ILLEGAL_SETTING", "tls.certificate and tls.key belong together; one of them is empty.")
    return Site(
        configuration.host,
        configuration.advertised_host or None,
        is_secure,
        credentials_of_environment() if is_secure else None,
        None if tls.mode == "off" else TlsMode(tls.mode),
        TlsFiles(Path(tls.certificate), Path(tls.key)) if tls.certificate else None,
        clock,
    )


def _protocols(told: ProxyConfiguration) -> list[WantedPort]:
    wanted = [
        WantedPort("mqtt", told.mqtt_port, partial(mqtt_port, rules=told.mqtt_topics, http_origins=told.http_origins)),
        WantedPort("amqp", told.amqp_port, partial(amqp_port, virtual_hosts=told.amqp_virtual_hosts)),
        WantedPort(
            "http",
            told.http_port,
            partial(http_port, webhook_networks=told.webhook_networks, http_origins=told.http_origins),
        ),
    ]
    return [one for one in wanted if one.port >= 0]


def _check_shared_port(told: ProxyConfiguration) -> None:
    if told.share_port and told.grpc_transport != GrpcTransportKind.HTTP2.value:
        raise StartRefused("ILLEGAL_SETTING", "share_port needs grpc_transport = http2.")
    if told.share_port and not hasattr(socket, "SO_REUSEPORT"):
        raise StartRefused("ILLEGAL_SETTING", "share_port: processes cannot share a port on this system.")


def _addresses(nameservers: tuple[str, ...]) -> tuple[str, ...]:
    try:
        return parse_addresses(";".join(nameservers)) if nameservers else ()
    except ValueError as error:
        raise StartRefused("ILLEGAL_SETTING", f"nameservers: {error}.") from None
