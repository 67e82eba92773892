"""Reading from replicas: chooses a replica for each queue, and avoids failing ones for a while."""

from __future__ import annotations

import time
from collections.abc import Callable
from enum import Enum
from typing import Final, Protocol

from millstream.client.requests import PULL_STATUSES, ClientOperation, RequestStep
from millstream.client.routes import mappings_of
from millstream.client.values import QueueAddress
from millstream.model.errors import ConnectionFailed, MillstreamError, NameRefused
from millstream.protocol.remoting.bodies import BrokerData, TopicRouteData
from millstream.protocol.remoting.codes import ResponseCode
from millstream.protocol.remoting.command import RemotingCommand

__all__ = ["AVOID_S", "MAX_AVOIDED", "ReadFrom", "ReadableReplicas", "ReplicaReads"]

AVOID_S: Final = 10.0
"""Seconds for which nobody is asked who did not answer, or refused to be read from, where another one can be asked."""

MAX_AVOIDED: Final = 1024
"""Addresses that are left alone at a time at most."""

_MASTER_ID: Final = 0


class ReadFrom(Enum):
    """Who is asked first for messages. Either way a reader gets what is confirmed, by the same offsets."""

    MASTER = "master"
    REPLICA = "replica"
    """A replica; the master where none answers, or the replica does not have what is asked for."""


class ReadableReplicas:
    """Times are seconds of a clock that never goes back, the caller's own."""

    def __init__(self) -> None:
        self._avoided: dict[str, float] = {}

    def of(self, broker: BrokerData, queue_id: int, now_s: float) -> list[str]:
        """The addresses to ask, in this order; queues are spread over the replicas, and each stays at its own."""
        addresses = [place for number, place in sorted(broker.broker_addrs.items()) if number != _MASTER_ID]
        master = broker.broker_addrs.get(_MASTER_ID)
        usable = [place for place in addresses if place != master and not self.is_avoided(place, now_s)]
        first = queue_id % len(usable) if usable else 0
        return usable[first:] + usable[:first]

    def avoid(self, address: str, now_s: float) -> None:
        """It did not answer, or lets nobody read."""
        self._avoided.pop(address, None)
        self._avoided[address] = now_s + AVOID_S
        if len(self._avoided) > MAX_AVOIDED:
            del self._avoided[next(iter(self._avoided))]

    def is_avoided(self, address: str, now_s: float) -> bool:
        """Whether it is left alone now."""
        return now_s < self._avoided.get(address, now_s)


class Routes(Protocol):
    """Routes and masters of a client; `ClientOperations` has them."""

    def route(self, topic: str) -> ClientOperation[TopicRouteData]:
        """The topic's route. Raises TOPIC_NOT_FOUND."""
        ...

    def doubt_route(self, topic: str) -> None:
        """Ask the nameserver again before the next use of the topic."""
        ...

    def ask_holder(
        self, queue: QueueAddress, command: RemotingCommand, *, extra_wait_s: float = 0.0
    ) -> ClientOperation[RemotingCommand]:
        """The answer of the master that stores the queue, whatever its code."""
        ...

    def ask_broker(self, topic: str, address: str, command: RemotingCommand) -> ClientOperation[RemotingCommand]:
        """The answer of the broker at an address; after a failure the topic's route is doubted."""
        ...


class ReplicaReads:
    """Requests that change nothing, sent to masters or their replicas, over the routes of one client."""

    def __init__(self, routes: Routes) -> None:
        self._routes = routes
        self._replicas = ReadableReplicas()

    def ask(
        self,
        queue: QueueAddress,
        make: Callable[[int], RemotingCommand],
        *,
        wait_ms: int,
        read_from: ReadFrom,
    ) -> ClientOperation[RemotingCommand]:
        """The answer, whatever its code, to a request for messages that may wait so many milliseconds as `make` is
        given.

        With REPLICA of a replica that has some at once, without waiting. Who has come to its end asks the master, so
        that a replica which hears nothing new holds no reader up.
        """
        if read_from is ReadFrom.MASTER:
            return (yield from self._routes.ask_holder(queue, make(wait_ms), extra_wait_s=wait_ms / 1000))
        answer = yield from self._ask_replica(queue, make(0))
        if answer is not None:
            return answer
        try:
            return (yield from self._routes.ask_holder(queue, make(wait_ms), extra_wait_s=wait_ms / 1000))
        except ConnectionFailed:
            # The route, which was asked for since, may tell of more replicas.
            answer = yield from self._ask_replica(queue, make(0))
            if answer is None:
                raise
            return answer

    def _ask_replica(self, queue: QueueAddress, command: RemotingCommand) -> ClientOperation[RemotingCommand | None]:
        """The records that a replica has; None where the master is to be asked."""
        broker = yield from self.broker_of(queue.topic, queue.broker_name)
        if broker is None:
            return None
        for address in self._replicas.of(broker, queue.queue_id, time.monotonic()):
            try:
                answer = yield RequestStep(address, command)
            except ConnectionFailed:
                self._replicas.avoid(address, time.monotonic())
                self._routes.doubt_route(queue.topic)
                continue
            if answer.code in (ResponseCode.SUCCESS, ResponseCode.PULL_RETRY_IMMEDIATELY):
                return answer
            if answer.code in PULL_STATUSES:
                # It has come to its end, or begins later: the master knows which offsets there are.
                return None
            self._replicas.avoid(address, time.monotonic())
        return None

    def broker_of(self, topic: str, name: str) -> ClientOperation[BrokerData | None]:
        """The broker of that name in the topic's route; None where it is not there, or the topic is a static one."""
        try:
            route = yield from self._routes.route(topic)
        except MillstreamError:
            return None
        found = (broker for broker in route.broker_datas if broker.broker_name == name)
        return None if mappings_of(route) else next(found, None)

    def ask_readable(
        self, topic: str, broker: BrokerData, command: RemotingCommand, read_from: ReadFrom, queue_id: int = 0
    ) -> ClientOperation[RemotingCommand | None]:
        """The answer of the broker's master, or of a replica where that is allowed and the master does not answer.

        None for a broker without either.
        """
        if read_from is ReadFrom.MASTER:
            master = broker.broker_addrs.get(_MASTER_ID)
            return None if master is None else (yield from self._routes.ask_broker(topic, master, command))
        failure: MillstreamError | None = None
        tried: set[str] = set()
        while True:
            now_s = time.monotonic()
            addresses = self._replicas.of(broker, queue_id, now_s)
            master = broker.broker_addrs.get(_MASTER_ID)
            if master is not None:
                addresses.insert(len(addresses) if self._replicas.is_avoided(master, now_s) else 0, master)
            left = [address for address in addresses if address not in tried]
            if not left:
                break
            tried.add(left[0])
            try:
                return (yield from self._routes.ask_broker(topic, left[0], command))
            except (ConnectionFailed, NameRefused) as error:
                if isinstance(error, NameRefused) and left[0] == master:
                    raise
                self._replicas.avoid(left[0], time.monotonic())
                failure = failure or error
            # Since then another one may be the master, or more replicas may be there.
            broker = (yield from self.broker_of(topic, broker.broker_name)) or broker
        if failure is not None:
            raise failure
        return None
