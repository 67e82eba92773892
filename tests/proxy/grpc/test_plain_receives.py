"""Ordinary receives take a short way; what it answers and does is what the general way does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from dialled import CLIENT_ID, Dialled
from service_calls import METADATA, message, receive_request

from millstream.broker.broker import Broker
from millstream.model.clock import ManualClock
from millstream.model.errors import ConsumeRefused
from millstream.model.group import FirstPosition, GroupConfig
from millstream.model.message import Address, OutgoingMessage
from millstream.model.topic import TopicConfig
from millstream.protocol.grpc import messages as m
from millstream.protocol.grpc.framing import PREFIX
from millstream.proxy.grpc.adapter import MessagingAdapter
from millstream.proxy.grpc.plain_receives import UNUSUAL_PAUSE, PlainReceives
from millstream.proxy.grpc.route import Advertised
from millstream.proxy.grpc.server import GrpcServer
from millstream.proxy.local import LocalBackend
from millstream.proxy.processor import Processor
from patience import within_patience

USUAL = {"UNIQ_KEY": "0123456789ABCDEF0123456789ABCDEF", "PGROUP": "orders", "BORN_TIMESTAMP": "1790000000000"}


@dataclass
class Call:
    """What the short way looks at of a call."""

    request: bytes
    metadata: dict[str, str]
    deadline_s: float | None = 10.0
    is_stuffed: bool = False
    written: bytes = b""

    def answer_frames(self, data: bytes) -> None:
        self.written = data


class Receiving:
    """One broker with a clock of its own, and both ways to receive from it."""

    def __init__(self, broker: Broker, processor: Processor, clock: ManualClock) -> None:
        self.broker, self.processor = broker, processor
        self.adapter = MessagingAdapter(processor, Advertised(Address("192.0.2.1", 8081)), clock=clock)
        self.receives = PlainReceives(self.adapter, processor, broker.delivery, clock)

    async def send(self, *bodies: bytes, topic: str = "orders", queue_id: int = 0, **held: str) -> None:
        sent = [OutgoingMessage(topic, body, USUAL | held, queue_id=queue_id) for body in bodies]
        await self.broker.delivery.send(sent)

    def short(self, request: Any, **of_call: Any) -> bytes | None:
        call: Any = Call(request.SerializeToString(), dict(METADATA), **of_call)
        return call.written if self.receives.answer(call) else None

    async def general(self, request: Any) -> bytes:
        """The frames of the general way; nothing of it waits."""
        frames = await self.adapter.streaming("ReceiveMessage", dict(METADATA), request, 10.0)
        written = [one if isinstance(one, bytes) else one.SerializeToString() for one in frames]
        return b"".join(PREFIX.pack(0, len(one)) + one for one in written)

    async def begin(self, *groups: str, topic: str = "orders") -> None:
        """Let groups have begun to read all queues."""
        for group in groups:
            await self.general(receive_request(topic, group))


@pytest.fixture
async def receiving(tmp_path: Path, clock: ManualClock) -> AsyncIterator[Receiving]:
    broker = Broker(tmp_path, clock=clock)
    await broker.start()
    broker.topics.create(TopicConfig("orders", read_queues=2, write_queues=2))
    for name in ("g", "h"):
        broker.groups.create(GroupConfig(name, first_position=FirstPosition.FIRST))
    processor = Processor(LocalBackend(broker), clock=clock)
    await processor.start()
    yield Receiving(broker, processor, clock)
    await processor.close()
    await broker.close()


def bodies(written: bytes | None) -> list[bytes]:
    assert written is not None
    frames, at = [], 0
    while at < len(written):
        size = int.from_bytes(written[at + 1 : at + 5], "big")
        frames.append(m.ReceiveMessageResponse.FromString(written[at + 5 : at + 5 + size]))
        at += 5 + size
    assert [frame.WhichOneof("content") for frame in frames[:1] + frames[-1:]] == ["status", "delivery_timestamp"]
    return [frame.message.body for frame in frames[1:-1]]


async def test_both_ways_answer_the_same_and_leave_the_same(receiving: Receiving) -> None:
    await receiving.begin("g", "h")
    await receiving.send(*[b"%d" % number for number in range(40)], TAGS="t", KEYS="a b", own="v")
    await receiving.send(b"one", b"other", queue_id=1)
    lengths = []
    for count in (1, 7, 32, 32):
        written = receiving.short(receive_request(group="g", batch_size=count))
        assert written == await receiving.general(receive_request(group="h", batch_size=count))
        lengths.append(len(bodies(written)))
    assert lengths == [1, 7, 32, 2]
    delivery = receiving.broker.delivery
    for queue_id, count in ((0, 40), (1, 2)):
        left = [delivery.popper.offsets.ledger(group, "orders", queue_id) for group in ("g", "h")]
        held = [[] if ledger is None else ledger.in_flight for ledger in left]
        assert held[0] == held[1]
        assert len(held[0]) == count
    counted = [delivery.statistics.outgoing[group, "orders"] for group in ("g", "h")]
    assert [(one.messages, one.size_bytes, one.again) for one in counted] == [(42, 78, 0)] * 2


async def test_its_deliveries_come_again_after_their_time_and_end_when_they_are_acknowledged(
    receiving: Receiving, clock: ManualClock
) -> None:
    await receiving.begin("g")
    await receiving.send(b"a", b"b")
    written = receiving.short(receive_request())
    assert bodies(written) == [b"a", b"b"]
    assert receiving.short(receive_request()) is None
    clock.advance_ms(30_000)
    assert receiving.short(receive_request()) is None, "what comes again is the general way's"
    again = await receiving.general(receive_request())
    assert bodies(again) == [b"a", b"b"]


def is_left(receiving: Receiving, request: Any, **of_call: Any) -> bool:
    """Whether the short way leaves a request and takes nothing."""
    before = [receiving.broker.delivery.popper.offsets.ledger("g", "orders", queue) for queue in (0, 1)]
    cursors = [None if ledger is None else ledger.cursor for ledger in before]
    left = receiving.short(request, **of_call) is None
    assert [None if ledger is None else ledger.cursor for ledger in before] == cursors
    return left


@pytest.mark.parametrize(
    "wish",
    [
        {"auto_renew": True},
        {"auto_renew": True, "invisible_duration": m.Duration()},
        {"invisible_duration": m.Duration(seconds=9)},
        {"invisible_duration": m.Duration(seconds=50_000)},
        {"filter_expression": m.FilterExpression(type=m.TAG, expression="t")},
        {"filter_expression": m.FilterExpression(type=m.SQL, expression="a = 1")},
        {"filter_expression": m.FilterExpression(type=m.SQL, expression="a = ")},
        {"group": m.Resource(name="missing")},
        {"group": m.Resource(name="g", resource_namespace="acme")},
        {"group": m.Resource(name="")},
        {"group": m.Resource(name="TOOLS_CONSUMER")},
        {"message_queue": m.MessageQueue(topic=m.Resource(name="orders"), broker=m.Broker(name="other"))},
        {"message_queue": m.MessageQueue(topic=m.Resource(name="orders", resource_namespace="acme"))},
        {"message_queue": m.MessageQueue(topic=m.Resource(name="missing"))},
    ],
    ids=str,
)
async def test_what_is_no_ordinary_wish_is_left_to_the_general_way(receiving: Receiving, wish: dict[str, Any]) -> None:
    await receiving.begin("g")
    await receiving.send(b"a")
    request = receive_request()
    for field in wish:
        request.ClearField(field)
    request.MergeFrom(m.ReceiveMessageRequest(**wish))
    assert is_left(receiving, request)
    assert bodies(receiving.short(receive_request())) == [b"a"]


async def test_calls_that_need_a_closer_look_are_left_to_the_general_way(
    receiving: Receiving, monkeypatch: pytest.MonkeyPatch
) -> None:
    await receiving.begin("g")
    await receiving.send(b"a")
    assert is_left(receiving, receive_request(), is_stuffed=True)
    assert is_left(receiving, receive_request(), deadline_s=0.2)
    call: Any = Call(b"\xff", dict(METADATA))
    assert not receiving.receives.answer(call)
    call = Call(receive_request().SerializeToString(), {"x-mq-client-id": ""})
    assert not receiving.receives.answer(call)
    call = Call(receive_request().SerializeToString(), {**METADATA, "x-mq-namespace": "acme"})
    assert not receiving.receives.answer(call)

    def refuse(_client_id: str) -> None:
        raise ConsumeRefused("TOO_MANY_REQUESTS", "The client reads nothing.")

    with monkeypatch.context() as patched:
        patched.setattr(receiving.processor.answers, "check", refuse)
        assert is_left(receiving, receive_request())
    assert bodies(receiving.short(receive_request())) == [b"a"]


async def test_unusual_messages_go_the_general_way_and_so_do_the_next_receives_of_their_topic(
    receiving: Receiving,
) -> None:
    await receiving.begin("g")
    await receiving.send(b"a")
    await receiving.send(b"b", TRACE_CONTEXT="c")
    assert is_left(receiving, receive_request())
    assert bodies(await receiving.general(receive_request())) == [b"a", b"b"]
    await receiving.send(b"c")
    assert [is_left(receiving, receive_request()) for _ in range(UNUSUAL_PAUSE)] == [True] * UNUSUAL_PAUSE
    assert bodies(receiving.short(receive_request())) == [b"c"]


async def test_what_a_server_looks_at_closer_is_left_to_the_general_way(
    receiving: Receiving, monkeypatch: pytest.MonkeyPatch
) -> None:
    await receiving.begin("g")
    await receiving.send(b"a")
    monkeypatch.setattr(MessagingAdapter, "takes_plain_calls", False)
    assert is_left(receiving, receive_request())


async def test_more_bytes_than_a_short_answer_holds_are_left_to_the_general_way(receiving: Receiving) -> None:
    await receiving.begin("g")
    await receiving.send(*[bytes(5000)] * 32)
    assert is_left(receiving, receive_request())
    assert len(bodies(receiving.short(receive_request(batch_size=12)))) == 12


@pytest.fixture
async def dialled(tmp_path: Path) -> AsyncIterator[Dialled]:
    broker = Broker(tmp_path)
    await broker.start()
    broker.topics.create(TopicConfig("orders", read_queues=1, write_queues=1))
    broker.groups.create(GroupConfig("g", first_position=FirstPosition.FIRST))
    processor = Processor(LocalBackend(broker))
    await processor.start()
    server = GrpcServer(processor, "127.0.0.1", 0, delivery=broker.delivery)
    port = await server.start()
    client = Dialled(port)
    yield client
    await client.channel.close()
    await server.close(0)
    await processor.close()
    await broker.close()


async def received(dialled: Dialled, **wish: Any) -> list[Any]:
    frames = dialled.method("ReceiveMessage")(receive_request(**wish), metadata=CLIENT_ID, timeout=20)
    return [frame.message async for frame in frames if frame.HasField("message")]


async def test_over_a_connection_nothing_is_lost_twice_there_or_left(
    dialled: Dialled, monkeypatch: pytest.MonkeyPatch
) -> None:
    general: list[str] = []
    streaming = MessagingAdapter.streaming

    def note(adapter: MessagingAdapter, name: str, *rest: Any) -> Any:
        general.append(name)
        return streaming(adapter, name, *rest)

    assert await received(dialled) == []
    for number in range(150):
        await dialled.send(b"%03d" % number)
    monkeypatch.setattr(MessagingAdapter, "streaming", note)
    found: list[Any] = []
    for taken in await asyncio.gather(*(received(dialled, batch_size=number) for number in range(1, 33))):
        found += taken
    assert sorted(one.body for one in found) == [b"%03d" % number for number in range(150)]
    entries = [m.AckMessageEntry(receipt_handle=one.system_properties.receipt_handle) for one in found]
    request = m.AckMessageRequest(group=m.Resource(name="g"), topic=m.Resource(name="orders"), entries=entries)
    assert (await dialled.method("AckMessage")(request, metadata=CLIENT_ID, timeout=20)).status.code == m.OK
    assert len(general) < 32, "at least one was answered the short way"


async def test_a_receive_that_leaves_messages_wakes_the_next_that_waits(dialled: Dialled) -> None:
    assert await received(dialled) == []
    wait = m.Duration(seconds=15)
    waiting = [asyncio.create_task(received(dialled, batch_size=1, long_polling_timeout=wait)) for _ in range(3)]
    await asyncio.sleep(0.1)
    requests = [m.SendMessageRequest(messages=[message(body=b"%d" % number) for number in range(4)])]
    for request in requests:
        await dialled.method("SendMessage")(request, metadata=CLIENT_ID, timeout=10)
    rest = await received(dialled, batch_size=1)
    taken = [one.body for task in waiting for one in await within_patience(task)] + [one.body for one in rest]
    assert sorted(taken) == [b"0", b"1", b"2", b"3"]
