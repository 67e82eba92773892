"""Receives that end in any turn, by every protocol: what nobody got is not hidden for its invisible time.

Each test ends the receive after so many turns of the event loop, once for each of the turns that a receive has.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from memory_backend import MemoryBackend

from millstream.model.clock import ManualClock
from millstream.model.filter import ALL
from millstream.model.handles import ReceiptHandle
from millstream.model.light_queue import light_queue
from millstream.model.message import Address, OutgoingMessage
from millstream.model.operations import AckRequest, ChangeInvisibleRequest, PoppedMessage, PopRequest
from millstream.model.properties import UNIQUE_KEY
from millstream.model.topic import TopicConfig
from millstream.protocol.grpc import messages as m
from millstream.proxy.amqp.queue_reader import AmqpConsumer, AmqpQueueReader, QueueAccess
from millstream.proxy.backend import BrokerBackend
from millstream.proxy.grpc.adapter import MessagingAdapter
from millstream.proxy.grpc.route import Advertised
from millstream.proxy.http.deliveries import DeliveryResource
from millstream.proxy.http.gate import HttpGate
from millstream.proxy.http.request import HttpRequest, QueryParameters
from millstream.proxy.http.service import HttpService
from millstream.proxy.http.webhooks.delivery import WebhookDelivery
from millstream.proxy.http.websocket_session import WebSocketSession
from millstream.proxy.mqtt.light_queue_reader import LightQueueReader, Taken
from millstream.proxy.processor import Processor, ReceiveRequest
from millstream.proxy.renewal import RELEASE_MS
from millstream.transport.connection_memory import ConnectionMemory

TURNS = range(24)
"""A receive has fewer."""

BODIES = [b"a", b"b", b"c"]


class RemoteLike(MemoryBackend):
    """Each call takes some turns, as one of a broker over a connection."""

    async def pop(self, broker_name: str, request: PopRequest) -> list[PoppedMessage]:
        await asyncio.sleep(0)
        return self._take(replace(request, topic=request.topic.removeprefix(light_queue(""))))

    async def change_invisible(self, request: ChangeInvisibleRequest) -> ReceiptHandle:
        await asyncio.sleep(0)
        return await super().change_invisible(request)

    async def ack(self, request: AckRequest) -> None:
        await asyncio.sleep(0)
        await super().ack(request)

    async def brokers(self) -> list[str]:
        return ["broker-a"]


@dataclass
class Ground:
    """A proxy over messages that wait, and what became of them."""

    clock: ManualClock = field(default_factory=ManualClock)

    def __post_init__(self) -> None:
        self.backend = RemoteLike(self.clock, {"orders": TopicConfig("orders")})
        self.processor = Processor(cast("BrokerBackend", self.backend), clock=self.clock)
        self.service = HttpService(self.processor, HttpGate(None), ConnectionMemory(), self.clock)

    async def fill(self) -> None:
        for body in BODIES:
            await self.backend.send([OutgoingMessage("orders", body, {UNIQUE_KEY: body.decode()})])

    async def visible_soon(self) -> list[bytes]:
        """What a receiver gets a second later."""
        for _ in range(50):
            await asyncio.sleep(0)
        assert self.service.unwritten.used_bytes == 0
        self.clock.advance_ms(RELEASE_MS)
        wish = PopRequest("g", "orders", 60_000, max_messages=32)
        return [one.message.body for one in self.backend._take(wish)]


@pytest.fixture
async def ground() -> Ground:
    made = Ground()
    await made.fill()
    return made


async def cancelled_after(turns: int, running: Coroutine[Any, Any, None]) -> None:
    task = asyncio.create_task(running)
    for _ in range(turns):
        await asyncio.sleep(0)
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


class Client:
    """The client of one HTTP request: what it got, and when it goes."""

    def __init__(self) -> None:
        self.gone = asyncio.Event()
        self.got = b""
        self._has_asked = False

    def request(self) -> HttpRequest:
        query = QueryParameters({"max": "32", "wait": "20s"})
        return HttpRequest("POST", {}, query, Address("127.0.0.1", 1), self.receive, self.send, is_read=True)

    async def receive(self) -> Mapping[str, Any]:
        if not self._has_asked:
            self._has_asked = True
            return {"type": "http.request", "body": b"", "more_body": False}
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Mapping[str, Any]) -> None:
        await asyncio.sleep(0)
        if not self.gone.is_set():
            self.got += message.get("body", b"")


@pytest.mark.parametrize("turns", TURNS)
async def test_an_http_client_that_goes_in_any_turn_has_its_messages_or_others_get_them(
    ground: Ground, turns: int
) -> None:
    client = Client()
    receiving = asyncio.create_task(DeliveryResource(ground.service).receive(client.request(), "g", "orders"))
    for _ in range(turns):
        await asyncio.sleep(0)
    client.gone.set()
    await receiving
    assert await ground.visible_soon() == BODIES or client.got.count(b'"handle"') == len(BODIES)


@pytest.mark.parametrize("turns", TURNS)
async def test_an_http_receive_that_is_cancelled_in_any_turn_hides_nothing(ground: Ground, turns: int) -> None:
    client = Client()
    await cancelled_after(turns, DeliveryResource(ground.service).receive(client.request(), "g", "orders"))
    assert await ground.visible_soon() == BODIES or client.got.count(b'"handle"') == len(BODIES)


async def receive_over_grpc(ground: Ground) -> Any:
    """The messages of the answer, one after the other."""
    adapter = MessagingAdapter(ground.processor, Advertised(Address("192.0.2.1", 8081)), clock=ground.clock)
    metadata = {"x-mq-client-id": "c", "x-mq-language": "PYTHON", "rpc-remote-address": "192.0.2.7:1"}
    wish = m.ReceiveMessageRequest(
        group=m.Resource(name="g"),
        message_queue=m.MessageQueue(topic=m.Resource(name="orders"), broker=m.Broker(name="broker-a")),
        batch_size=32,
        filter_expression=m.FilterExpression(type=m.TAG, expression="*"),
    )
    wish.invisible_duration.seconds = 60
    return await adapter.streaming("ReceiveMessage", metadata, wish, 30.0)


@pytest.mark.parametrize("turns", TURNS)
async def test_a_grpc_receive_that_is_cancelled_in_any_turn_hides_nothing(ground: Ground, turns: int) -> None:
    ended = []

    async def stream() -> None:
        frames = await receive_over_grpc(ground)
        with closing(frames):
            for _ in frames:
                await asyncio.sleep(0)
        ended.append(True)

    await cancelled_after(turns, stream())
    assert ended or await ground.visible_soon() == BODIES


class Socket:
    """The WebSocket of a client that reads all, and goes when it is told to."""

    def __init__(self) -> None:
        self.gone = asyncio.Event()
        self.is_open = True

    async def receive(self) -> str | None:
        await self.gone.wait()
        self.is_open = False
        return None

    async def send(self, data: bytes) -> None:
        await asyncio.sleep(0)
        if not self.is_open:
            raise ConnectionAbortedError

    def close(self, *_: object) -> None:
        self.is_open = False


@pytest.mark.parametrize("turns", TURNS)
async def test_what_the_client_of_a_websocket_has_not_settled_goes_back_whenever_it_goes(
    ground: Ground, turns: int
) -> None:
    socket = Socket()
    wish = ReceiveRequest("c", "g", "orders", "", 60_000, wait_ms=1_000)
    session = WebSocketSession(ground.service, Client().request(), cast("Any", socket), wish, 32)
    running = asyncio.create_task(session.run())
    for _ in range(turns):
        await asyncio.sleep(0)
    socket.gone.set()
    await running
    assert await ground.visible_soon() == BODIES


@pytest.mark.parametrize("room", [0, 1, 32])
@pytest.mark.parametrize("turns", TURNS)
async def test_what_the_client_of_a_light_queue_has_not_acknowledged_goes_back_whenever_it_goes(
    ground: Ground, turns: int, room: int
) -> None:
    took: list[object] = []

    class Taker:
        room = 32

        def take(self, popped: PoppedMessage, taken: object, broker: int) -> Taken:
            if len(took) >= room:
                return Taken.REFUSED
            took.append(taken)
            return Taken.WAITS

        def note_drained(self) -> None:
            pass

    backend, clock = cast("BrokerBackend", ground.backend), ground.clock
    reader = LightQueueReader(backend, clock, "g", "orders", ["broker-a"], max_pop=32, taker=Taker(), holding=set())
    reader.wake()
    for _ in range(turns):
        await asyncio.sleep(0)
    await reader.close()
    assert await ground.visible_soon() == BODIES


class Channel:
    """An AMQP channel whose consumer has room for all until it gets its first message, and for `most` then."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.got: list[Any] = []

    def room_of(self, _consumer: AmqpConsumer) -> int:
        return self.most - len(self.got) if self.got else len(BODIES)

    def deliver(self, _consumer: AmqpConsumer, delivery: Any) -> None:
        self.got.append(delivery)


@pytest.mark.parametrize("room", [1, 2, 32])
@pytest.mark.parametrize("turns", TURNS)
async def test_what_a_reader_of_an_amqp_queue_took_and_no_consumer_got_goes_back_whenever_it_stops(
    ground: Ground, turns: int, room: int
) -> None:
    running: list[asyncio.Task[None]] = []

    def run(work: Coroutine[Any, Any, None]) -> None:
        running.append(asyncio.create_task(work))

    access = QueueAccess(cast("BrokerBackend", ground.backend), ground.clock, "/", "orders", _no_queue())
    access.topic, access.group = "orders", "g"
    queue = cast("Any", type("Queue", (), {"has_single_consumer": False, "max_priority": 0})())
    reader = AmqpQueueReader(cast("BrokerBackend", ground.backend), access, queue, run)
    channel = Channel(room)
    consumer = AmqpConsumer(cast("Any", channel), "t", False, False, 0, cast("Any", None), b"")
    reader.add(consumer)
    for _ in range(turns):
        await asyncio.sleep(0)
    held = reader.stop()
    assert held == []
    for _ in range(20):
        await asyncio.sleep(0)
    got = [one.message.body for one in channel.got]
    assert got + await ground.visible_soon() == BODIES


def _no_queue() -> Callable[[], None]:
    return lambda: None


class TakingSink:
    """Takes every event."""

    async def post(self, _wanted: object, _message: object) -> Any:
        await asyncio.sleep(0)
        return SimpleNamespace(status=200, headers={})


@pytest.mark.parametrize("turns", TURNS)
async def test_a_webhook_that_stops_in_any_turn_has_settled_its_events_or_given_them_back(
    ground: Ground, turns: int
) -> None:
    wanted = SimpleNamespace(
        group="g", id="1", owner="", rate=0, config=SimpleNamespace(topic="orders"), message_filter=lambda: ALL
    )

    async def end() -> None:
        raise AssertionError

    sink, clock = cast("Any", TakingSink()), ground.clock
    delivery = WebhookDelivery(cast("Any", wanted), ground.processor, sink, clock, may=lambda: True, end=end)
    await cancelled_after(turns, delivery.run())
    rest = await ground.visible_soon()
    settled = [BODIES[offset] for (_, offset), one in ground.backend.progress.items() if one.acked]
    assert settled + rest == BODIES
