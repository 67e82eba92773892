"""The declarations of all virtual hosts, kept in a state topic and applied to the brokers' routing tables."""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final
from urllib.parse import quote, unquote

from millstream.model.clock import Clock
from millstream.model.errors import NameRefused, TimedOut
from millstream.model.state_topics import AMQP_TOPIC, ROUTES_TOPIC
from millstream.model.topic import MessageType, TopicConfig
from millstream.proxy.amqp.declarations import (
    AmqpQueue,
    Declared,
    DeclaredBinding,
    Exchange,
    decode_declared,
    encode_declared,
    key_of,
)
from millstream.proxy.amqp.names import light_name_of_queue, topic_of_exchange, topic_of_queue
from millstream.proxy.amqp.route_records import binding_records, queue_record
from millstream.proxy.amqp.virtual_host import VirtualHost
from millstream.proxy.backend import BrokerBackend
from millstream.proxy.state_topics import StateTopic

__all__ = ["LEASE_INTERVAL_S", "LEASE_LIMIT_S", "WELCOME_LIMIT_S", "QueueGone", "Topology"]

_log = logging.getLogger(__name__)

QueueGone = Callable[[str, str], None]
"""Called with a virtual host and the name of a queue that was deleted there."""

LEASE_INTERVAL_S: Final = 5.0
"""How often a proxy says that it is there: its clients' exclusive queues are theirs for that long."""

LEASE_LIMIT_S: Final = 20.0
"""Seconds without such a word after which the exclusive queues of a proxy's clients go: it was killed."""

WELCOME_LIMIT_S: Final = 10.0
"""Seconds in which a proxy must have read the routes of a broker that is new to it."""

_TOPIC_QUEUES: Final = 4
_PROXY: Final = "proxy"
_USE: Final = "use"
_CONSUMED: Final = "consumed"


class Topology:
    """One for a proxy, from `start` to `close`; all from one event loop. `proxy` is a name that no other proxy has.

    Beside what is declared, the state topic holds that proxies are there (`/proxy/NAME`), that a queue which goes when
    it is unused was used (`HOST/use/QUEUE`), and where a queue that deletes itself has consumers
    (`HOST/consumed/QUEUE@PROXY`).
    """

    def __init__(self, backend: BrokerBackend, hosts: Iterable[str], clock: Clock, proxy: str) -> None:
        self.uses_s: dict[tuple[str, str], float] = {}
        """When a queue was last used at any proxy, as far as they have said, by the monotonic clock."""
        self._consumed: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
        self._proxy = proxy
        self._heard_s: dict[str, float] = {}
        self.hosts = {name: VirtualHost(name) for name in hosts}
        self.on_queue_gone: list[QueueGone] = []
        self._backend = backend
        self._clock = clock
        self._state = StateTopic(backend, AMQP_TOPIC, clock=clock)
        self._state.listen(self._apply, self._forget)
        self._routes: dict[str, StateTopic] = {}
        # Changes of one proxy are carried out one after the other, so that what one of them has looked at still holds.
        self._changing = asyncio.Lock()

    async def start(self) -> None:
        """Begin to follow what is declared; see `ready`."""
        await self._state.start()

    async def ready(self) -> None:
        """Return once all is known that was declared before the start."""
        await self._state.ready()

    async def welcome_brokers(self) -> None:
        """Give brokers that have come the routes of all queues; now and then, and at the start."""
        await self.ready()
        async with self._changing:
            await self._route_topics()

    async def renew_lease(self) -> None:
        """Say that this proxy is there; every `LEASE_INTERVAL_S`."""
        await self._state.put(f"/{_PROXY}/{self._proxy}", b"{}")

    async def note_use(self, virtual_host: str, name: str) -> None:
        """Tell all proxies that a queue was used."""
        await self._state.put(f"{quote(virtual_host, safe='')}/{_USE}/{quote(name, safe='')}", b"{}")

    async def note_consumers(self, virtual_host: str, name: str, *, are_there: bool) -> None:
        """Tell all proxies that this one has consumers of a queue that deletes itself, or none any more."""
        key = f"{quote(virtual_host, safe='')}/{_CONSUMED}/{quote(name, safe='')}@{self._proxy}"
        offset = await (self._state.put(key, b"{}") if are_there else self._state.delete(key))
        await self._state.reach(offset)

    def is_consumed_elsewhere(self, virtual_host: str, name: str) -> bool:
        """Whether a queue that deletes itself has consumers at another proxy that is there."""
        proxies = self._consumed.get((virtual_host, name), ())
        return any(proxy != self._proxy and not self._is_dead(proxy) for proxy in proxies)

    def orphans(self, host: VirtualHost) -> list[AmqpQueue]:
        """The exclusive queues of proxies that were killed, and those that delete themselves and had all their
        consumers there."""
        found: list[AmqpQueue] = []
        for owner, queues in host.exclusive.items():
            if self._is_dead(owner.partition(":")[0]):
                found += queues.values()
        for (host_name, name), proxies in self._consumed.items():
            queue = host.queues.get(name) if host_name == host.name else None
            if queue is not None and proxies and all(map(self._is_dead, proxies)):
                found.append(queue)
        return found

    def _is_dead(self, proxy: str) -> bool:
        """Whether another proxy was not heard of for `LEASE_LIMIT_S`."""
        now_s = self._clock.monotonic_s()
        return proxy != self._proxy and now_s - self._heard_s.setdefault(proxy, now_s) > LEASE_LIMIT_S

    async def close(self) -> None:
        """Follow no more."""
        await self._state.close()
        for routes in self._routes.values():
            await routes.close()

    async def declare(self, host: VirtualHost, find: Callable[[], Declared | None]) -> bool:
        """Store what `find` gives, which looks at the host as it is then; whether there was anything.

        When this returns, messages are routed by it. Raises what `find` and storing raise.
        """
        async with self._changing:
            declared = find()
            if declared is None:
                return False
            # Before a topic is made at a broker that does not know who wants its messages.
            await self._route_topics()
            await self._make_topics(host, declared)
            if isinstance(declared, AmqpQueue):
                await self._put_routes([queue_record(host, declared), *binding_records(host, declared).items()])
            before = _records_behind(host, [declared] if isinstance(declared, DeclaredBinding) else [])
            offset = await self._state.put(key_of(host.name, declared), encode_declared(declared))
            await self._state.reach(offset)
            await self._follow(host, before)
            return True

    async def remove(self, host: VirtualHost, find: Callable[[], Sequence[Declared]]) -> list[Declared]:
        """Remove what `find` gives, with the exchanges that delete themselves then; what went."""
        async with self._changing:
            gone = list(find())
            bindings = [one for one in gone if isinstance(one, DeclaredBinding)]
            for exchange in host.unused_exchanges(bindings):
                if exchange not in gone:
                    more: list[Declared] = [*host.bindings_to(exchange.name, to_exchange=True), exchange]
                    gone += [one for one in more if one not in gone]
            if not gone:
                return gone
            before = _records_behind(host, gone)
            offsets = await asyncio.gather(*[self._state.delete(key_of(host.name, one)) for one in gone])
            await self._state.reach(max(offsets))
            await self._follow(host, before)
            queues = [one for one in gone if isinstance(one, AmqpQueue)]
            for queue in queues:
                place, name = quote(host.name, safe=""), quote(queue.name, safe="")
                if self.uses_s.pop((host.name, queue.name), None) is not None:
                    await self._state.delete(f"{place}/{_USE}/{name}")
                for proxy in list(self._consumed.get((host.name, queue.name), ())):
                    await self._state.delete(f"{place}/{_CONSUMED}/{name}@{proxy}")
            await self._delete_routes([f"queue/{light_name_of_queue(host.name, one.name)}" for one in queues])
            return gone

    async def _follow(self, host: VirtualHost, before: Mapping[str, Mapping[str, bytes]]) -> None:
        """Have the brokers' routes of these queues be as the host is now."""
        puts: list[tuple[str, bytes]] = []
        deletes: list[str] = []
        for name, had in before.items():
            queue = host.queues.get(name)
            now = binding_records(host, queue) if queue is not None else {}
            puts += [(key, value) for key, value in now.items() if key not in had]
            deletes += [key for key in had if key not in now]
        await self._put_routes(puts)
        await self._delete_routes(deletes)

    async def _make_topics(self, host: VirtualHost, declared: Declared) -> None:
        if isinstance(declared, Exchange):
            topic = topic_of_exchange(host.name, declared.name)
        elif isinstance(declared, AmqpQueue):
            topic = topic_of_queue(host.name, declared)
        else:
            # The standard exchanges are there without having been declared.
            topic = topic_of_exchange(host.name, declared.source)
        await self.make_topic(topic)

    async def make_topic(self, topic: str) -> None:
        """Have the topic at all brokers; one that is there with other settings will do."""
        try:
            config = TopicConfig(topic, MessageType.MIXED, _TOPIC_QUEUES, _TOPIC_QUEUES)
            await self._backend.declare_topic(config)
        except NameRefused as error:
            if error.name != "TOPIC_EXISTS":
                raise

    async def _put_routes(self, records: Sequence[tuple[str, bytes]]) -> None:
        # Together: what waits at a time is one write, in its order.
        topics = await self._route_topics()
        await asyncio.gather(*[routes.put(key, value) for routes in topics for key, value in records])

    async def _delete_routes(self, keys: Sequence[str]) -> None:
        topics = await self._route_topics()
        await asyncio.gather(*[routes.delete(key) for routes in topics for key in keys])

    async def _route_topics(self) -> list[StateTopic]:
        """One for each broker that is there now, each with the routes of all queues."""
        found = []
        for name in await self._backend.brokers():
            if name not in self._routes:
                await self._welcome(name)
            found.append(self._routes[name])
        return found

    async def _welcome(self, broker: str) -> None:
        """Give a broker that is new to this proxy the routes that it lacks: it may have come after the queues.

        Routes that are not known here stay: another proxy may be about to declare their queue.
        """
        known: set[str] = set()

        def note(key: str, value: bytes | None, _offset: int) -> None:
            (known.discard if value is None else known.add)(key)

        reader = StateTopic(self._backend, ROUTES_TOPIC, broker_name=broker, clock=self._clock)
        reader.listen(note, known.clear)
        await reader.start()
        try:
            async with asyncio.timeout(WELCOME_LIMIT_S):
                await reader.ready()
        except TimeoutError:
            raise TimedOut(f"The routes of the broker {broker} could not be read in {WELCOME_LIMIT_S:g} s.") from None
        finally:
            await reader.close()
        routes = StateTopic(self._backend, ROUTES_TOPIC, broker_name=broker, clock=self._clock)
        for host in self.hosts.values():
            for queue in list(host.queues.values()):
                records = [queue_record(host, queue), *binding_records(host, queue).items()]
                await asyncio.gather(*[routes.put(key, value) for key, value in records if key not in known])
        self._routes[broker] = routes

    def _apply(self, key: str, value: bytes | None, _offset: int) -> None:
        host_part, kind, name_part = key.split("/")
        if kind == _PROXY:
            self._heard_s[name_part] = self._clock.monotonic_s()
            return
        if kind == _CONSUMED:
            name, _, proxy = name_part.partition("@")
            proxies = self._consumed[unquote(host_part), unquote(name)]
            (proxies.discard if value is None else proxies.add)(proxy)
            if not proxies:
                del self._consumed[unquote(host_part), unquote(name)]
            return
        if kind == _USE:
            if value is not None:
                self.uses_s[unquote(host_part), unquote(name_part)] = self._clock.monotonic_s()
            return
        if value is not None:
            host_name, declared = decode_declared(key, value)
            host = self.hosts.get(host_name)
            if host is not None:
                host.put(declared)
            return
        host_name, name = unquote(host_part), unquote(name_part)
        host = self.hosts.get(host_name)
        if host is None:
            return
        host.remove(kind, name)
        if kind == "queue":
            for listener in self.on_queue_gone:
                listener(host_name, name)

    def _forget(self) -> None:
        self._consumed.clear()
        for name in self.hosts:
            self.hosts[name].clear()


def _records_behind(host: VirtualHost, changed: Iterable[Declared]) -> dict[str, dict[str, bytes]]:
    """The routes, as they are, of the queues that a change of bindings or queues concerns."""
    names: dict[str, None] = {}
    for one in changed:
        if isinstance(one, DeclaredBinding):
            names |= dict.fromkeys(_queues_behind(host, one))
        elif isinstance(one, AmqpQueue):
            names[one.name] = None
    return {name: binding_records(host, host.queues[name]) for name in names}


def _queues_behind(host: VirtualHost, binding: DeclaredBinding) -> set[str]:
    """The queues that get messages by a binding, over any number of exchanges."""
    if not binding.to_exchange:
        return {binding.destination} & host.queues.keys()
    found: set[str] = set()
    waiting, seen = [binding.destination], {binding.destination}
    while waiting:
        for one in host.bindings_from(waiting.pop()):
            if not one.to_exchange:
                found.add(one.destination)
            elif one.destination not in seen:
                seen.add(one.destination)
                waiting.append(one.destination)
    return found & host.queues.keys()
