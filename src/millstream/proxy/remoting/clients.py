"""Remoting clients at this proxy, and the members with which each shares queues.

A push consumer gets its messages by pops, which share them out by message. So each is told that it is alone, pulls all
queues, and none waits for one that is stuck. Groups that keep order lock their queues before they pull; they, and those
that read queues by themselves, pull from the brokers. Brokers are told of these by name, so that they share queues with
members at other proxies and without one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any, Final

from millstream.broker.remoting.clients import ConsumerRegistry
from millstream.broker.remoting.heartbeats import ClientLiveness
from millstream.broker.remoting.producers import ProducerRegistry
from millstream.model.clock import Clock
from millstream.model.errors import ConnectionFailed, NameRefused
from millstream.model.group import is_tool_group
from millstream.protocol.remoting.administration.topic_requests import GroupMembersRequest, UnregisteredClient
from millstream.protocol.remoting.bodies import ConsumerData, encode_body
from millstream.protocol.remoting.codes import ResponseCode
from millstream.protocol.remoting.command import RemotingCommand
from millstream.proxy.processor import Processor
from millstream.proxy.remote.backend import RemoteBackend
from millstream.security.guard import Guard
from millstream.security.signature import ACCESS_KEY
from millstream.transport.remoting_connection import Connection

__all__ = ["MAX_ORDERED_GROUPS", "ProxyClientHandlers"]

_log = logging.getLogger(__name__)

MAX_ORDERED_GROUPS: Final = 10_000
"""Groups that are remembered because they lock queues; the oldest is forgotten until its next lock."""

_PASSIVELY: Final = "CONSUME_PASSIVELY"
_CLUSTERING: Final = "CLUSTERING"


class ProxyClientHandlers:
    """Codes 34, 35, 38, 46 and 203; `producers` asks the questions of code 39."""

    def __init__(self, processor: Processor, backend: RemoteBackend, clock: Clock, guard: Guard | None) -> None:
        self._processor = processor
        self._forwarded = backend.told
        self._ordered: dict[str, None] = {}
        self._client_ids: dict[Connection, str] = {}
        self._connections: dict[str, Connection] = {}
        self._former_readers: dict[Connection, set[str]] = {}
        """Groups that left on connections that are open, and read queues by themselves before."""
        self._works: set[asyncio.Task[None]] = set()
        self.consumers = ConsumerRegistry()
        self.producers = ProducerRegistry(guard)
        self._liveness = ClientLiveness(clock, self.consumers, self.producers)
        self.consumers.on_leave.append(self._note_left)
        self.check = self._liveness.check

    async def heartbeat(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        """Keep what the client says. A group that may not be used is passed over."""
        data, groups = self._liveness.read(command)
        usable = {group for group in groups if await self._prepare(group)}
        for consumer in data.consumer_data_set:
            if consumer.group_name in usable and _shares_by_message(consumer):
                await self._learn_order(consumer.group_name)
        if not connection.is_open:
            return command.response()
        self._former_readers.get(connection, set()).difference_update(groups)
        if self._note_closed not in connection.on_close:
            connection.on_close.append(self._note_closed)
        self._note_client(connection, data.client_id)
        answer = self._liveness.hear(command, data, connection, usable)
        for group in usable:
            await self._tell_members(group, connection)
        return answer

    def _note_client(self, connection: Connection, client_id: str) -> None:
        """A connection is of one client at a time."""
        former = self._client_ids.get(connection)
        if former is not None and former != client_id:
            self._forget_client(connection, former)
        self._client_ids[connection] = client_id
        self._connections[client_id] = connection

    async def unregister(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        call = UnregisteredClient.decode(command.ext)
        client_id, groups = call.client_id, {call.consumer_group, call.producer_group} - {""}
        if call.consumer_group and self.reads_by_offset(call.consumer_group, connection):
            self._former_readers.setdefault(connection, set()).add(call.consumer_group)
        # Begun before the registry's own word, by which the client might live on.
        farewells = [asyncio.ensure_future(self._forwarded.forget(client_id, group, is_gone=True)) for group in groups]
        answer = self._liveness.unregister(command, connection)
        await asyncio.gather(*farewells)
        return answer

    async def consumer_list(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        """With whom a member shares queues: the same at all proxies, as brokers say it."""
        group = GroupMembersRequest.decode(command.ext).group
        return self._liveness.list_answer(command, group, await self.sharing(group, connection))

    async def sharing(self, group: str, connection: Connection) -> list[str]:
        """The members, sorted, among whom those on the connection share queues. Unreachable where no broker answers."""
        own = self._liveness.clients(group)
        if self.is_served_by_pops(group, connection):
            return sorted(self.consumers.on_connection(group, connection))
        return sorted({*own, *(await self._forwarded.members(group)).client_ids})

    def members(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        group = GroupMembersRequest.decode(command.ext).group
        found = self.consumers.connections(group)
        if not found.connection_set:
            return command.response(ResponseCode.CONSUMER_NOT_ONLINE, remark=f"Group {group} has no consumer here.")
        return command.response(body=encode_body(found))

    def client_id(self, connection: Connection) -> str:
        """Who is on the connection, as its last heartbeat said; blank before the first one."""
        return self._client_ids.get(connection, "")

    def connection_of(self, client_id: str) -> Connection | None:
        """Where a client was last heard; None if it is not here."""
        return self._connections.get(client_id)

    async def keeps_order(self, group: str) -> None:
        """A client of the group locks queues: from now on its members know of each other and pull by offset."""
        if group in self._ordered:
            return
        self._note_order(group)
        await self._tell_members(group)
        self.consumers.tell_all(group)

    async def waits_for_replies(self, command: RemotingCommand, connection: Connection, group: str) -> None:
        """The client on the connection asks others, whose replies any broker may get."""
        client_id = self.client_id(connection)
        if client_id:
            origin = command.language, command.version
            await self._forwarded.tell_producer(client_id, group, origin, command.ext.get(ACCESS_KEY, ""))

    def is_served_by_pops(self, group: str, connection: Connection) -> bool:
        """Whether what the connection pulls for the group is shared out by message."""
        own = self.consumers.on_connection(group, connection)
        return bool(own) and group not in self._ordered and all(map(_shares_by_message, own.values()))

    def reads_by_offset(self, group: str, connection: Connection) -> bool:
        """Whether the connection has members of the group that read queues by themselves."""
        return bool(self.consumers.on_connection(group, connection)) and not self.is_served_by_pops(group, connection)

    def commits_by_offset(self, group: str, connection: Connection) -> bool:
        """Whether what the connection commits for the group is where it reads itself.

        A client that leaves commits once more, and RocketMQ's 5.3 sends that from threads of its own: it may come
        behind the word that it leaves.
        """
        return self.reads_by_offset(group, connection) or group in self._former_readers.get(connection, ())

    def producer_groups(self) -> set[str]:
        """The groups of the producers that are here."""
        return {known.group for known in self.producers.all()}

    async def close(self) -> None:
        """Wait for what brokers are being told."""
        if self._works:
            await asyncio.wait(self._works, timeout=1.0)

    def _note_order(self, group: str) -> None:
        if len(self._ordered) >= MAX_ORDERED_GROUPS:
            del self._ordered[next(iter(self._ordered))]
        self._ordered[group] = None

    async def _learn_order(self, group: str) -> None:
        """A proxy that is new to a group may find it at work: what its members pull before they lock again is by
        offset as well."""
        if group in self._ordered or self.consumers.clients(group):
            return
        try:
            if (await self._forwarded.members(group)).is_ordered:
                self._note_order(group)
        except ConnectionFailed as error:
            _log.info("Whether the group %s keeps order is not known: %s", group, error)

    async def _tell_members(self, group: str, only: Connection | None = None) -> None:
        """Tell brokers of the members that read by offset."""
        clients = [
            self._forwarded.tell_consumer(member.client_id, member.data, member.origin)
            for member in self.consumers.list_heard(group)
            if only in (None, member.connection) and not self.is_served_by_pops(group, member.connection)
        ]
        await asyncio.gather(*clients)

    def _note_left(self, group: str, client_id: str, _is_gone: bool) -> None:
        """A client whose connection broke may come again at another proxy, with the locks that it trusts."""
        self._begin(self._forwarded.forget(client_id, group, is_gone=False))

    def _note_closed(self, connection: Connection) -> None:
        self._former_readers.pop(connection, None)
        self._forget_client(connection, self._client_ids.pop(connection, ""))

    def _forget_client(self, connection: Connection, client_id: str) -> None:
        if self._connections.get(client_id) is connection:
            del self._connections[client_id]
            self._begin(self._forwarded.lose(client_id))

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._works.add(task)
        task.add_done_callback(self._works.discard)

    async def _prepare(self, group: str) -> bool:
        if is_tool_group(group):
            return True
        try:
            await self._processor.group(group)
        except NameRefused:
            return False
        return True


def _shares_by_message(data: ConsumerData) -> bool:
    return data.consume_type == _PASSIVELY and (data.message_model or _CLUSTERING) == _CLUSTERING
