"""Tells brokers which producers are at this proxy, so that they ask here about transactions that were left open.

A gRPC producer has no group; as in RocketMQ's proxy its topic stands for one.
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final
from uuid import uuid4

from millstream.model.clock import Clock
from millstream.model.errors import MillstreamError
from millstream.protocol.remoting.bodies import HeartbeatData, ProducerData, encode_body
from millstream.protocol.remoting.codes import RequestCode
from millstream.protocol.remoting.command import RemotingCommand
from millstream.proxy.remote.connection_pool import BrokerConnectionPool
from millstream.proxy.remote.routes import RouteCache
from millstream.transport.remoting_client import RemotingConnection

__all__ = ["HEARTBEAT_INTERVAL_S", "Heartbeats"]

_log = logging.getLogger(__name__)

HEARTBEAT_INTERVAL_S: Final = 30.0
"""Seconds between two heartbeats without news; brokers forget clients that are silent for 120 s."""

_GROUPS_AT_ONCE: Final = 100
"""Groups of one heartbeat; brokers take no more."""


@dataclass(slots=True)
class _SentHeartbeat:
    connection: RemotingConnection
    groups: set[str]
    at_s: float


class Heartbeats:
    """`beat` is called every few seconds.

    `producers` gives the topics that have producers here, `groups` the groups of producers that have some.
    """

    def __init__(self, lanes: BrokerConnectionPool, routes: RouteCache, clock: Clock) -> None:
        self._lanes = lanes
        self._routes = routes
        self._clock = clock
        self._told: dict[str, _SentHeartbeat] = {}
        self.client_id = f"proxy@{socket.gethostname()}@{os.getpid()}@{uuid4().hex[:8]}"
        self.producers: Callable[[], Iterable[str]] = tuple
        self.groups: Callable[[], Iterable[str]] = tuple

    async def beat(self) -> None:
        """Say what is new to each broker that holds such a topic, and all of it every `HEARTBEAT_INTERVAL_S`."""
        wanted: dict[str, set[str]] = {}
        for topic in list(self.producers()):
            try:
                known = await self._routes.get(topic)
            except MillstreamError:
                continue
            for address in known.addresses.values():
                wanted.setdefault(address, set()).add(topic)
        everywhere = set(self.groups())
        if everywhere:
            for _, address in await self._routes.masters():
                wanted.setdefault(address, set()).update(everywhere)
        for address, groups in wanted.items():
            try:
                await self._tell(address, groups)
            except MillstreamError as error:
                _log.info("%s does not hear of the producers here: %s", address, error)
        for address in self._told.keys() - wanted.keys():
            del self._told[address]

    async def _tell(self, address: str, groups: set[str]) -> None:
        now_s = self._clock.monotonic_s()
        connection = await self._lanes.connection(address)
        told = self._told.get(address)
        if told is None or told.connection is not connection or now_s - told.at_s >= HEARTBEAT_INTERVAL_S:
            told = _SentHeartbeat(connection, set(), now_s)
        new = sorted(groups - told.groups)
        for start in range(0, len(new), _GROUPS_AT_ONCE):
            producers = [ProducerData(group) for group in new[start : start + _GROUPS_AT_ONCE]]
            body = encode_body(HeartbeatData(self.client_id, producers))
            await self._lanes.demand(address, RemotingCommand(RequestCode.HEART_BEAT, body=body))
        for group in told.groups - groups:
            ext = {"clientID": self.client_id, "producerGroup": group}
            await self._lanes.demand(address, RemotingCommand(RequestCode.UNREGISTER_CLIENT, ext))
        told.groups = set(groups)
        self._told[address] = told
