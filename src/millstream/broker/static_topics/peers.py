"""Asks the other brokers of the cluster for the queues that moved here."""

from __future__ import annotations

import asyncio
import ssl
from collections import OrderedDict
from collections.abc import Sequence
from typing import Final

from millstream.model.errors import ConnectionFailed, ConsumeRefused, MillstreamError
from millstream.model.message import Address
from millstream.protocol.remoting.bodies import ClusterInfo, TopicRouteData, decode_body
from millstream.protocol.remoting.codes import RequestCode, ResponseCode
from millstream.protocol.remoting.command import RemotingCommand
from millstream.security.signature import Credentials
from millstream.transport.remoting_client import RemotingConnection

__all__ = ["MAX_KEPT_ROUTES", "MAX_PEER_CONNECTIONS", "PEER_TIMEOUT_S", "Peers"]

MAX_PEER_CONNECTIONS: Final = 64
"""Connections to other brokers at most; the one that was not used for the longest time is closed for a new one."""

PEER_TIMEOUT_S: Final = 3.0
"""Seconds that another broker may take to answer; RocketMQ's limit for forwarded requests."""

MAX_KEPT_ROUTES: Final = 1024
"""Topics of which the route is kept that was heard last, for the time when no nameserver answers."""

_MASTER_ID: Final = 0


class Peers:
    """Brokers by name. `nameservers` are `host:port`; they are asked where a broker is, and again when it moved."""

    def __init__(
        self,
        nameservers: Sequence[str],
        *,
        credentials: Credentials | None = None,
        tls: ssl.SSLContext | None = None,
        timeout_s: float = PEER_TIMEOUT_S,
    ) -> None:
        self._nameservers = [_address(text) for text in nameservers]
        self._credentials = credentials
        self._tls = tls
        self._timeout_s = timeout_s
        self._addresses: dict[str, Address] = {}
        self._connections: OrderedDict[Address, asyncio.Task[RemotingConnection]] = OrderedDict()
        self._routes: OrderedDict[str, TopicRouteData] = OrderedDict()

    async def ask(self, broker_name: str, command: RemotingCommand) -> RemotingCommand:
        """The broker's answer, whatever its code. Raises SEGMENT_UNREACHABLE where it does not answer."""
        known = self._addresses.get(broker_name)
        if known is not None:
            try:
                return await self._request(known, command)
            except ConnectionFailed:
                self._addresses.pop(broker_name, None)
        try:
            address = await self._find(broker_name)
            answer = await self._request(address, command)
        except ConnectionFailed as error:
            words = f"The broker {broker_name!r} holds the messages and cannot be asked: {error.message}"
            raise ConsumeRefused("SEGMENT_UNREACHABLE", words) from error
        self._addresses[broker_name] = address
        return answer

    async def route(self, topic: str) -> TopicRouteData | None:
        """Where a topic's queues lie, as a nameserver says, or said last where none answers; None if none knows."""
        for nameserver in self._nameservers:
            asked = {"topic": topic, "acceptStandardJsonOnly": "true"}
            command = RemotingCommand(RequestCode.GET_ROUTE_BY_TOPIC, asked)
            try:
                answer = await self._request(nameserver, command)
            except ConnectionFailed:
                continue
            if answer.code == ResponseCode.SUCCESS:
                self._routes[topic] = decode_body(TopicRouteData, answer.body)
                self._routes.move_to_end(topic)
                if len(self._routes) > MAX_KEPT_ROUTES:
                    self._routes.popitem(last=False)
                break
            if answer.code == ResponseCode.TOPIC_NOT_EXIST:
                self._routes.pop(topic, None)
                break
        return self._routes.get(topic)

    async def close(self) -> None:
        """Close the connections."""
        openings, self._connections = self._connections, OrderedDict()
        for opening in openings.values():
            await _close(opening)

    async def _find(self, broker_name: str) -> Address:
        failure: MillstreamError | None = None
        for nameserver in self._nameservers:
            try:
                answer = await self._request(nameserver, RemotingCommand(RequestCode.GET_BROKER_CLUSTER_INFO))
            except ConnectionFailed as error:
                failure = error
                continue
            if answer.code != ResponseCode.SUCCESS:
                continue
            broker = decode_body(ClusterInfo, answer.body).broker_addr_table.get(broker_name)
            if broker is not None and _MASTER_ID in broker.broker_addrs:
                return _address(broker.broker_addrs[_MASTER_ID])
        reason = "" if failure is None else f" {failure.message}"
        words = f"No nameserver knows the broker {broker_name!r}, which holds the messages.{reason}"
        raise ConsumeRefused("SEGMENT_UNREACHABLE", words)

    async def _request(self, address: Address, command: RemotingCommand) -> RemotingCommand:
        connection = await self._connection(address)
        # The connection numbers and signs what it sends, so each attempt sends a command of its own.
        sent = RemotingCommand(command.code, dict(command.ext), command.body)
        return await connection.request(sent, self._timeout_s)

    async def _connection(self, address: Address) -> RemotingConnection:
        """The open connection to `address`; those who come while it is being opened share the attempt."""
        opening = self._connections.get(address)
        if opening is None or (opening.done() and not _is_open(opening)):
            opening = asyncio.ensure_future(
                RemotingConnection.open(
                    address, timeout_s=self._timeout_s, credentials=self._credentials, tls=self._tls
                )
            )
            self._connections[address] = opening
            while len(self._connections) > MAX_PEER_CONNECTIONS:
                _, oldest = self._connections.popitem(last=False)
                await _close(oldest)
        self._connections.move_to_end(address)
        return await asyncio.shield(opening)


def _address(text: str) -> Address:
    host, _, port = text.rpartition(":")
    return Address(host.strip("[]"), int(port))


def _is_open(opening: asyncio.Task[RemotingConnection]) -> bool:
    return not opening.cancelled() and opening.exception() is None and opening.result().is_open


async def _close(opening: asyncio.Task[RemotingConnection]) -> None:
    if opening.done() and not opening.cancelled() and opening.exception() is None:
        await opening.result().close()
    opening.cancel()
