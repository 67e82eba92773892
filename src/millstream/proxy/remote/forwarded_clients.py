"""Clients of this proxy of which brokers know by name, as if they were connected there: those that share queues with
members at other proxies, and those that wait for replies.

Every master is told, at once and then by heartbeats, so that all proxies hear the same of a group from any of them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from millstream.model.clock import Clock
from millstream.model.errors import MillstreamError, Unreachable
from millstream.protocol.remoting.bodies import (
    ConsumerData,
    ConsumerList,
    HeartbeatData,
    ProducerData,
    decode_body,
    encode_body,
)
from millstream.protocol.remoting.codes import RequestCode, ResponseCode
from millstream.protocol.remoting.command import RemotingCommand
from millstream.protocol.remoting.messages.sends import CLIENT_USER, LOST, PROXIED, is_ordered
from millstream.proxy.remote.connection_pool import BrokerConnectionPool, gather_until_deadline
from millstream.proxy.remote.routes import RouteCache
from millstream.proxy.remote.transactions import HEARTBEAT_INTERVAL_S
from millstream.transport.remoting_client import RemotingConnection

__all__ = ["ANSWER_TIMEOUT_S", "MAX_TOLD_CLIENTS", "ForwardedClients", "GroupMembers"]

_log = logging.getLogger(__name__)

MAX_TOLD_CLIENTS: Final = 20_000
"""Clients of one proxy of which brokers are told by name; the next one shares no queues with members elsewhere."""

ANSWER_TIMEOUT_S: Final = 1.0
"""Seconds in which masters are heard; RocketMQ's clients wait three for what depends on it."""

_AT_ONCE: Final = 64


@dataclass(frozen=True, slots=True)
class GroupMembers:
    """The members of a group at all brokers, sorted, and whether one of them keeps order."""

    client_ids: list[str]
    is_ordered: bool


@dataclass(slots=True)
class _Client:
    origin: tuple[str, int]
    user: str = ""
    consumers: dict[str, ConsumerData] = field(default_factory=dict)
    producers: dict[str, None] = field(default_factory=dict)


@dataclass(slots=True)
class _SentHeartbeat:
    connection: RemotingConnection
    at_s: float


class ForwardedClients:
    """`beat` is called every few seconds."""

    def __init__(self, lanes: BrokerConnectionPool, routes: RouteCache, clock: Clock) -> None:
        self._lanes = lanes
        self._routes = routes
        self._clock = clock
        self._clients: dict[str, _Client] = {}
        self._sent_heartbeats: dict[str, _SentHeartbeat] = {}
        self._known_masters: list[str] = []

    async def tell_consumer(self, client_id: str, data: ConsumerData, origin: tuple[str, int]) -> None:
        """A member of a group is here; known to all masters that answer when this returns."""
        client = self._client(client_id, origin)
        if client is not None and client.consumers.get(data.group_name) != data:
            client.consumers[data.group_name] = data
            await self._everywhere(lambda: _heartbeat(client_id, client, consumers=[data]))

    async def tell_producer(self, client_id: str, group: str, origin: tuple[str, int], user: str = "") -> None:
        """The same of a producer that waits for replies, which is of the `user`."""
        client = self._client(client_id, origin)
        if client is not None and group not in client.producers:
            client.producers[group] = None
            client.user = user
            await self._everywhere(lambda: _heartbeat(client_id, client, producers=[group]))

    async def forget(self, client_id: str, group: str, *, is_gone: bool) -> None:
        """A client is in the group no longer; unless `is_gone` it may live on, as where its connection broke."""
        client = self._clients.get(client_id)
        if client is None or (group not in client.consumers and group not in client.producers):
            return
        is_consumer = client.consumers.pop(group, None) is not None
        client.producers.pop(group, None)
        if not client.consumers and not client.producers:
            del self._clients[client_id]
        field_ = "consumerGroup" if is_consumer else "producerGroup"
        ext = {"clientID": client_id, field_: group, **PROXIED, CLIENT_USER: client.user, **({} if is_gone else LOST)}
        await self._everywhere(lambda: RemotingCommand(RequestCode.UNREGISTER_CLIENT, dict(ext)))

    async def lose(self, client_id: str) -> None:
        """A client is here no longer; it may live on."""
        client = self._clients.get(client_id)
        if client is not None:
            for group in [*client.consumers, *client.producers]:
                await self.forget(client_id, group, is_gone=False)

    async def members(self, group: str) -> GroupMembers:
        """Who is in the group at any broker. Raises Unreachable where none can say so."""
        ext = {"consumerGroup": group}
        found: set[str] = set()
        ordered = False
        answers = await self._everywhere(lambda: RemotingCommand(RequestCode.GET_CONSUMER_LIST_BY_GROUP, dict(ext)))
        if not answers:
            raise Unreachable(f"No broker can say who is in the group {group[:200]!r}.")
        for answer in answers:
            ordered |= is_ordered(answer.ext)
            if answer.code == ResponseCode.SUCCESS:
                found.update(decode_body(ConsumerList, answer.body).consumer_id_list)
        return GroupMembers(sorted(found), ordered)

    async def beat(self) -> None:
        """Tell all again to brokers that were told `HEARTBEAT_INTERVAL_S` ago, and to those that are new."""
        if not self._clients and not self._known_masters:
            return
        now_s = self._clock.monotonic_s()
        self._known_masters = [address for _, address in await self._routes.masters()]
        for address in self._known_masters if self._clients else ():
            try:
                connection = await self._lanes.client.connection(address)
                sent = self._sent_heartbeats.get(address)
                if sent and sent.connection is connection and now_s - sent.at_s < HEARTBEAT_INTERVAL_S:
                    continue
                await self._tell_all(address)
                self._sent_heartbeats[address] = _SentHeartbeat(connection, now_s)
            except MillstreamError as error:
                _log.info("%s does not hear of the clients here: %s", address, error)

    def _client(self, client_id: str, origin: tuple[str, int]) -> _Client | None:
        client = self._clients.get(client_id)
        if client is None:
            if len(self._clients) >= MAX_TOLD_CLIENTS:
                _log.warning("Brokers are not told of the client %s: they know %d.", client_id, MAX_TOLD_CLIENTS)
                return None
            client = self._clients[client_id] = _Client(origin)
        return client

    async def _tell_all(self, address: str) -> None:
        answers = [
            _heartbeat(name, one, list(one.consumers.values()), list(one.producers))
            for name, one in self._clients.items()
        ]
        for start in range(0, len(answers), _AT_ONCE):
            await asyncio.gather(*(self._lanes.demand(address, one) for one in answers[start : start + _AT_ONCE]))

    async def _masters(self) -> list[str]:
        """As `beat` has heard of late, so that nobody here waits for nameservers."""
        if not self._known_masters:
            self._known_masters = [address for _, address in await self._routes.masters()]
        return self._known_masters

    async def _everywhere(self, make: Callable[[], RemotingCommand]) -> list[RemotingCommand]:
        """The answers of the masters that give one soon; none where no nameserver knows a master."""
        try:
            masters = await self._masters()
        except MillstreamError as error:
            _log.info("No broker hears of a client here: %s", error)
            return []
        answers = await gather_until_deadline((self._lanes.ask_all([one], make) for one in masters), ANSWER_TIMEOUT_S)
        return [answer for part in answers for _, answer in part if isinstance(answer, RemotingCommand)]


def _heartbeat(
    client_id: str, client: _Client, consumers: Sequence[ConsumerData] = (), producers: Iterable[str] = ()
) -> RemotingCommand:
    data = HeartbeatData(client_id, [ProducerData(group) for group in producers], list(consumers))
    language, version = client.origin
    ext = {**PROXIED, CLIENT_USER: client.user}
    return RemotingCommand(RequestCode.HEART_BEAT, ext, encode_body(data), version=version, language=language)
