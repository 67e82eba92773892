"""All roles in one process: nameserver, broker and proxy ("merged" deployment)."""

from __future__ import annotations

import logging
import math
import socket
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

from millstream.broker.broker import Broker, BrokerOptions
from millstream.broker.remoting import broker_handlers
from millstream.broker.remoting.clients import ConsumerRegistry
from millstream.broker.remoting.permissions import BROKER_NEEDS
from millstream.cluster.nameserver import BrokerRegistration, RouteRegistry
from millstream.cluster.permissions import NAMESERVER_NEEDS
from millstream.cluster.remoting import nameserver_handlers
from millstream.model.clock import Clock, SystemClock
from millstream.model.errors import StartRefused
from millstream.model.message import Address
from millstream.proxy.grpc.server import GrpcServer
from millstream.proxy.local import LocalBackend
from millstream.proxy.processor import Processor
from millstream.proxy.tracer import Tracer
from millstream.security.guard import Guard
from millstream.security.signature import Credentials
from millstream.security.tls import ServerIdentity, TlsFiles, TlsMode
from millstream.server.access import has_users, open_guard
from millstream.server.certificate import own_certificate
from millstream.server.condition import Condition
from millstream.server.metrics.page import ServerMetrics
from millstream.store.message_store import StoreOptions
from millstream.store.retention import RetentionPolicy
from millstream.transport.gate import RemotingGate
from millstream.transport.http_pages import HttpPages
from millstream.transport.remoting_server import RemotingServer

__all__ = ["AllInOne", "AllInOneOptions", "Endpoints"]

_log = logging.getLogger(__name__)

_WILDCARDS = ("", "0.0.0.0", "::")
_METRICS_PORT_REMEDY = "Choose another --metrics-port: 0 takes a free one, off offers no metrics."


@dataclass(frozen=True, slots=True)
class AllInOneOptions:
    """Where the roles listen and keep their data; port 0 takes a free one. `sync_flush` is the ack level,
    `retention_hours` how long messages are kept.

    `trace` has the proxy note what becomes of messages in the topic RMQ_SYS_TRACE_TOPIC.
    `metrics_port` is where /metrics, /healthz and /readyz are; None offers none of them.

    `advertised_host` is what clients are told to connect to; by default `host`, or this machine's own name where
    `host` stands for all addresses.

    `secure` turns access control on; a directory without a super user gets `first_user`, or `admin` with a random
    secret. `tls` answers TLS on all ports, with `tls_files` or a certificate of its own.
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


@dataclass(frozen=True, slots=True)
class Endpoints:
    """The addresses that clients reach, with the ports that were taken."""

    nameserver: Address
    broker: Address
    grpc: Address
    metrics: Address | None = None


class AllInOne:
    """Starts and stops all roles in the right order; all calls from one event loop."""

    def __init__(self, options: AllInOneOptions, *, clock: Clock | None = None) -> None:
        self._options = options
        self._clock = clock or SystemClock()
        self._resources = AsyncExitStack()
        self._guard: Guard | None = None
        self._tls: tuple[ServerIdentity, TlsMode] | None = None
        self.made_user: Credentials | None = None
        """The super user that this start had to make."""
        self._metrics = ServerMetrics(self._clock)
        self._condition = Condition()

    async def start(self) -> Endpoints:
        """Listen and recover the log; raises StartRefused or StoreError and leaves nothing open then."""
        try:
            return await self._start()
        except BaseException:
            await self.close()
            raise

    def reload_certificate(self) -> None:
        """Read the certificate again, for new connections; where that fails the log says so and the old one holds."""
        if self._tls is None:
            return
        try:
            self._tls[0].reload()
        except StartRefused as error:
            _log.error("%s", error)

    async def close(self) -> None:
        """Take no more requests, answer what is under way, write what is to be kept."""
        self._condition.state = "stopping"
        await self._resources.aclose()

    async def _start(self) -> Endpoints:
        options = self._options
        host = options.advertised_host or _reachable_host(options.host)
        # First, so that one can ask why the server is not ready while its log is recovered.
        metrics = await self._open_pages(host)
        # The broker's port is taken before its log is opened: the records carry the port, and a port in use is
        # found before any file is touched. Nobody finds the broker until the nameserver listens, which comes last.
        self._open_tls(host)
        broker_server = RemotingServer({}, options.host, options.remoting_port, clock=self._clock)
        broker_server.tls = self._tls
        broker_address = Address(host, await broker_server.start())
        self._resources.push_async_callback(broker_server.close)
        broker = await self._open_broker(broker_address)
        # Once more, so that it is closed before the broker: what is under way must not meet a closed log.
        self._resources.push_async_callback(broker_server.close)
        self._open_access_control()
        guard = self._guard
        broker_server.gate = RemotingGate(guard, BROKER_NEEDS) if guard else None
        consumers = ConsumerRegistry()
        broker_server.handlers = broker_handlers(broker, guard, consumers)
        self._metrics.broker, self._metrics.consumers = broker, consumers
        self._metrics.remoting["broker"] = broker_server
        self._condition.broker = broker
        grpc_port = await self._open_proxy(broker, host)
        nameserver_port = await self._open_nameserver(broker)
        self._condition.state = "serving"
        return Endpoints(Address(host, nameserver_port), broker_address, Address(host, grpc_port), metrics)

    async def _open_pages(self, host: str) -> Address | None:
        if self._options.metrics_port is None:
            return None
        makers = {
            "/metrics": self._metrics.page,
            "/healthz": self._condition.health,
            "/readyz": self._condition.readiness,
        }
        pages = HttpPages(makers, self._options.host, self._options.metrics_port)
        try:
            port = await pages.start()
        except StartRefused as error:
            if error.name != "PORT_IN_USE":
                raise
            raise StartRefused(error.name, error.message, remedy=_METRICS_PORT_REMEDY) from None
        self._resources.push_async_callback(pages.close)
        return Address(host, port)

    def _open_tls(self, host: str) -> None:
        options = self._options
        if options.tls is not None:
            files = options.tls_files or own_certificate(options.directory, [host])
            self._tls = ServerIdentity(files), options.tls

    def _open_access_control(self) -> None:
        """After the broker: it has the directory's lock by then."""
        options = self._options
        if options.secure:
            self._guard, self.made_user = open_guard(options.directory, self._clock, options.first_user)
        elif has_users(options.directory):
            _log.warning("%s has users, but access control is off: everybody may do everything.", options.directory)

    async def _open_broker(self, advertised: Address) -> Broker:
        retention = RetentionPolicy(keep_ms=self._options.retention_hours * 3_600_000)
        store = StoreOptions(sync_flush=self._options.sync_flush, retention=retention)
        broker = Broker(
            self._options.directory, options=BrokerOptions(store=store), clock=self._clock, advertised=advertised
        )
        await broker.start()
        self._resources.push_async_callback(broker.close)
        return broker

    async def _open_proxy(self, broker: Broker, host: str) -> int:
        backend = LocalBackend(broker)
        tracer = Tracer(backend, self._clock) if self._options.trace else None
        if tracer is not None:
            await tracer.start()
            self._resources.push_async_callback(tracer.close)
            self._metrics.tracer = tracer
        processor = Processor(backend, clock=self._clock, tracer=tracer)
        broker.member_sources.append(processor.clients.members)
        await processor.start()
        self._metrics.processor = processor
        self._resources.push_async_callback(processor.close)
        told = self._options.advertised_host
        advertised = None if told is None else Address(told, 0)
        server = GrpcServer(
            processor,
            self._options.host,
            self._options.grpc_port,
            advertised=advertised,
            guard=self._guard,
            tls=self._tls,
        )
        port = await server.start()
        self._resources.push_async_callback(server.close)
        self._resources.push_async_callback(processor.reconnect_all)
        return port

    async def _open_nameserver(self, broker: Broker) -> int:
        registry = RouteRegistry()
        address = f"{broker.advertised.host}:{broker.advertised.port}"
        topics = tuple(broker.topics.all())
        registration = BrokerRegistration(broker.cluster, broker.name, address, topics)
        registry.register(registration, lease_s=math.inf)
        broker.topics.on_change.append(lambda name, topic: registry.update_topic(broker.name, name, topic))
        server = RemotingServer(
            nameserver_handlers(registry, clock=self._clock),
            self._options.host,
            self._options.nameserver_port,
            clock=self._clock,
        )
        server.tls = self._tls
        server.gate = RemotingGate(self._guard, NAMESERVER_NEEDS) if self._guard else None
        port = await server.start()
        self._resources.push_async_callback(server.close)
        self._metrics.remoting["nameserver"] = server
        return port


def _reachable_host(host: str) -> str:
    """What clients can connect to when the server listens on `host`."""
    if host not in _WILDCARDS:
        return host
    try:
        return socket.gethostbyname(socket.gethostname())
    except OSError:
        return "127.0.0.1"
