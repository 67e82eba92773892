"""The proxy's route cache: refreshed in the background, kept while no nameserver answers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Final, TypeVar

import msgspec

from millstream.client.failover import FAILOVER_BACKOFF, has_lost_master, keep_masters
from millstream.client.operations import parse_addresses
from millstream.client.routes import DENIAL_GRACE_S, MOVE_ATTEMPTS, MOVE_DELAY_S, logic_queues
from millstream.model.clock import Clock
from millstream.model.errors import ConnectionFailed, MillstreamError, NameRefused, StartRefused
from millstream.model.light_queue import is_light_queue
from millstream.model.state_topics import ROUTES_TOPIC
from millstream.model.topic import MessageType, Permission
from millstream.protocol.remoting.administration.settings import decode_topic
from millstream.protocol.remoting.bodies import BrokerData, ClusterInfo, QueueData, TopicRouteData, decode_body
from millstream.protocol.remoting.codes import RequestCode
from millstream.protocol.remoting.command import RemotingCommand
from millstream.proxy.backend import RouteQueue, TopicRoute

__all__ = [
    "FAILOVER_S",
    "MAX_ROUTES",
    "REFRESH_INTERVAL_S",
    "UNUSED_LIMIT_S",
    "ClusterRule",
    "Clusters",
    "KnownRoute",
    "RouteCache",
    "known_route",
    "master_addresses",
    "parse_cluster_rule",
]


MASTER_ID = 0
"""The broker id of masters; others are their replicas, which take no messages and no acknowledgements."""


@dataclass(frozen=True, slots=True)
class KnownRoute:
    """A route, and the addresses (`host:port`) of its masters by name. `writable` are queues to choose from.

    `data` is what the nameserver told.
    """

    route: TopicRoute
    addresses: dict[str, str]
    writable: tuple[RouteQueue, ...]
    data: TopicRouteData

    @property
    def is_static(self) -> bool:
        """Whether the queues move between brokers, each under its number."""
        return self.route.is_static

    def address(self, broker_name: str, queue_id: int | None = None) -> str:
        """Where the broker is; blank for the only one. QUEUE_NOT_FOUND where it has nothing of the topic.

        Of a static topic it is where the queue is now, whichever broker stored it when a client asked.
        """
        broker_name = self.holder(broker_name, queue_id)
        if not broker_name and len(self.addresses) == 1:
            broker_name = next(iter(self.addresses))
        found = self.addresses.get(broker_name)
        if found is None:
            raise NameRefused(
                "QUEUE_NOT_FOUND",
                f"There is no broker {broker_name[:80]!r} with queues of the topic {self.route.topic!r} behind this "
                "proxy.",
            )
        return found

    def holder(self, broker_name: str, queue_id: int | None) -> str:
        """The broker that is meant by a client who names a broker, and may name a queue."""
        if not self.is_static:
            return broker_name
        queues = self.route.queues
        if queue_id is not None:
            return next((queue.broker_name for queue in queues if queue.queue_id == queue_id), broker_name)
        names = dict.fromkeys(queue.broker_name for queue in queues)
        return broker_name if broker_name in names else next(iter(names))


def master_addresses(data: TopicRouteData) -> dict[str, str]:
    """The masters of a route by name."""
    return {
        broker.broker_name: broker.broker_addrs[MASTER_ID]
        for broker in data.broker_datas
        if MASTER_ID in broker.broker_addrs
    }


def known_route(topic: str, data: TopicRouteData, message_type: MessageType) -> KnownRoute:
    """The route of a nameserver's answer; TOPIC_NOT_FOUND where no master holds a queue of the topic."""
    masters = master_addresses(data)
    logic = logic_queues(topic, data)
    if logic:
        names = {address: name for name, address in masters.items()}
        both = Permission.READ | Permission.WRITE
        queues = tuple(RouteQueue(names[queue.broker_address], queue.queue_id, both) for queue in logic)
        route = TopicRoute(topic, message_type, queues, is_static=True)
        return KnownRoute(route, masters, queues, data)
    held = sorted((one for one in data.queue_datas if one.broker_name in masters), key=lambda one: one.broker_name)
    queues = tuple(queue for one in held for queue in _queues(one))
    if not queues:
        raise NameRefused("TOPIC_NOT_FOUND", f"The topic {topic[:200]!r} has no queue on any master.")
    addresses = {name: masters[name] for name in dict.fromkeys(queue.broker_name for queue in queues)}
    writable = tuple(queue for queue in queues if queue.permission & Permission.WRITE)
    return KnownRoute(TopicRoute(topic, message_type, queues), addresses, writable, data)


def _with_master(broker: BrokerData, address: str) -> BrokerData:
    return msgspec.structs.replace(broker, broker_addrs={**broker.broker_addrs, MASTER_ID: address})


def _lead_to(known: KnownRoute, masters: Mapping[str, str]) -> KnownRoute:
    """The route with the masters where they are now; those that are not named stay."""
    addresses = {name: masters.get(name, address) for name, address in known.addresses.items()}
    if addresses == known.addresses:
        return known
    brokers = [
        _with_master(broker, masters[broker.broker_name]) if broker.broker_name in masters else broker
        for broker in known.data.broker_datas
    ]
    return replace(known, addresses=addresses, data=msgspec.structs.replace(known.data, broker_datas=brokers))


def _left_addresses(before: KnownRoute, after: KnownRoute) -> list[str]:
    """Where masters were that are elsewhere now."""
    return [address for name, address in before.addresses.items() if after.addresses.get(name, address) != address]


def _queues(data: QueueData) -> Iterable[RouteQueue]:
    """Queues beyond the readable ones can only be written, and the other way round."""
    for queue_id in range(max(data.read_queue_nums, data.write_queue_nums)):
        permission = Permission(data.perm & int(Permission.READ | Permission.WRITE))
        if queue_id >= data.read_queue_nums:
            permission &= ~Permission.READ
        if queue_id >= data.write_queue_nums:
            permission &= ~Permission.WRITE
        yield RouteQueue(data.broker_name, queue_id, permission)


@dataclass(frozen=True, slots=True)
class ClusterRule:
    """Topics by a pattern, and the nameservers (`host:port`, separated by `;`) that know them."""

    topics: str
    nameservers: str


def parse_cluster_rule(text: str) -> ClusterRule:
    """The rule of a text. Raises ILLEGAL_SETTING."""
    topics, mark, nameservers = text.partition("=")
    try:
        if not mark or not topics.strip():
            raise ValueError("there is no pattern")
        return ClusterRule(topics.strip(), ";".join(parse_addresses(nameservers)))
    except ValueError as error:
        words = f"clusters: {text[:200]!r} is not of the form topic-pattern=host:port;host:port: {error}."
        raise StartRefused("ILLEGAL_SETTING", words) from None


class Clusters:
    """The clusters of one proxy, by their nameservers; `own` are those of the proxy's own cluster."""

    def __init__(self, own: str, rules: Sequence[ClusterRule] = ()) -> None:
        self._own = own
        self._rules = tuple(rules)

    def of(self, topic: str) -> str:
        """The nameservers that know the topic."""
        return next((rule.nameservers for rule in self._rules if fnmatchcase(topic, rule.topics)), self._own)

    def all(self) -> list[str]:
        """The nameservers of each cluster, the own ones first."""
        return list(dict.fromkeys((self._own, *(rule.nameservers for rule in self._rules))))


_log = logging.getLogger(__name__)

REFRESH_INTERVAL_S: Final = 30.0
"""Seconds between two looks at all known routes, as in RocketMQ's clients."""

UNUSED_LIMIT_S: Final = 600.0
"""Seconds without use after which a route is no longer refreshed."""

MAX_ROUTES: Final = 10_000
"""Routes that are kept at most; the one that was unused longest makes room."""

FAILOVER_S: Final = 5.0
"""Seconds after its first failure for which a request that says nothing else looks for its broker's new master; a
caller's own deadline ends it before."""

_T = TypeVar("_T")

_AT_ONCE = 16
"""Routes that are refreshed at the same time."""

_GONE: Final = frozenset(("TOPIC_NOT_FOUND", "QUEUE_NOT_FOUND"))

_MOVED: Final = "NOT_LEADER_FOR_QUEUE"

Ask = Callable[[RemotingCommand, str], Awaitable[RemotingCommand]]
AskBroker = Callable[[str, RemotingCommand], Awaitable[RemotingCommand]]
"""Both give the answer of a request that succeeded, and raise what another one stands for. The first asks one of the
nameservers of a text, the other one the broker at an address."""


@dataclass(slots=True)
class _CachedRoute:
    known: KnownRoute
    used_s: float
    denied_s: float | None = None


class RouteCache:
    """Routes by topic. `clusters` says which nameservers know a topic. A light queue has the route of its broker's
    routes."""

    def __init__(
        self,
        ask_nameserver: Ask,
        ask_broker: AskBroker,
        clock: Clock,
        clusters: Clusters,
        failover_s: float = FAILOVER_S,
    ) -> None:
        self._clusters = clusters
        self._failover_s = failover_s
        self.on_moved: list[Callable[[str], None]] = []
        """Called with each address where the master of a broker was, once a route has it elsewhere."""
        self._ask_nameserver = ask_nameserver
        self._ask_broker = ask_broker
        self._clock = clock
        self._kept: dict[str, _CachedRoute] = {}
        self._asking: dict[str, asyncio.Task[KnownRoute]] = {}
        self._masters: dict[str, list[tuple[str, str]]] = {}

    async def get(self, topic: str) -> KnownRoute:
        """The topic's route. Asks where it is not known; TOPIC_NOT_FOUND, Unreachable."""
        topic = _routed_topic(topic)
        kept = self._kept.get(topic)
        if kept is not None:
            kept.used_s = self._clock.monotonic_s()
            return kept.known
        return await self.refresh(topic)

    def find(self, topic: str) -> KnownRoute | None:
        """The topic's route, if it is known."""
        kept = self._kept.get(_routed_topic(topic))
        return None if kept is None else kept.known

    async def refresh(self, topic: str) -> KnownRoute:
        """The topic's route as a nameserver tells it now; who comes meanwhile shares the answer.

        What was known stays where no nameserver answers, and for `DENIAL_GRACE_S` where none knows the topic any more.
        """
        topic = _routed_topic(topic)
        asking = self._asking.get(topic)
        if asking is None:
            asking = asyncio.create_task(self._learn(topic))
            self._asking[topic] = asking
            asking.add_done_callback(lambda _: self._asking.pop(topic, None))
        return await asyncio.shield(asking)

    async def following(
        self,
        topic: str,
        act: Callable[[KnownRoute], Awaitable[_T]],
        may_repeat: Callable[[MillstreamError], bool] = has_lost_master,
        deadline_s: float | None = None,
    ) -> _T:
        """What `act` does by the topic's route; see `repeating` for when it does it again."""

        async def follow() -> _T:
            return await act(await self.get(topic))

        return await self.repeating(topic, follow, may_repeat, deadline_s)

    async def repeating(
        self,
        topic: str,
        act: Callable[[], Awaitable[_T]],
        may_repeat: Callable[[MillstreamError], bool] = has_lost_master,
        deadline_s: float | None = None,
    ) -> _T:
        """What `act` does; again, by a fresh route of the topic, as long as a queue moves meanwhile, and after failures
        that `may_repeat` until a master answers: at the event loop's `deadline_s` the last failure is raised.

        Without a deadline it is `failover_s` after the first failure. A blank topic has no route.
        """
        loop = asyncio.get_running_loop()
        moves = failures = 0
        while True:
            try:
                return await act()
            except MillstreamError as error:
                if error.name == _MOVED and moves < MOVE_ATTEMPTS:
                    moves, wait_s = moves + 1, MOVE_DELAY_S
                elif may_repeat(error):
                    deadline_s = loop.time() + self._failover_s if deadline_s is None else deadline_s
                    if loop.time() >= deadline_s:
                        raise
                    wait_s = FAILOVER_BACKOFF.wait_s(failures - 1) if failures else 0.0
                    wait_s, failures = min(wait_s, deadline_s - loop.time()), failures + 1
                else:
                    raise
            await asyncio.sleep(wait_s)
            if topic:
                # What the route says now is for the next turn to find out.
                with suppress(NameRefused, ConnectionFailed):
                    await self.refresh(topic)

    def brokers_at(self, address: str) -> frozenset[tuple[str, str]]:
        """Nameservers and names of the brokers whose masters are at the address, as far as known."""
        routed = (
            (self._clusters.of(topic), name)
            for topic, kept in self._kept.items()
            for name, place in kept.known.addresses.items()
            if place == address
        )
        listed = (
            (nameservers, name)
            for nameservers, masters in self._masters.items()
            for name, place in masters
            if place == address
        )
        return frozenset((*routed, *listed))

    async def find_masters(self) -> dict[str, dict[str, str]]:
        """Where the masters of each cluster are now, by its nameservers and by name, of those that answer.

        All known routes lead there from then on.
        """
        found: dict[str, dict[str, str]] = {}
        for nameservers in self._clusters.all():
            with suppress(ConnectionFailed):
                await self._learn_masters(nameservers)
                found[nameservers] = dict(self._masters[nameservers])
        moved: dict[str, None] = {}
        for topic, kept in self._kept.items():
            before, kept.known = kept.known, _lead_to(kept.known, found.get(self._clusters.of(topic), {}))
            moved |= dict.fromkeys(_left_addresses(before, kept.known))
        self._note_moved(moved)
        return found

    def doubt(self, topic: str, error: MillstreamError) -> None:
        """What was asked where the route led has failed: ask for the route again if that may be why."""
        if is_light_queue(topic):
            # It may be gone where the broker's routes stay.
            if error.name in _GONE:
                return
            topic = _routed_topic(topic)
        if error.name in _GONE:
            self._kept.pop(topic, None)
        elif (isinstance(error, ConnectionFailed) or error.name == _MOVED) and topic not in self._asking:
            task = asyncio.ensure_future(self.refresh(topic))
            task.add_done_callback(lambda done: done.cancelled() or done.exception())

    async def refresh_all(self) -> None:
        """Refresh what was used of late, and forget the rest."""
        oldest_s = self._clock.monotonic_s() - UNUSED_LIMIT_S
        for topic in [topic for topic, kept in self._kept.items() if kept.used_s < oldest_s]:
            del self._kept[topic]
        topics = list(self._kept)
        for start in range(0, len(topics), _AT_ONCE):
            refreshing = (self.refresh(topic) for topic in topics[start : start + _AT_ONCE])
            for error in await asyncio.gather(*refreshing, return_exceptions=True):
                if isinstance(error, ConnectionFailed):
                    _log.info("routes are kept as they are: %s", error)
                    return

    def nameservers(self, topic: str) -> Sequence[str]:
        """Where the nameservers of the topic's cluster are."""
        return parse_addresses(self._clusters.of(topic))

    async def masters(self) -> list[tuple[str, str]]:
        """Name and address of all masters of all clusters; the known ones of those whose nameservers do not answer."""
        failure: ConnectionFailed | None = None
        for nameservers in self._clusters.all():
            try:
                await self._learn_masters(nameservers)
            except ConnectionFailed as error:
                failure = error
        if failure is not None and not any(self._masters.values()):
            raise failure
        return [one for nameservers in self._clusters.all() for one in self._masters.get(nameservers, ())]

    async def own_masters(self) -> list[tuple[str, str]]:
        """The same of the proxy's own cluster alone."""
        own = self._clusters.all()[0]
        try:
            await self._learn_masters(own)
        except ConnectionFailed:
            if not self._masters.get(own):
                raise
        return self._masters[own]

    async def _learn_masters(self, nameservers: str) -> None:
        command = RemotingCommand(RequestCode.GET_BROKER_CLUSTER_INFO)
        answer = await self._ask_nameserver(command, nameservers)
        brokers = decode_body(ClusterInfo, answer.body).broker_addr_table.values()
        found = [(one.broker_name, one.broker_addrs[MASTER_ID]) for one in brokers if MASTER_ID in one.broker_addrs]
        self._masters[nameservers] = sorted(found)

    async def _learn(self, topic: str) -> KnownRoute:
        command = RemotingCommand(RequestCode.GET_ROUTE_BY_TOPIC, {"topic": topic, "acceptStandardJsonOnly": "true"})
        kept = self._kept.get(topic)
        try:
            data = decode_body(TopicRouteData, (await self._ask_nameserver(command, self._clusters.of(topic))).body)
            data = keep_masters(data, None if kept is None else kept.known.data)
            kind = await self._type(topic, data, kept)
            known = known_route(topic, data, kind)
        except NameRefused:
            if kept is None or not self._may_return(kept):
                self._kept.pop(topic, None)
                raise
            return kept.known
        except ConnectionFailed:
            if kept is None:
                raise
            return kept.known
        self._make_room()
        self._kept[topic] = _CachedRoute(known, self._clock.monotonic_s() if kept is None else kept.used_s)
        if kept is not None:
            self._note_moved(_left_addresses(kept.known, known))
        return known

    def _note_moved(self, addresses: Iterable[str]) -> None:
        for address in addresses:
            for listener in self.on_moved:
                listener(address)

    async def _type(self, topic: str, data: TopicRouteData, kept: _CachedRoute | None) -> MessageType:
        """What messages the topic takes, which nameservers do not tell: the first broker that answers does."""
        if kept is not None:
            # A topic's type never changes.
            return kept.known.route.message_type
        failure: MillstreamError | None = None
        for _, address in sorted(master_addresses(data).items()):
            command = RemotingCommand(RequestCode.GET_TOPIC_CONFIG, {"topic": topic})
            try:
                return decode_topic((await self._ask_broker(address, command)).body).message_type
            except MillstreamError as error:
                failure = failure or error
        if failure is None:
            return MessageType.NORMAL
        raise failure

    def _may_return(self, kept: _CachedRoute) -> bool:
        """Whether a nameserver that does not know the topic may only have been started a moment ago."""
        now_s = self._clock.monotonic_s()
        if kept.denied_s is None:
            kept.denied_s = now_s
        return now_s - kept.denied_s < DENIAL_GRACE_S

    def _make_room(self) -> None:
        if len(self._kept) >= MAX_ROUTES:
            del self._kept[min(self._kept, key=lambda topic: self._kept[topic].used_s)]


def _routed_topic(topic: str) -> str:
    """The topic whose route leads to the brokers that may have this one."""
    return ROUTES_TOPIC if is_light_queue(topic) else topic
