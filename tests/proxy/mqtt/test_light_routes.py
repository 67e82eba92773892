"""Routes that several sessions write at the same time are stored together, and a refused one is refused alone."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import cast

import pytest

from millstream.model.clock import ManualClock
from millstream.model.errors import ConsumeRefused, NameRefused
from millstream.model.message import OutgoingMessage
from millstream.model.operations import SendReceipt
from millstream.model.properties import KEYS
from millstream.model.routing.routes import LightQueueConfig
from millstream.proxy.backend import BrokerBackend
from millstream.proxy.mqtt.light_routes import BROKERS_LIFE_S, SESSION_GROUP, LightRoutes

QUEUE = LightQueueConfig("mqtt", SESSION_GROUP)


class Brokers:
    """Two of them, of which the second refuses queues whose keys have `refused`."""

    def __init__(self) -> None:
        self.stored: dict[str, list[list[str]]] = {"a": [], "b": []}
        self.may_store = asyncio.Event()
        self.may_store.set()
        self.names = ["a", "b"]
        self.asked = 0

    async def brokers(self) -> list[str]:
        self.asked += 1
        return self.names

    async def store_state(self, broker_name: str, messages: Sequence[OutgoingMessage]) -> list[SendReceipt]:
        await self.may_store.wait()
        if broker_name not in self.names:
            raise NameRefused("QUEUE_NOT_FOUND", "There is no such broker.")
        keys = [message.properties[KEYS] for message in messages]
        if broker_name == "b" and any("refused" in key for key in keys):
            raise ConsumeRefused("LIGHT_QUEUE_QUOTA_EXCEEDED", "There are too many.")
        self.stored[broker_name].append(keys)
        return [SendReceipt(key, "", 0, number, 0, 0, broker_name) for number, key in enumerate(keys)]


@pytest.fixture
def brokers() -> Brokers:
    return Brokers()


async def test_routes_that_come_while_others_are_stored_are_stored_together_and_in_order(brokers: Brokers) -> None:
    routes = LightRoutes(cast("BrokerBackend", brokers))
    brokers.may_store.clear()
    first = asyncio.create_task(routes.declare("q0", QUEUE))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    rest = [asyncio.create_task(routes.declare(f"q{number}", QUEUE, [("t", "a/b")])) for number in range(1, 4)]
    rest.append(asyncio.create_task(routes.remove("q1")))
    await asyncio.sleep(0)
    brokers.may_store.set()
    await asyncio.gather(first, *rest)
    together = brokers.stored["a"][1]
    assert [len(keys) for keys in brokers.stored["a"]] == [1, 7]
    assert together[0] == together[-1] != together[2]
    assert brokers.stored["b"] == brokers.stored["a"]


async def test_a_queue_too_many_fails_nobody_elses(brokers: Brokers) -> None:
    routes = LightRoutes(cast("BrokerBackend", brokers))
    declared = await asyncio.gather(
        *(routes.declare(name, QUEUE) for name in ("q0", "refused", "q2")), return_exceptions=True
    )
    assert [type(one) for one in declared] == [type(None), ConsumeRefused, type(None)]
    assert [keys for keys in brokers.stored["b"] if "refused" in str(keys)] == []
    assert len(brokers.stored["b"]) == 2


async def test_an_error_that_nobody_foresaw_ends_no_later_write(brokers: Brokers) -> None:
    routes = LightRoutes(cast("BrokerBackend", brokers))

    async def fail(_broker_name: str, _messages: Sequence[OutgoingMessage]) -> list[SendReceipt]:
        raise ZeroDivisionError

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(brokers, "store_state", fail)
        with pytest.raises(ZeroDivisionError):
            await routes.declare("q0", QUEUE)
    await routes.declare("q1", QUEUE)
    assert len(brokers.stored["a"]) == 1


async def test_clients_that_come_within_a_second_ask_once_which_brokers_there_are(brokers: Brokers) -> None:
    clock = ManualClock()
    routes = LightRoutes(cast("BrokerBackend", brokers), clock)
    for number in range(20):
        assert await routes.brokers() == ["a", "b"]
        await routes.declare(f"q{number}", QUEUE)
    assert brokers.asked == 1
    brokers.names = ["a", "b", "c"]
    brokers.stored["c"] = []
    clock.advance_ms(int(BROKERS_LIFE_S * 1000))
    await routes.declare("q", QUEUE)
    assert (brokers.asked, len(brokers.stored["c"])) == (2, 1)


async def test_a_broker_that_is_gone_fails_one_write_and_no_later_one(brokers: Brokers) -> None:
    routes = LightRoutes(cast("BrokerBackend", brokers), ManualClock())
    await routes.declare("q0", QUEUE)
    brokers.names = ["a"]
    with pytest.raises(NameRefused):
        await routes.declare("q1", QUEUE)
    await routes.declare("q1", QUEUE)
    assert brokers.asked == 2
