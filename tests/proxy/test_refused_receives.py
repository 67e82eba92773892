"""Messages that a budget refuses when they are about to be handed over: they are not kept until the next attempt, and
that they were received is no attempt."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Coroutine
from types import SimpleNamespace
from typing import Any, cast

import pytest
from test_cancelled_receives import BODIES, Client, Ground, Socket, receive_over_grpc

from millstream.model.errors import ConsumeRefused
from millstream.model.filter import ALL
from millstream.model.operations import PoppedMessage
from millstream.protocol.grpc import messages as m
from millstream.proxy.amqp import queue_reader
from millstream.proxy.amqp.queue_reader import AmqpConsumer, AmqpDelivery, AmqpQueueReader, QueueAccess
from millstream.proxy.backend import BrokerBackend
from millstream.proxy.budget import Answers
from millstream.proxy.http.deliveries import DeliveryResource
from millstream.proxy.http.webhooks.delivery import WebhookDelivery
from millstream.proxy.http.websocket_session import WebSocketSession
from millstream.proxy.mqtt import light_queue_reader
from millstream.proxy.mqtt.light_queue_reader import LightQueueReader, Taken
from millstream.proxy.processor import ReceiveRequest


@pytest.fixture
async def ground() -> Ground:
    made = Ground()
    await made.fill()
    return made


class Refusals:
    """How often something was refused."""

    def __init__(self) -> None:
        self.count = 0

    def refuse(self, *_: object) -> Any:
        self.count += 1
        raise ConsumeRefused("TOO_MANY_REQUESTS", "full")

    async def refuse_later(self, *_: object) -> Any:
        await asyncio.sleep(0)
        self.refuse()


@pytest.fixture
def refusals() -> Refusals:
    return Refusals()


@pytest.fixture
def full(monkeypatch: pytest.MonkeyPatch, refusals: Refusals) -> Refusals:
    """No answer may be made."""
    monkeypatch.setattr(Answers, "begin", refusals.refuse)
    return refusals


async def until_it_rests(refusals: Refusals) -> None:
    for _ in range(100):
        await asyncio.sleep(0)
    assert refusals.count == 1


def kept_messages() -> list[object]:
    return [one for one in gc.get_objects() if isinstance(one, PoppedMessage | AmqpDelivery)]


async def test_a_websocket_keeps_nothing_while_it_waits_for_its_next_attempt(ground: Ground, full: Refusals) -> None:
    wish = ReceiveRequest("c", "g", "orders", "", 60_000, wait_ms=1_000)
    socket = Socket()
    running = asyncio.create_task(
        WebSocketSession(ground.service, Client().request(), cast("Any", socket), wish, 32).run()
    )
    await until_it_rests(full)
    assert not kept_messages()
    assert [one.suspend for one in ground.backend.changes] == [True] * len(BODIES)
    socket.gone.set()
    await running


async def test_a_receive_over_http_that_is_refused_is_no_attempt(ground: Ground, full: Refusals) -> None:
    with pytest.raises(ConsumeRefused):
        await DeliveryResource(ground.service).receive(Client().request(), "g", "orders")
    await until_it_rests(full)
    assert [one.suspend for one in ground.backend.changes] == [True] * len(BODIES)
    assert await ground.visible_soon() == BODIES


async def test_a_receive_over_grpc_that_is_refused_is_no_attempt(ground: Ground, full: Refusals) -> None:
    [refusal] = await receive_over_grpc(ground)
    assert cast("Any", refusal).status.code == m.TOO_MANY_REQUESTS
    await until_it_rests(full)
    assert [one.suspend for one in ground.backend.changes] == [True] * len(BODIES)


async def test_a_webhook_keeps_nothing_while_it_waits_for_its_next_attempt(ground: Ground, refusals: Refusals) -> None:
    wanted = SimpleNamespace(
        group="g", id="1", owner="", rate=0, config=SimpleNamespace(topic="orders"), message_filter=lambda: ALL
    )

    async def end() -> None:
        raise AssertionError

    async def refuse_the_last(_wanted: object, message: Any) -> Any:
        if message.body == BODIES[-1]:
            await refusals.refuse_later()
        return SimpleNamespace(status=200, headers={})

    sink = cast("Any", SimpleNamespace(post=refuse_the_last))
    delivery = WebhookDelivery(cast("Any", wanted), ground.processor, sink, ground.clock, may=lambda: True, end=end)
    running = asyncio.create_task(delivery.run())
    await until_it_rests(refusals)
    assert not kept_messages()
    running.cancel()


async def test_a_light_queue_keeps_nothing_while_it_waits_for_its_next_attempt(
    ground: Ground, refusals: Refusals, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Taker:
        room = 32

        def take(self, popped: PoppedMessage, taken: object, broker: int) -> Taken:
            raise AssertionError

        def note_drained(self) -> None:
            raise AssertionError

    monkeypatch.setattr(light_queue_reader, "is_packed", lambda _message: True)
    monkeypatch.setattr(light_queue_reader, "unpack", refusals.refuse_later)
    backend, clock = cast("BrokerBackend", ground.backend), ground.clock
    reader = LightQueueReader(backend, clock, "g", "orders", ["broker-a"], max_pop=32, taker=Taker(), holding=set())
    reader.wake()
    await until_it_rests(refusals)
    assert not kept_messages()
    assert [one.suspend for one in ground.backend.changes] == [True] * len(BODIES)
    await reader.close()


async def test_a_reader_of_an_amqp_queue_keeps_nothing_while_it_waits_for_its_next_attempt(
    ground: Ground, refusals: Refusals, monkeypatch: pytest.MonkeyPatch
) -> None:
    running: list[asyncio.Task[None]] = []

    def run(work: Coroutine[Any, Any, None]) -> None:
        running.append(asyncio.create_task(work))

    # What pytest keeps of the log knows the refusal.
    monkeypatch.setattr(queue_reader._log, "disabled", True)
    monkeypatch.setattr(queue_reader, "is_packed", lambda _message: True)
    monkeypatch.setattr(queue_reader, "unpack", refusals.refuse_later)
    backend = cast("BrokerBackend", ground.backend)
    access = QueueAccess(backend, ground.clock, "/", "orders", lambda: None)
    access.topic, access.group = "orders", "g"
    queue = cast("Any", SimpleNamespace(has_single_consumer=False, max_priority=0))
    reader = AmqpQueueReader(backend, access, queue, run)
    channel = cast("Any", SimpleNamespace(room_of=lambda _consumer: 32))
    reader.add(AmqpConsumer(channel, "t", False, False, 0, cast("Any", None), b""))
    await until_it_rests(refusals)
    assert not kept_messages()
    assert [one.suspend for one in ground.backend.changes] == [True] * len(BODIES)
    assert reader.stop() == []


async def test_a_reader_of_an_amqp_queue_keeps_nothing_of_what_it_passed_on_while_it_waits_for_more(
    ground: Ground,
) -> None:
    backend = cast("BrokerBackend", ground.backend)
    access = QueueAccess(backend, ground.clock, "/", "orders", lambda: None)
    access.topic, access.group = "orders", "g"
    got: list[bytes] = []
    channel = SimpleNamespace(
        room_of=lambda _consumer: 32, deliver=lambda _consumer, delivery: got.append(delivery.message.body)
    )
    queue = cast("Any", SimpleNamespace(has_single_consumer=False, max_priority=0))
    reader = AmqpQueueReader(backend, access, queue, cast("Any", None))
    reader.add(AmqpConsumer(cast("Any", channel), "t", False, False, 0, cast("Any", None), b""))
    for _ in range(50):
        await asyncio.sleep(0)
    assert got == BODIES
    assert not kept_messages()
    assert reader.stop() == []
