"""The broker of a process: its port, its log and what answers on it."""

from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

from millstream.broker.broker import Broker, BrokerOptions
from millstream.broker.registrar import Registrar, TopicRegistration
from millstream.broker.remoting import broker_handlers
from millstream.broker.remoting.clients import ConsumerRegistry
from millstream.broker.remoting.permissions import BROKER_NEEDS
from millstream.broker.remoting.producers import ProducerRegistry
from millstream.broker.static_topics.peers import Peers
from millstream.client.profiles import credentials_of_environment, tls_of_environment
from millstream.model.message import Address
from millstream.protocol.remoting.administration.registration import BrokerIdentity
from millstream.protocol.remoting.codes import RequestCode
from millstream.protocol.remoting.command import RemotingCommand
from millstream.server.site import Site
from millstream.store.message_store import StoreOptions
from millstream.store.retention import RetentionPolicy
from millstream.transport.gate import RemotingGate
from millstream.transport.remoting_connection import Connection, Handler
from millstream.transport.remoting_server import RemotingServer

__all__ = ["BrokerRole", "BrokerRoleOptions"]

_HOUR_MS = 3_600_000
_CHANGE_TOPICS = (
    RequestCode.UPDATE_AND_CREATE_TOPIC,
    RequestCode.UPDATE_AND_CREATE_TOPIC_LIST,
    RequestCode.DELETE_TOPIC_IN_BROKER,
    RequestCode.UPDATE_AND_CREATE_STATIC_TOPIC,
    RequestCode.PUT_BROKER_PERMISSION,
)
"""Requests that are answered when the nameservers know, so that whoever asked finds the topic."""


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
        self.broker = await self._open_broker(address)
        # Once more, so that it is closed before the broker: what is under way must not meet a closed log.
        self._resources.push_async_callback(self.server.close)
        # After the broker: it has the directory's lock by then.
        site.open_access_control(self._options.directory, self.broker.users)
        self.server.gate = RemotingGate(site.guard, BROKER_NEEDS) if site.guard else None
        self.server.handlers = handlers = broker_handlers(self.broker, site.guard, self.consumers, self.producers)
        self.server.admits = True
        if self._options.nameservers:
            self.registrar = registrar = await self._register(address)
            for code in _CHANGE_TOPICS:
                if code in handlers:
                    handlers[code] = _answer_after_registration(handlers[code], registrar)
        return address

    async def close(self) -> None:
        """Take no more requests, answer what is under way, write what is to be kept."""
        await self._resources.aclose()

    async def _open_broker(self, advertised: Address) -> Broker:
        options = self._options
        retention = RetentionPolicy(keep_ms=options.retention_hours * _HOUR_MS)
        store = StoreOptions(sync_flush=options.sync_flush, retention=retention)
        peers = None
        if options.nameservers:
            peers = Peers(
                options.nameservers,
                credentials=self._site.first_user or credentials_of_environment(),
                tls=tls_of_environment(),
            )
            self._resources.push_async_callback(peers.close)
        broker = Broker(
            options.directory,
            name=options.name,
            cluster=options.cluster,
            options=BrokerOptions(store=store, offer_own_topics=True),
            clock=self._site.clock,
            advertised=advertised,
            peers=peers,
        )
        await broker.start()
        self._resources.push_async_callback(broker.close)
        return broker

    async def _register(self, address: Address) -> Registrar:
        broker, told = self.broker, TopicRegistration(self.broker)
        registrar = Registrar(
            self._options.nameservers,
            BrokerIdentity(broker.cluster, broker.name, f"{address.host}:{address.port}"),
            told.all,
            mappings=broker.topics.mappings,
            credentials=self._site.first_user or credentials_of_environment(),
            tls=tls_of_environment(),
        )
        told.watch(registrar.note_change)
        broker.topics.on_mapping_change.append(lambda name, _: registrar.note_change(name, told.find(name)))
        broker.maintenance.permission.on_change.append(registrar.changed_all)
        await registrar.start()
        # Closed first: clients are to go elsewhere before the port is closed.
        self._resources.push_async_callback(registrar.close)
        return registrar


def _answer_after_registration(handler: Handler, registrar: Registrar) -> Handler:
    """The handler, whose answer waits until the nameservers know what it changed."""

    async def answer(command: RemotingCommand, connection: Connection) -> RemotingCommand | None:
        result = handler(command, connection)
        answered = result if result is None or isinstance(result, RemotingCommand) else await result
        await registrar.await_settled()
        return answered

    return answer
