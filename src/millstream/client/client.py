"""The asyncio client: routes, queues, pulls and admin calls over pooled connections."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from functools import partial
from types import TracebackType
from typing import Self, TypeVar

from millstream.client import requests
from millstream.client.group_operations import GroupOperations
from millstream.client.operations import ClientOperation, ClientOperations, RequestStep, parse_addresses
from millstream.client.profiles import credentials_of_environment, tls_of_environment
from millstream.client.topic_operations import TopicOperations
from millstream.client.values import BrokerQueueRange, QueueAddress
from millstream.model.errors import MillstreamError
from millstream.model.group import GroupConfig
from millstream.model.message import Address
from millstream.model.topic import Permission, TopicConfig
from millstream.protocol.remoting.bodies import TopicRouteData
from millstream.protocol.remoting.command import RemotingCommand
from millstream.security.signature import Credentials
from millstream.transport.remoting_client import Listener, RemotingConnection

__all__ = ["DEFAULT_NAMESERVER", "Client"]

DEFAULT_NAMESERVER = "127.0.0.1:9876"

_T = TypeVar("_T")


class Client:
    """One application's access to a cluster, for the event loop in which it is used; an async context manager.

    `nameserver` is `host:port`, several separated by `;`. Every call raises Unreachable or TimedOut (after
    `timeout_s`), or the server's refusal. To connect may take `connect_timeout_s`, by default as long. `group` names
    the application where a request must name one. `credentials` sign the requests; by default those of
    MILLSTREAM_ACCESS_KEY and MILLSTREAM_SECRET_KEY, if they are set. `tls` is what servers are verified with; by
    default the certificates of MILLSTREAM_TLS_CA; without either, plaintext is used. `listener` is asked for what
    servers ask on their own. `on_lost` is called with the address of each connection that has ended.
    """

    def __init__(
        self,
        nameserver: str = DEFAULT_NAMESERVER,
        *,
        timeout_s: float = 3.0,
        connect_timeout_s: float | None = None,
        group: str = requests.DEFAULT_GROUP,
        credentials: Credentials | None = None,
        tls: ssl.SSLContext | None = None,
        listener: Listener | None = None,
        on_lost: Callable[[str], None] | None = None,
    ) -> None:
        self.timeout_s = timeout_s
        self._connect_timeout_s = connect_timeout_s or timeout_s
        self._listener = listener
        self._on_lost = on_lost
        self._credentials = credentials or credentials_of_environment()
        self._tls = tls or tls_of_environment()
        self.group = group
        self.conversations = ClientOperations(parse_addresses(nameserver), group=group, failover_s=timeout_s)
        self._topic_conversations = TopicOperations(self.conversations)
        self._group_conversations = GroupOperations(self.conversations)
        self._connections: dict[str, asyncio.Task[RemotingConnection]] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        openings, self._connections = self._connections, {}
        for opening in openings.values():
            if opening.done() and not opening.cancelled() and opening.exception() is None:
                await opening.result().close()
            opening.cancel()

    async def route(self, topic: str) -> TopicRouteData:
        """Where the topic lies; TOPIC_NOT_FOUND."""
        return await self.run(self.conversations.route(topic))

    async def queues(self, topic: str, permission: Permission = Permission.READ) -> list[QueueAddress]:
        """The topic's queues with that permission, sorted."""
        return await self.run(self.conversations.queues(topic, permission))

    async def queue_ranges(self, topic: str) -> list[BrokerQueueRange]:
        """What can be read of each queue; one atomic look per broker."""
        return await self.run(self.conversations.queue_ranges(topic))

    async def offset_by_time(self, queue: QueueAddress, timestamp_ms: int, *, upper: bool = False) -> int:
        """The first offset stored at `timestamp_ms` or later; `upper`: the last one stored then or earlier."""
        return await self.run(self.conversations.offset_by_time(queue, timestamp_ms, upper=upper))

    async def query_offset(self, group: str, queue: QueueAddress) -> int | None:
        """The group's committed offset, or None."""
        return await self.run(self.conversations.query_offset(group, queue))

    async def commit_offset(self, group: str, queue: QueueAddress, offset: int) -> None:
        """Keep the group's offset in the broker."""
        await self.run(self.conversations.commit_offset(group, queue, offset))

    async def create_topic(self, config: TopicConfig) -> None:
        """Create a topic; nothing happens if it is there with the same settings, else TOPIC_EXISTS."""
        await self.run(self._topic_conversations.create(config))

    async def delete_topic(self, name: str) -> None:
        """Delete a topic and its messages; TOPIC_NOT_FOUND."""
        await self.run(self._topic_conversations.delete(name))

    async def topics(self) -> list[TopicConfig]:
        """All topics, by name."""
        return await self.run(self._topic_conversations.all())

    async def describe_topic(self, name: str) -> TopicConfig:
        """One topic's settings; TOPIC_NOT_FOUND."""
        return await self.run(self._topic_conversations.describe(name))

    async def create_group(self, config: GroupConfig) -> None:
        """Create a consumer group; nothing happens if it is there with the same settings, else GROUP_EXISTS."""
        await self.run(self._group_conversations.create(config))

    async def update_group(self, config: GroupConfig) -> None:
        """Give a consumer group other settings; it is created if it is missing."""
        await self.run(self._group_conversations.update(config))

    async def delete_group(self, name: str) -> None:
        """Delete a consumer group and its offsets; GROUP_NOT_FOUND."""
        await self.run(self._group_conversations.delete(name))

    async def groups(self) -> list[GroupConfig]:
        """All consumer groups, by name."""
        return await self.run(self._group_conversations.all())

    async def run(self, conversation: ClientOperation[_T]) -> _T:
        """Carry out a conversation; its result."""
        try:
            ask = next(conversation)
            while True:
                try:
                    answer = await self.ask(ask)
                except MillstreamError as error:
                    ask = conversation.throw(error)
                else:
                    ask = conversation.send(answer)
        except StopIteration as end:
            result: _T = end.value
            return result

    async def ask(self, ask: RequestStep) -> RemotingCommand:
        """The answer to one request, whatever its code."""
        if ask.delay_s:
            await asyncio.sleep(ask.delay_s)
        connection = await self.connection(ask.address)
        return await connection.request(ask.command, self.timeout_s + ask.extra_wait_s)

    def open_connections(self) -> dict[str, RemotingConnection]:
        """The connections that are open now, by address."""
        return {address: opening.result() for address, opening in self._connections.items() if _is_open(opening)}

    async def connection(self, address: str) -> RemotingConnection:
        """The open connection to `address`; callers that come while it is being opened share the attempt."""
        opening = self._connections.get(address)
        if opening is None or (opening.done() and not _is_open(opening)):
            opening = asyncio.ensure_future(self._open(address))
            self._connections[address] = opening
        return await asyncio.shield(opening)

    async def disconnect(self, address: str) -> None:
        """Close the connection to `address`, if one is open; requests under way there fail as Unreachable."""
        connection = self.open_connections().get(address)
        if connection is not None:
            await connection.close()

    async def _open(self, address: str) -> RemotingConnection:
        host, _, port = address.rpartition(":")
        connection = await RemotingConnection.open(
            Address(host.strip("[]"), int(port)),
            timeout_s=self._connect_timeout_s,
            credentials=self._credentials,
            tls=self._tls,
            listener=self._listener,
        )
        if self._on_lost is not None:
            connection.on_close.append(partial(self._on_lost, address))
        return connection


def _is_open(opening: asyncio.Task[RemotingConnection]) -> bool:
    is_made = opening.done() and not opening.cancelled() and opening.exception() is None
    return is_made and opening.result().is_open
