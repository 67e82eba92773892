"""State topics and declared topics of proxies that have several brokers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from contract_ground import Site, running_site

from millstream.model.clock import ManualClock
from millstream.model.state_topics import MQTT_SESSIONS_TOPIC, ROUTES_TOPIC
from millstream.model.topic import TopicConfig
from millstream.proxy.remote.backend import RemoteBackend
from millstream.proxy.state_topics import StateTopic

WAIT_S = 60.0
ROUTE = b'{"kind": "amqp", "group": "q"}'


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    async with running_site(tmp_path, ManualClock(), 2) as opened:
        yield opened


@pytest.fixture
async def proxies(site: Site) -> AsyncIterator[list[RemoteBackend]]:
    async with AsyncExitStack() as opened:
        made = []
        for _ in range(2):
            backend = RemoteBackend(site.nameserver_address, clock=site.clock)
            await backend.start()
            opened.push_async_callback(backend.close)
            made.append(backend)
        yield made


async def test_all_proxies_keep_a_state_topic_at_one_broker(site: Site, proxies: list[RemoteBackend]) -> None:
    states = [StateTopic(backend, MQTT_SESSIONS_TOPIC, clock=site.clock) for backend in proxies]
    seen: list[list[tuple[str, bytes | None]]] = [[], []]
    for state, records in zip(states, seen, strict=True):
        state.listen(lambda key, value, _offset, records=records: records.append((key, value)))
        await state.start()
    try:
        async with asyncio.timeout(WAIT_S):
            offsets = await asyncio.gather(*(state.put("client", b"%d" % n) for n, state in enumerate(states)))
            for state in states:
                await state.reach(max(offsets))
    finally:
        for state in states:
            await state.close()
    assert sorted(offsets) == [0, 1]
    assert seen[0] == seen[1]
    assert [MQTT_SESSIONS_TOPIC in broker.topics.own() for broker in site.brokers] == [True, False]


async def test_a_state_topic_that_each_broker_has_is_found_at_a_broker_that_gets_it_later(
    site: Site, proxies: list[RemoteBackend]
) -> None:
    states = [
        StateTopic(proxies[0], ROUTES_TOPIC, broker_name=broker.name, clock=site.clock) for broker in site.brokers
    ]
    found: list[list[str]] = [[], []]
    try:
        async with asyncio.timeout(WAIT_S):
            for state, keys in zip(states, found, strict=True):
                state.listen(lambda key, _value, _offset, keys=keys: keys.append(key))
                await state.start()
                await state.ready()
                await state.reach(await state.put(f"queue/{len(keys)}", ROUTE))
    finally:
        for state in states:
            await state.close()
    assert found == [["queue/0"], ["queue/0"]]
    assert all(ROUTES_TOPIC in broker.topics.own() for broker in site.brokers)


async def test_a_topic_is_declared_and_removed_at_all_brokers(site: Site, proxies: list[RemoteBackend]) -> None:
    one, other = proxies
    assert await one.brokers() == ["broker-a", "broker-b"]
    await one.declare_topic(TopicConfig("shop", read_queues=1, write_queues=1))
    assert [queue.broker_name for queue in (await other.route("shop")).queues] == ["broker-a", "broker-b"]
    await other.remove_topic("shop")
    assert all(broker.topics.find("shop") is None for broker in site.brokers)
