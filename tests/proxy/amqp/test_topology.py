"""Declarations that several proxies share, over a broker in this process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from amqp_ports import STORE
from millstream.broker.broker import Broker, BrokerOptions
from millstream.model.clock import ManualClock
from millstream.model.state_topics import ROUTES_TOPIC
from millstream.protocol.amqp.topology_methods import ExchangeDeclare, QueueDeclare
from millstream.proxy.amqp.declarations import AmqpQueue, DeclaredBinding
from millstream.proxy.amqp.names import light_name_of_queue, topic_of_exchange, topic_of_queue
from millstream.proxy.amqp.topology import LEASE_LIMIT_S, Topology
from millstream.proxy.amqp.virtual_host import VirtualHost
from millstream.proxy.local import LocalBackend
from millstream.proxy.state_topics import StateTopic
from patience import eventually


@pytest.fixture
async def backend(tmp_path: Path) -> AsyncIterator[LocalBackend]:
    broker = Broker(tmp_path, options=BrokerOptions(store=STORE))
    await broker.start()
    yield LocalBackend(broker)
    await broker.close()


async def open_topology(backend: LocalBackend, proxy: str, clock: ManualClock) -> Topology:
    topology = Topology(backend, ("/",), clock, proxy)
    await topology.start()
    await topology.ready()
    return topology


async def declare(topology: Topology, name: str, owner: str = "", *, exclusive: bool = False) -> bool:
    host = topology.hosts["/"]
    wish = QueueDeclare(queue=name, exclusive=exclusive)
    return await topology.declare(host, lambda: host.declare_queue(wish, name, owner))


async def test_what_one_proxy_declares_all_others_know(backend: LocalBackend) -> None:
    one, two = await open_topology(backend, "a", ManualClock()), await open_topology(backend, "b", ManualClock())
    gone: list[tuple[str, str]] = []
    two.on_queue_gone.append(lambda host, name: gone.append((host, name)))
    assert await declare(one, "q")
    assert not await declare(one, "q")
    host = one.hosts["/"]
    await one.declare(host, lambda: host.declare_exchange(ExchangeDeclare(exchange="e", kind="topic")))
    await one.declare(host, lambda: host.bind(DeclaredBinding("e", "q", "a.#"), ""))
    other = two.hosts["/"]
    await eventually(lambda: other.route("e", "a.b", {}) == {"q"})
    await one.remove(host, lambda: host.delete_queue("q", ""))
    await eventually(lambda: gone == [("/", "q")])
    assert other.route("e", "a.b", {}) == set()
    assert host.queues == {}
    for topology in (one, two):
        await topology.close()


async def test_the_exclusive_queues_of_a_proxy_that_was_killed_are_orphans(backend: LocalBackend) -> None:
    clock = ManualClock()
    dead, alive = await open_topology(backend, "dead", clock), await open_topology(backend, "alive", clock)
    await dead.renew_lease()
    await declare(dead, "theirs", "dead:1", exclusive=True)
    await declare(alive, "ours", "alive:1", exclusive=True)
    host: VirtualHost = alive.hosts["/"]
    await eventually(lambda: len(host.queues) == 2)
    await dead.close()
    assert alive.orphans(host) == []
    clock.advance_ms(int(LEASE_LIMIT_S * 1000) + 1)
    assert [queue.name for queue in alive.orphans(host)] == ["theirs"]
    await alive.close()


async def test_a_queue_whose_consumers_were_all_at_a_killed_proxy_is_an_orphan(backend: LocalBackend) -> None:
    clock = ManualClock()
    dead, alive = await open_topology(backend, "dead", clock), await open_topology(backend, "alive", clock)
    await declare(dead, "q")
    await dead.note_consumers("/", "q", are_there=True)
    await eventually(lambda: alive.is_consumed_elsewhere("/", "q"))
    await dead.close()
    assert alive.orphans(alive.hosts["/"]) == []
    clock.advance_ms(int(LEASE_LIMIT_S * 1000) + 1)
    host = alive.hosts["/"]
    assert [queue.name for queue in alive.orphans(host)] == ["q"]
    await alive.remove(host, lambda: host.delete_queue("q", ""))
    await eventually(lambda: alive.orphans(host) == [])
    await alive.close()


async def test_a_broker_without_routes_gets_those_of_all_queues(backend: LocalBackend) -> None:
    clock = ManualClock()
    one = await open_topology(backend, "a", clock)
    await declare(one, "q")
    await declare(one, "r")
    light_name, other = light_name_of_queue("/", "q"), light_name_of_queue("/", "r")
    routes = StateTopic(backend, ROUTES_TOPIC)
    found: dict[str, bytes] = {}
    routes.listen(lambda key, value, _: found.pop(key, None) if value is None else found.update({key: value}))
    await routes.start()
    await eventually(lambda: len(found) == 4)
    lost = [key for key in found if f"/{light_name}" in key]
    for key in lost:
        await routes.delete(key)
    kept = {key: value for key, value in found.items() if f"/{other}" in key}
    two = await open_topology(backend, "b", clock)
    await two.welcome_brokers()
    await eventually(lambda: len(found) == 4)
    assert set(lost) | set(kept) == set(found)
    for topology in (one, two):
        await topology.close()
    await routes.close()


async def test_a_use_is_told_to_all_proxies(backend: LocalBackend) -> None:
    one, two = await open_topology(backend, "a", ManualClock()), await open_topology(backend, "b", ManualClock())
    await one.note_use("/", "a queue")
    await eventually(lambda: ("/", "a queue") in two.uses_s)
    await asyncio.gather(one.close(), two.close())


def test_names_of_amqp_become_legal_and_stay_apart() -> None:
    assert topic_of_exchange("/", "orders.new") == "orders|2Enew"
    assert topic_of_exchange("team", "orders") == "team%orders"
    assert topic_of_queue("/", AmqpQueue("q")) == "q"
    assert topic_of_queue("/", AmqpQueue("q", owner="c")) == topic_of_queue("/", AmqpQueue("r", auto_delete=True))
    assert light_name_of_queue("/", "q.é") == "amqp-q|2E|C3|A9"
    long = [light_name_of_queue("team", "x" * 200 + end) for end in ("a", "b")]
    assert len(set(long)) == 2
    assert max(map(len, long)) <= 122
