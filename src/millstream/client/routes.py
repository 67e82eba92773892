"""The client's route cache: it keeps working while no nameserver answers, and follows queues that move."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final, Protocol

from millstream.client.failover import keep_masters
from millstream.client.requests import ClientOperation, RequestStep
from millstream.client.values import BrokerQueueRange, QueueAddress
from millstream.model.backoff import Backoff
from millstream.model.errors import NameRefused
from millstream.protocol.remoting.administration.static_topics import LOGIC_BROKER_NAME, leaders
from millstream.protocol.remoting.bodies import TopicMappingInfo, TopicRouteData, decode_topic_statistics
from millstream.protocol.remoting.codes import RequestCode, ResponseCode
from millstream.protocol.remoting.command import RemotingCommand
from millstream.protocol.remoting.refusals import error_of

__all__ = [
    "DENIAL_GRACE_S",
    "MOVE_ATTEMPTS",
    "MOVE_DELAY_S",
    "ROUTE_LIFETIME_S",
    "ROUTE_RETRY_S",
    "KnownRoutes",
    "RouteLookup",
    "ask_queue",
    "logic_queues",
    "logic_ranges",
    "mappings_of",
    "present_place",
    "queue_of",
]


ROUTE_LIFETIME_S: Final = 30.0
"""Seconds that a route is used before the nameserver is asked again."""

ROUTE_RETRY_S: Final = 2.0
"""Seconds that an old route is used before the nameservers, which did not answer, are asked again; twice as long each
time, up to `ROUTE_LIFETIME_S`: one that hangs blocks its caller."""

DENIAL_GRACE_S: Final = 60.0
"""Seconds that a route is used although nameservers no longer know the topic: one that was just started knows none."""

_BACKOFF: Final = Backoff(ROUTE_RETRY_S, ROUTE_LIFETIME_S)


@dataclass(slots=True)
class _Known:
    route: TopicRouteData
    believed_until_s: float
    denied_s: float | None = None
    unanswered: int = 0
    """How often no nameserver answered since the route was heard."""


class KnownRoutes:
    """The last route of each topic. Times are seconds of a clock that never goes back, the caller's own."""

    def __init__(self, backoff: Backoff = _BACKOFF) -> None:
        self._backoff = backoff
        self._routes: dict[str, _Known] = {}

    def fresh(self, topic: str, now_s: float) -> TopicRouteData | None:
        """The route, where nobody needs to be asked."""
        known = self._routes.get(topic)
        return known.route if known is not None and now_s < known.believed_until_s else None

    def last(self, topic: str) -> TopicRouteData | None:
        """The route that was heard last, however old."""
        known = self._routes.get(topic)
        return None if known is None else known.route

    def learn(self, topic: str, route: TopicRouteData, now_s: float) -> None:
        """A nameserver told the route; brokers that have no master for now keep the former one."""
        known = self._routes.get(topic)
        route = keep_masters(route, known.route if known is not None else None)
        self._routes[topic] = _Known(route, now_s + ROUTE_LIFETIME_S)

    def note_no_answer(self, topic: str, now_s: float) -> TopicRouteData | None:
        """No nameserver answered: the last route, for a while; None where there was none."""
        known = self._routes.get(topic)
        if known is None:
            return None
        known.believed_until_s = now_s + self._backoff.wait_s(known.unanswered)
        known.unanswered += 1
        return known.route

    def note_denial(self, topic: str, now_s: float) -> TopicRouteData | None:
        """A nameserver does not know the topic: the last route for `DENIAL_GRACE_S`, then None."""
        known = self._routes.get(topic)
        if known is None:
            return None
        if known.denied_s is None:
            known.denied_s = now_s
        if now_s - known.denied_s >= DENIAL_GRACE_S:
            del self._routes[topic]
            return None
        return self.note_no_answer(topic, now_s)

    def doubt(self, topic: str) -> None:
        """The route led to somebody who does not answer: it is asked for before its next use."""
        known = self._routes.get(topic)
        if known is not None:
            known.believed_until_s = 0.0

    def forget(self, topic: str) -> None:
        """The topic is not there, or not as it was: what was known of it does not help."""
        self._routes.pop(topic, None)


MOVE_ATTEMPTS: Final = 40
"""Tries for a queue while it moves. Nothing happened at a broker that does not store it."""

MOVE_DELAY_S: Final = 0.1
"""Seconds between two of these."""

_MASTER_ID: Final = 0


class RouteLookup(Protocol):
    """The routes of a client, as asking a queue that moves needs them; `ClientOperations` has them."""

    def route(self, topic: str) -> ClientOperation[TopicRouteData]:
        """The topic's route. Raises TOPIC_NOT_FOUND."""
        ...

    def doubt_route(self, topic: str) -> None:
        """Ask the nameserver again before the next use of the topic."""
        ...

    def refresh(self, queue: QueueAddress) -> ClientOperation[QueueAddress]:
        """The same queue at its broker's present address."""
        ...


def mappings_of(route: TopicRouteData) -> dict[str, TopicMappingInfo]:
    """What the brokers say of the logic queues, by broker; empty where the topic is not static."""
    return route.topic_queue_mapping_by_broker or {}


def queue_of(queues: Iterable[QueueAddress], broker_name: str, queue_id: int) -> QueueAddress | None:
    """The queue of that number that a broker told of, None where it is not among them; logic ones are no broker's."""
    names = (broker_name, LOGIC_BROKER_NAME)
    return next((queue for queue in queues if queue.queue_id == queue_id and queue.broker_name in names), None)


def present_place(queue: QueueAddress, route: TopicRouteData) -> QueueAddress:
    """The queue where the route has it now; as it is where the route does not know it."""
    if queue.broker_name == LOGIC_BROKER_NAME:
        return queue_of(logic_queues(queue.topic, route), queue.broker_name, queue.queue_id) or queue
    masters = (
        broker.broker_addrs.get(_MASTER_ID) for broker in route.broker_datas if broker.broker_name == queue.broker_name
    )
    return replace(queue, broker_address=next(filter(None, masters), queue.broker_address))


def logic_queues(topic: str, route: TopicRouteData) -> list[QueueAddress]:
    """All queues of a static topic. One that nobody stores at the moment is at a broker that will say so."""
    masters = {
        broker.broker_name: broker.broker_addrs[_MASTER_ID]
        for broker in route.broker_datas
        if _MASTER_ID in broker.broker_addrs
    }
    if not masters:
        return []
    infos = mappings_of(route)
    somebody = masters[max(masters, key=lambda name: infos[name].epoch if name in infos else -1)]
    return [
        QueueAddress(topic, LOGIC_BROKER_NAME, number, masters.get(leader or "", somebody))
        for number, leader in leaders(infos).items()
    ]


def ask_queue(
    routes: RouteLookup,
    queue: QueueAddress,
    command: RemotingCommand,
    *,
    extra_wait_s: float = 0.0,
    delay_s: float = 0.0,
) -> ClientOperation[RemotingCommand]:
    """The answer of the broker that stores the queue, whatever its code; of the next one where it moved meanwhile."""
    for _ in range(MOVE_ATTEMPTS):
        answer = yield RequestStep(queue.broker_address, command, extra_wait_s, delay_s)
        if answer.code != ResponseCode.NOT_LEADER_FOR_QUEUE:
            break
        routes.doubt_route(queue.topic)
        queue = yield from routes.refresh(queue)
        delay_s = MOVE_DELAY_S
    return answer


def logic_ranges(routes: RouteLookup, topic: str) -> ClientOperation[list[BrokerQueueRange]]:
    """What can be read of each queue of a static topic; NOT_LEADER_FOR_QUEUE where one moves for too long."""
    found: dict[int, BrokerQueueRange] = {}
    delay_s = 0.0
    for _ in range(MOVE_ATTEMPTS):
        route = yield from routes.route(topic)
        queues = {queue.queue_id: queue for queue in logic_queues(topic, route)}
        found = {}
        for address in sorted({queue.broker_address for queue in queues.values()}):
            command = RemotingCommand(RequestCode.GET_TOPIC_STATS_INFO, {"topic": topic, "lo": "true"})
            answer = yield RequestStep(address, command, 0.0, delay_s)
            if answer.code != ResponseCode.SUCCESS:
                raise error_of(answer, address)
            delay_s = 0.0
            for item in decode_topic_statistics(answer.body):
                queue = QueueAddress(topic, LOGIC_BROKER_NAME, item.range.queue_id, address)
                found[queue.queue_id] = BrokerQueueRange(LOGIC_BROKER_NAME, item.range, queue)
        if found.keys() == queues.keys():
            return [found[number] for number in sorted(found)]
        routes.doubt_route(topic)
        delay_s = MOVE_DELAY_S
    raise NameRefused("NOT_LEADER_FOR_QUEUE", f"{len(queues) - len(found)} queues of {topic!r} are being moved.")
