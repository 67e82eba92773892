"""A broker whose master changes: one name at a real nameserver, under one address after the other."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from contract_ground import STORE

from millstream.broker.broker import Broker, BrokerOptions
from millstream.broker.remoting import broker_handlers
from millstream.cluster.nameserver import BrokerRegistration, RouteRegistry
from millstream.cluster.remoting import nameserver_handlers
from millstream.model.clock import ManualClock
from millstream.model.topic import TopicConfig
from millstream.protocol.remoting.bodies import DataVersion
from millstream.protocol.remoting.command import RemotingCommand
from millstream.transport.remoting_connection import Connection, Handler
from millstream.transport.remoting_server import RemotingServer

__all__ = ["NAME", "BrokerSet", "Member", "running_set"]

NAME = "broker-a"
TOPICS = (TopicConfig("orders", read_queues=1, write_queues=1),)


@dataclass(slots=True)
class Member:
    """One replica of the set: a port, and the broker that answers there while it is the master."""

    broker: Broker
    server: RemotingServer
    address: str

    def serve(self) -> None:
        """Answer as a master does."""
        self.server.handlers = broker_handlers(self.broker)

    def demote(self) -> None:
        """Answer everything as a replica does; what waits is answered so as well when its connection is left."""
        self.server.handlers = dict.fromkeys(self.server.handlers, _refuse)

    def hang(self) -> None:
        """Answer nothing any more, as over a cut line."""
        self.server.handlers = dict.fromkeys(self.server.handlers, _be_silent)

    def lose_answers(self, code: int) -> None:
        """Do what a request of the code asks, and close its connection instead of answering."""
        self.server.handlers = {**self.server.handlers, code: _without_answer(self.server.handlers[code])}


def _refuse(command: RemotingCommand, connection: Connection) -> RemotingCommand:
    return command.response(14, remark="This broker is a replica.")


def _be_silent(command: RemotingCommand, connection: Connection) -> None:
    return None


def _without_answer(handler: Handler) -> Handler:
    def act(command: RemotingCommand, connection: Connection) -> None:
        handler(command, connection)
        connection.abort()

    return act


@dataclass(slots=True)
class BrokerSet:
    """Members by the order in which they were added; the nameserver knows the one that was elected last."""

    clock: ManualClock
    directory: Path
    stack: AsyncExitStack
    routes: RouteRegistry
    nameserver: str
    members: list[Member]
    asked: list[int]
    """Codes of all requests to the nameserver."""
    epoch: int = 0

    async def add(self, broker: Broker | None = None) -> Member:
        """A member that has the log and the ledgers of another one's `broker`, or none."""
        if broker is None:
            broker = Broker(
                self.directory / str(len(self.members)), name=NAME, options=BrokerOptions(store=STORE), clock=self.clock
            )
            await broker.start()
            self.stack.push_async_callback(broker.close)
            for topic in TOPICS:
                broker.topics.create(topic)
        server = RemotingServer({}, clock=self.clock)
        address = f"127.0.0.1:{await server.start()}"
        self.stack.push_async_callback(server.close)
        member = Member(broker, server, address)
        member.serve()
        self.members.append(member)
        return member

    def elect(self, member: Member) -> None:
        """The member is the master, of the next epoch."""
        self.epoch += 1
        version = DataVersion(state_version=self.epoch)
        topics = tuple(member.broker.topics.all())
        self.routes.register(
            BrokerRegistration("c", NAME, member.address, topics, data_version=version), lease_s=math.inf
        )

    async def fail_over(self) -> Member:
        """A new master with all that the present one has."""
        member = await self.add(self.members[-1].broker)
        self.elect(member)
        return member

    def stored(self, member: int = 0, topic: str = "orders") -> int:
        """Messages of the topic at that member's broker."""
        return self.members[member].broker.maintenance.store.max_offset(topic, 0)


@asynccontextmanager
async def running_set(directory: Path, clock: ManualClock) -> AsyncIterator[BrokerSet]:
    """A set with a first master."""
    async with AsyncExitStack() as stack:
        routes = RouteRegistry()
        asked: list[int] = []
        handlers = nameserver_handlers(routes, clock=clock)
        nameserver = RemotingServer({code: _counted(asked, handler) for code, handler in handlers.items()}, clock=clock)
        address = f"127.0.0.1:{await nameserver.start()}"
        stack.push_async_callback(nameserver.close)
        made = BrokerSet(clock, directory, stack, routes, address, [], asked)
        made.elect(await made.add())
        yield made


def _counted(asked: list[int], handler: Handler) -> Handler:
    def answer(command: RemotingCommand, connection: Connection) -> object:
        asked.append(command.code)
        return handler(command, connection)

    return answer  # type: ignore[return-value]
