"""Creates and deletes topics at the brokers, and writes the state topics."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from millstream.client.failover import has_lost_master, was_not_done
from millstream.model.backoff import Backoff
from millstream.model.clock import Clock
from millstream.model.errors import ConnectionFailed, MessageRefused, MillstreamError, NameRefused, Unreachable
from millstream.model.message import OutgoingMessage
from millstream.model.operations import SendReceipt
from millstream.model.topic import Permission, TopicConfig
from millstream.protocol.remoting.administration.settings import topic_fields
from millstream.protocol.remoting.codes import RequestCode
from millstream.protocol.remoting.command import RemotingCommand
from millstream.protocol.remoting.messages.state import encode_state
from millstream.proxy.backend import RouteQueue, check_removable
from millstream.proxy.remote.connection_pool import BrokerConnectionPool, check_success
from millstream.proxy.remote.routes import RouteCache
from millstream.proxy.remote.sender import receipts_of

__all__ = ["ROUTE_WAIT_S", "RemoteTopics"]

ROUTE_WAIT_S: Final = 5.0
"""Seconds for which a new topic waits at most until the nameservers tell of it at all of its brokers."""

_LOOK_AGAIN: Final = Backoff(0.02, 0.5)
"""Between two questions to the nameservers about a new topic."""


class RemoteTopics:
    """The operations of one proxy; see `BrokerBackend` for what each does."""

    def __init__(self, lanes: BrokerConnectionPool, routes: RouteCache, clock: Clock) -> None:
        self._lanes = lanes
        self._routes = routes
        self._clock = clock

    async def brokers(self) -> list[str]:
        """Those of the proxy's own cluster."""
        return [name for name, _ in await self._routes.own_masters()]

    async def store_state(self, broker_name: str, messages: Sequence[OutgoingMessage]) -> list[SendReceipt]:
        """Sent again, wherever the broker's master is then, only where the attempt before surely did nothing: a later
        record of the same key must not be overtaken by an earlier one."""
        topics = {message.topic for message in messages}
        if len(topics) != 1:
            raise MessageRefused("MESSAGE_MALFORMED", f"Records of {len(topics)} topics are stored together.")
        (topic,) = topics
        queue = RouteQueue(broker_name, 0, Permission.READ)

        async def store() -> list[SendReceipt]:
            address = await self._address(broker_name, topic)
            answer = await self._lanes.ask(address, encode_state(broker_name, messages))
            return receipts_of(check_success(answer, address), queue, messages, self._clock.now_ms())

        receipts = await self._routes.repeating(topic, store, was_not_done)
        known = self._routes.find(topic)
        if known is not None and broker_name not in known.addresses:
            self._routes.doubt(topic, _not_routed(broker_name))
        return receipts

    async def declare(self, config: TopicConfig) -> None:
        """On every master of the own cluster that answers; one that does not is told when the same is declared again.

        Raises what a broker refuses, and Unreachable where none answers or no nameserver tells of the topic in time.
        """
        fields = topic_fields(config)

        async def make() -> set[str]:
            masters = await self._routes.own_masters()
            names = {address: name for name, address in masters}
            made: set[str] = set()
            failure: MillstreamError = Unreachable("The nameservers know no broker.")
            for address, answer in await self._lanes.demand_all(
                names, lambda: RemotingCommand(RequestCode.UPDATE_AND_CREATE_TOPIC, dict(fields))
            ):
                if isinstance(answer, RemotingCommand):
                    made.add(names[address])
                elif isinstance(answer, ConnectionFailed) or answer.name == "NOT_MASTER":
                    failure = answer
                else:
                    raise answer
            if not made:
                raise failure
            return made

        await self._wait_for_route(config.name, await self._routes.repeating("", make, has_lost_master))

    async def remove(self, name: str) -> None:
        """At the masters that the route names, then at the nameservers that answer."""
        check_removable(name)
        known = await self._routes.refresh(name)
        for address, answer in await self._lanes.demand_all(
            known.addresses.values(), lambda: RemotingCommand(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": name})
        ):
            if isinstance(answer, MillstreamError):
                raise answer
            check_success(answer, address)
        # A nameserver that is down hears from the brokers what is left, once it is back.
        await self._lanes.demand_all(
            self._routes.nameservers(name),
            lambda: RemotingCommand(RequestCode.DELETE_TOPIC_IN_NAMESERVER, {"topic": name}),
        )
        self._routes.doubt(name, NameRefused("TOPIC_NOT_FOUND", f"The topic {name!r} was removed."))

    async def _address(self, broker_name: str, topic: str) -> str:
        """Where the broker's master is, whether or not it has the topic already."""
        known = self._routes.find(topic)
        address = None if known is None else known.addresses.get(broker_name)
        if address is None:
            address = dict(await self._routes.own_masters()).get(broker_name)
        if address is None:
            raise _not_routed(broker_name)
        return address

    async def _wait_for_route(self, topic: str, brokers: set[str]) -> None:
        loop = asyncio.get_running_loop()
        until_s, attempt = loop.time() + ROUTE_WAIT_S, 0
        while True:
            found: set[str] = set()
            with suppress(NameRefused, ConnectionFailed):
                found = set((await self._routes.refresh(topic)).addresses)
            if found >= brokers:
                return
            if loop.time() >= until_s:
                if found:
                    return
                raise Unreachable(
                    f"The topic {topic!r} was made, and no nameserver tells of it within {ROUTE_WAIT_S} s."
                )
            await asyncio.sleep(_LOOK_AGAIN.wait_s(attempt))
            attempt += 1


def _not_routed(broker_name: str) -> NameRefused:
    return NameRefused("QUEUE_NOT_FOUND", f"There is no broker {broker_name[:80]!r} behind this proxy.")
