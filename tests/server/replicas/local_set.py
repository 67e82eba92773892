"""A nameserver with a controller and the replicas of one broker, in this process and on real sockets."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from millstream.client.blocking import BlockingClient
from millstream.client.profiles import credentials_of_environment
from millstream.model.message import Address, Message
from millstream.model.topic import TopicConfig
from millstream.protocol.remoting.command import RemotingCommand
from millstream.server.configuration.roles import (
    AccessControl,
    BrokerConfiguration,
    NameserverConfiguration,
    NameserverController,
    Replicas,
    Tls,
)
from millstream.server.replicas.replicated_broker import ReplicatedBroker
from millstream.server.separate import SeparateRole
from millstream.transport.remoting_client import RemotingConnection
from patience import eventually

__all__ = ["NAME", "LocalSet"]

NAME = "broker-a"
_OFF = Tls("off")
T = TypeVar("T")


class LocalSet:
    """Replicas are known by the names of their directories; all calls come from one event loop."""

    def __init__(self, directory: Path, *, lease_ms: int = 3000, is_secure: bool = False, **replicas: Any) -> None:
        self._access = AccessControl(is_secure)
        self.directory = directory
        self._lease_ms = lease_ms
        self._settings = Replicas(**replicas)
        self._roles: dict[str, SeparateRole] = {}
        self._ports: dict[str, int] = {}
        self.nameserver: SeparateRole
        self.addresses: dict[str, str] = {}

    async def start(self, *names: str) -> None:
        """Start the nameserver and these replicas, the first one as the master, and wait until all are in the set."""
        controller = NameserverController(enabled=True, port=0, lease_ms=self._lease_ms)
        told = NameserverConfiguration(
            port=0, directory=str(self.directory / "nameserver"), controller=controller, tls=_OFF, access=self._access
        )
        self.nameserver = SeparateRole(told)
        found = await self.nameserver.start()
        self.addresses = {name: f"{place.host}:{place.port}" for name, place in found.items()}
        for name in names:
            await self.add(name)
        await self.settle(len(names))

    async def add(self, directory: str, /, **changes: Any) -> ReplicatedBroker:
        """Start one replica, at its former port where it had one."""
        settings: dict[str, Any] = {
            "name": NAME,
            "port": self._ports.get(directory, 0),
            "directory": str(self.directory / directory),
            "nameservers": (self.addresses["nameserver"],),
            "controllers": (self.addresses["controller"],),
            "replicas": self._settings,
            "tls": _OFF,
            "access": self._access,
            **changes,
        }
        role = SeparateRole(BrokerConfiguration(**settings))
        found = await role.start()
        self._roles[directory] = role
        self._ports[directory] = found["broker"].port
        return self[directory]

    async def stop(self, name: str) -> None:
        """Stop one replica cleanly."""
        await self._roles.pop(name).close()

    async def close(self) -> None:
        """Stop all."""
        for name in list(self._roles):
            await self.stop(name)
        await self.nameserver.close()

    def __getitem__(self, name: str) -> ReplicatedBroker:
        role = self._roles[name].broker_role
        assert role is not None
        assert role.replicated is not None
        return role.replicated

    def address(self, name: str) -> str:
        """Where that replica listens."""
        return f"127.0.0.1:{self._ports[name]}"

    async def ask(self, address: str, code: int, body: bytes = b"", **ext: object) -> RemotingCommand:
        """One request on a connection of its own."""
        host, _, port = address.rpartition(":")
        signing = credentials_of_environment() if self._access.enabled else None
        connection = await RemotingConnection.open(Address(host, int(port)), credentials=signing)
        try:
            fields = {name: str(value) for name, value in ext.items()}
            return await connection.request(RemotingCommand(code, fields, body), 5)
        finally:
            await connection.close()

    async def info(self) -> dict[str, Any]:
        """What the controller says about the set."""
        answer = await self.ask(self.addresses["controller"], 1006, json.dumps([NAME]).encode())
        found: dict[str, Any] = json.loads(answer.body)["replicasInfoTable"].get(NAME, {})
        return found

    def route_of(self, topic: str) -> str | None:
        """The address of the topic's master by the nameserver's routes."""
        assert self.nameserver.nameserver_role is not None
        route = self.nameserver.nameserver_role.registry.route(topic)
        return route.broker_datas[0].broker_addrs.get(0) if route is not None else None

    async def settle(self, members: int) -> None:
        """Wait until the set has so many members, its master knows it, and the nameserver knows the master."""
        assert self.nameserver.nameserver_role is not None
        registry = self.nameserver.nameserver_role.registry

        def is_settled() -> bool:
            masters = [name for name in self._roles if self[name].port.source is not None]
            if len(masters) != 1 or registry.master_address(NAME) != self.address(masters[0]):
                return False
            source = self[masters[0]].port.source
            return source is not None and len(source.sync_set.members) == members and source.sync_set.pending is None

        if members:
            await eventually(is_settled)

    async def run(self, act: Callable[[BlockingClient], T]) -> T:
        """Have a client of the nameserver do something, beside this event loop."""

        def do() -> T:
            with BlockingClient(self.addresses["nameserver"]) as client:
                return act(client)

        return await asyncio.to_thread(do)

    async def make_topic(self, name: str = "orders") -> None:
        """A topic with one queue."""
        await self.run(lambda client: client.create_topic(TopicConfig(name, read_queues=1, write_queues=1)))

    async def send(self, *bodies: bytes, topic: str = "orders") -> None:
        """Send messages one by one, each of them acknowledged."""
        await self.run(lambda client: [client.send(Message(topic, body)) for body in bodies])

    async def bodies(self, topic: str = "orders") -> list[bytes]:
        """What a client reads of the topic."""
        return await self.run(lambda client: _bodies(client, topic))


def _bodies(client: BlockingClient, topic: str) -> list[bytes]:
    found: list[bytes] = []
    for queue in client.queues(topic):
        offset = -1
        batch = client.pull(queue, 0)
        while batch.next_offset > offset and (batch.messages() or batch.next_offset < batch.max_offset):
            found += [message.body for message in batch.messages()]
            offset = batch.next_offset
            batch = client.pull(queue, offset)
    return found
