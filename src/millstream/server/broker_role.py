"""The broker of a process: its port, its log and what answers on it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

from millstream.broker.broker import Broker, BrokerOptions
from millstream.broker.cold_tier import TieredOptions
from millstream.broker.data_directory import document
from millstream.broker.registrar import Registrar, TopicRegistration
from millstream.broker.remoting import broker_handlers
from millstream.broker.remoting.clients import ConsumerRegistry
from millstream.broker.remoting.permissions import BROKER_NEEDS
from millstream.broker.remoting.producers import ProducerRegistry
from millstream.broker.remoting.replica import replica_client_handlers, replica_read_handlers, replica_tool_handlers
from millstream.broker.static_topics.peers import Peers
from millstream.broker.static_topics.queue_router import MEMORY_BYTES
from millstream.client.profiles import credentials_of_environment, tls_of_environment
from millstream.model.message import Address
from millstream.protocol.remoting.administration.broker_report import SetReport
from millstream.protocol.remoting.administration.controller_requests import DEFAULT_PRIORITY
from millstream.protocol.remoting.administration.registration import BrokerIdentity
from millstream.protocol.remoting.codes import RequestCode
from millstream.protocol.remoting.command import RemotingCommand
from millstream.replication.sync_set import AckPolicy
from millstream.server.columns.column_process import ColumnProcess
from millstream.server.columns.orders import WorkerOptions
from millstream.server.replicas.controller_lines import ControllerLines
from millstream.server.replicas.membership import IDENTITY, MasterView, Membership
from millstream.server.replicas.permissions import REPLICA_NEEDS
from millstream.server.replicas.read_advice import ReadAdvice
from millstream.server.replicas.replica_handlers import ReplicaHandlers
from millstream.server.replicas.replica_registration import ReplicaRegistration
from millstream.server.replicas.replicated_broker import ReplicaOptions, ReplicatedBroker
from millstream.server.replicas.set_report import set_report
from millstream.server.site import Site
from millstream.store.message_store import StoreOptions
from millstream.store.retention import RetentionPolicy
from millstream.tiered.places import ObjectPlace
from millstream.transport.gate import RemotingGate
from millstream.transport.remoting_connection import Connection, Handler
from millstream.transport.remoting_server import RemotingServer

__all__ = ["BrokerRole", "BrokerRoleOptions"]

_log = logging.getLogger(__name__)

ROLE_S = 10.0
"""Seconds at most that the start of a broker of a set waits for its role."""

_HOUR_MS = 3_600_000
_CHANGE_TOPICS = (
    RequestCode.UPDATE_AND_CREATE_TOPIC,
    RequestCode.UPDATE_AND_CREATE_TOPIC_LIST,
    RequestCode.DELETE_TOPIC_IN_BROKER,
    RequestCode.UPDATE_AND_CREATE_STATIC_TOPIC,
    RequestCode.PUT_BROKER_PERMISSION,
)
"""Requests that are answered when the nameservers know, so that the caller finds the topic."""


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
    nameservers: tuple[str, ...] = ()
    """`host:port` of those that are told of the broker."""
    controllers: tuple[str, ...] = ()
    """`host:port` of those that say which replica is the master; none where the broker has no replicas."""
    policy: AckPolicy = field(default_factory=AckPolicy)
    """When a message counts as stored, where there are replicas."""
    priority: int = DEFAULT_PRIORITY
    """The lower one is elected where two replicas are equally good."""
    serves_reads: bool = True
    """Whether clients may read from it as a replica."""
    old_percent: int = 40
    """Of the machine's memory: readers that are farther behind are sent to replicas."""
    scrub_bytes_per_s: int = 4 * 1024 * 1024
    """How fast a replica looks through its log for damage; 0 not at all."""
    cold: ObjectPlace | None = None
    """Where cold messages lie; None where all stay on the disk."""
    tiered: TieredOptions = field(default_factory=TieredOptions)
    """Which messages go there, and for how long."""
    catalog: str = ""
    """Where the Iceberg tables over copies of topics are known; blank where there are files alone."""


class BrokerRole:
    """Started once; `broker` is there after `start`; `consumers` and `producers` are those of its port."""

    def __init__(self, site: Site, options: BrokerRoleOptions) -> None:
        self._site = site
        self._options = options
        self._resources = AsyncExitStack()
        self.consumers = ConsumerRegistry()
        self.producers = ProducerRegistry()
        self.server = RemotingServer({}, site.host, options.port, clock=site.clock, memory=site.memory)
        self.broker: Broker
        self.registrar: Registrar | None = None
        self._replica_registration: ReplicaRegistration | None = None
        self.replicated: ReplicatedBroker | None = None
        """Where the broker is one of a set; `broker` is another one then after each change of its role."""
        self.on_broker: Callable[[Broker | None], None] = lambda _broker: None
        """Called with a broker that takes requests from now on, and with None when it does no more."""

    async def start(self) -> Address:
        """Take the port, recover the log and answer; where clients reach it. Raises StartRefused, StoreError.

        What was opened before a failure is for `close`.
        """
        # The port is taken before the log is opened: the records carry the port, and a port in use is found before
        # any file is touched. Nobody finds the broker until a nameserver tells of it, which comes last.
        site = self._site
        self.server.tls = site.identity
        self.server.descriptors, self.server.strangers = site.descriptors, site.strangers
        # Those who know the port from an earlier run are to try another broker until this one can answer.
        self.server.admits = False
        address = Address(site.reachable_host, await self.server.start())
        self._resources.push_async_callback(self.server.close)
        if self._options.controllers:
            await self._join_set(address)
            return address
        self.broker = await self._open_broker(address)
        # Once more, so that it is closed before the broker: what is under way must not meet a closed log.
        self._resources.push_async_callback(self.server.close)
        # After the broker: it has the directory's lock by then.
        self._open_access(self.broker)
        self.server.handlers = handlers = broker_handlers(self.broker, site.guard, self.consumers, self.producers)
        self.server.admits = True
        self.on_broker(self.broker)
        if self._options.nameservers:
            self.registrar = registrar = await self._register(address, handlers)
            # Closed first: clients are to go elsewhere before the port is closed.
            self._resources.push_async_callback(registrar.close)
        return address

    async def close(self) -> None:
        """Take no more requests, answer what is under way, write what is to be kept."""
        await self._resources.aclose()

    async def _join_set(self, address: Address) -> None:
        """Begin as a replica; whether it becomes the master is up to the controllers."""
        site, options = self._site, self._options
        credentials, tls = site.first_user or credentials_of_environment(), tls_of_environment()
        lines = ControllerLines(options.controllers, credentials, tls)
        where = f"{address.host}:{address.port}"
        noted = document(options.directory, IDENTITY)
        membership = Membership(lines, options.cluster, options.name, where, options.policy, noted)
        broker_options = replace(self._broker_options(), store=replace(self._store_options(), store_host=address))
        peers = self._open_peers()
        replicated = ReplicatedBroker(
            options.directory,
            membership,
            ReplicaOptions(options.policy, broker_options.store, options.priority, options.scrub_bytes_per_s),
            lambda: self._make_broker(address, broker_options, peers),
            site.clock,
            credentials=credentials,
            tls=tls,
            on_open=self._open_replica,
            on_lead=self._lead,
            on_yield=self._yield,
            on_follow=self._follow,
        )
        self._tables = ReplicaHandlers(replicated, options.name)
        self.replicated = replicated
        if options.nameservers:
            self._replica_registration = ReplicaRegistration(options.nameservers, credentials, tls)
        await replicated.start()
        self._resources.push_async_callback(replicated.close)
        # Once more, as where there is no set: what is under way must not meet a closed log.
        self._resources.push_async_callback(self.server.close)
        self._resources.push_async_callback(replicated.leave)
        if self._replica_registration is not None:
            # Closed first: readers are to go elsewhere before the port is closed.
            self._resources.push_async_callback(self._replica_registration.end, says_farewell=True)
        self.server.admits = True
        if not await replicated.await_role(ROLE_S):
            _log.warning("No controller has named a master within %g s; the broker goes on asking.", ROLE_S)

    def report_set(self) -> SetReport | None:
        """The set of which this broker is the master; None where it is none."""
        return None if self.replicated is None else set_report(self.replicated, self._options.controllers)

    async def _lead(self, broker: Broker, view: MasterView) -> None:
        """Answer everything from now on, as the master of an epoch."""
        if self._replica_registration is not None:
            await self._replica_registration.end()
        self.broker = broker
        broker.report_set = self.report_set
        self._open_access(broker)
        self.consumers, self.producers = ConsumerRegistry(), ProducerRegistry()
        guard = self._site.guard
        handlers = self._tables.of_master(broker_handlers(broker, guard, self.consumers, self.producers))
        self.server.handlers = handlers
        self.on_broker(broker)
        if self._options.nameservers:
            address = broker.advertised
            self.registrar = await self._register(address, handlers, view.epoch)

    async def _yield(self, is_last: bool) -> None:
        """Answer as a replica from now on; the broker stops and no other replica is in its set where it `is_last`."""
        self.server.handlers = self._tables.of_replica({}, {})
        self.on_broker(None)
        registrar, self.registrar = self.registrar, None
        if registrar is not None:
            # Another replica takes the route over, unless there is none.
            await registrar.close(says_farewell=is_last)

    def _open_replica(self, broker: Broker) -> None:
        """Answer readers as a replica from now on, as far as the broker follows a master."""
        self._open_access(broker, is_master=False)
        broker.suggest_reader = self._suggest_reader
        consumers = ConsumerRegistry()
        reads = replica_read_handlers(broker, consumers) if self._options.serves_reads else {}
        clients = replica_client_handlers(broker, consumers) | replica_tool_handlers(broker)
        self.server.handlers = self._tables.of_replica(reads, clients)

    def _suggest_reader(self, queue_id: int, backlog_bytes: int) -> int:
        assert self.replicated is not None
        options = self._options
        replicas = self.replicated.readable_replicas if options.serves_reads else ()
        return ReadAdvice(MEMORY_BYTES, options.old_percent).choose(replicas, queue_id, backlog_bytes)

    def _follow(self, view: MasterView) -> None:
        """Tell the nameservers that this is a replica of the master of an epoch."""
        assert self.replicated is not None
        if self._replica_registration is not None:
            who, address = self.replicated.identity, self.replicated.address
            self._replica_registration.begin(BrokerIdentity(who.cluster, who.name, address, who.broker_id, view.epoch))

    def _open_access(self, broker: Broker, *, is_master: bool = True) -> None:
        site = self._site
        site.open_access_control(self._options.directory, broker.users, makes_user=is_master)
        needs = REPLICA_NEEDS if self._options.controllers else BROKER_NEEDS
        self.server.gate = RemotingGate(site.guard, needs) if site.guard else None

    def _store_options(self) -> StoreOptions:
        options = self._options
        retention = RetentionPolicy(keep_ms=options.retention_hours * _HOUR_MS)
        return StoreOptions(sync_flush=options.sync_flush, replicated=bool(options.controllers), retention=retention)

    def _broker_options(self) -> BrokerOptions:
        options = self._options
        tiered = replace(options.tiered, place=options.cold, own_process=options.cold is not None)
        return BrokerOptions(store=self._store_options(), offer_own_topics=True, tiered=tiered)

    def _make_broker(self, advertised: Address, broker_options: BrokerOptions, peers: Peers | None) -> Broker:
        options = self._options
        return Broker(
            options.directory,
            name=options.name,
            cluster=options.cluster,
            options=broker_options,
            clock=self._site.clock,
            advertised=advertised,
            peers=peers,
            open_objects=None if options.cold is None else options.cold.open,
            make_column_work=self._make_column_work if options.cold is not None else None,
            check_columns=_check_columns if options.cold is not None else None,
        )

    def _make_column_work(self) -> ColumnProcess:
        place = self._options.cold
        assert place is not None
        return ColumnProcess(WorkerOptions(place.url, place.endpoint, place.region, self._options.catalog))

    def _open_peers(self) -> Peers | None:
        if not self._options.nameservers:
            return None
        peers = Peers(
            self._options.nameservers,
            credentials=self._site.first_user or credentials_of_environment(),
            tls=tls_of_environment(),
        )
        self._resources.push_async_callback(peers.close)
        return peers

    async def _open_broker(self, advertised: Address) -> Broker:
        broker = self._make_broker(advertised, self._broker_options(), self._open_peers())
        await broker.start()
        self._resources.push_async_callback(broker.close)
        return broker

    async def _register(self, address: Address, handlers: dict[int, Handler], epoch: int = 0) -> Registrar:
        """Tell the nameservers; answers to changes of topics wait from now on until they know."""
        broker, told = self.broker, TopicRegistration(self.broker)
        registrar = Registrar(
            self._options.nameservers,
            BrokerIdentity(broker.cluster, broker.name, f"{address.host}:{address.port}", epoch=epoch),
            told.all,
            mappings=broker.topics.mappings,
            credentials=self._site.first_user or credentials_of_environment(),
            tls=tls_of_environment(),
        )
        told.watch(registrar.note_change)
        broker.topics.on_mapping_change.append(lambda name, _: registrar.note_change(name, told.find(name)))
        broker.maintenance.permission.on_change.append(registrar.changed_all)
        await registrar.start()
        for code in _CHANGE_TOPICS:
            if code in handlers:
                handlers[code] = _answer_after_registration(handlers[code], registrar)
        return registrar


def _check_columns(columns: str, accepted: str) -> None:
    # Not above: it has the parser of SQL, for which no start should wait.
    from millstream.server.columns.column_changes import check_declared

    check_declared(columns, accepted)


def _answer_after_registration(handler: Handler, registrar: Registrar) -> Handler:
    """The handler, whose answer waits until the nameservers know what it changed."""

    async def answer(command: RemotingCommand, connection: Connection) -> RemotingCommand | None:
        result = handler(command, connection)
        answered = result if result is None or isinstance(result, RemotingCommand) else await result
        await registrar.await_settled()
        return answered

    return answer
