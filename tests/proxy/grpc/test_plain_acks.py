"""Acknowledgements that come together are made together; each is answered as if it had come alone."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from service_calls import METADATA, receive_request

from http2_peer import read_frames
from millstream.broker.broker import Broker
from millstream.model.clock import ManualClock
from millstream.model.group import FirstPosition, GroupConfig
from millstream.model.message import Address, OutgoingMessage
from millstream.model.topic import TopicConfig
from millstream.protocol.grpc import messages as m
from millstream.protocol.grpc.framing import PREFIX, PREFIX_BYTES
from millstream.protocol.http2.connection import Http2Core
from millstream.protocol.http2.frames import DATA
from millstream.protocol.http2.request_head import RequestHead
from millstream.protocol.http2.stream import Http2Stream
from millstream.proxy.grpc.adapter import MessagingAdapter
from millstream.proxy.grpc.plain_acks import MAX_ENTRIES, MAX_GATHERED_ACKS, PlainAcks
from millstream.proxy.grpc.plain_caller import PlainCaller
from millstream.proxy.grpc.route import Advertised
from millstream.proxy.local import LocalBackend
from millstream.proxy.processor import Processor
from millstream.transport.grpc.call import GrpcMethod, ServerCall

ACK = GrpcMethod("AckMessage")


class Line:
    """The connection of a call, and the message that it was answered with."""

    peer = "192.0.2.7:50312"
    is_stuffed = False

    def __init__(self) -> None:
        self.core = Http2Core()
        self.answered = b""

    def call_ended(self, call: ServerCall) -> None:
        *_, raw = self.core.take_outgoing()
        [message] = [frame.content for frame in read_frames(bytes(raw)) if frame.kind == DATA]
        assert message[:PREFIX_BYTES] == PREFIX.pack(0, len(message) - PREFIX_BYTES)
        self.answered = message[PREFIX_BYTES:]


class Acknowledging:
    """One broker, and the short way to acknowledge at it."""

    def __init__(self, broker: Broker, processor: Processor, clock: ManualClock) -> None:
        self.broker, self.processor = broker, processor
        self.adapter = MessagingAdapter(processor, Advertised(Address("192.0.2.1", 8081)), clock=clock)
        self.acks = PlainAcks(self.adapter, processor, broker.delivery, clock)

    async def receive(self, messages: int, topic: str = "orders") -> list[str]:
        """Handles of messages that were just sent."""
        await self.adapter.streaming("ReceiveMessage", dict(METADATA), receive_request(topic, "g"), 10.0)
        held = {"UNIQ_KEY": "0" * 32}
        sent = [OutgoingMessage(topic, b"x", held, queue_id=number % 2) for number in range(messages)]
        await self.broker.delivery.send(sent)
        request = receive_request(topic, "g", batch_size=messages)
        frames = await self.adapter.streaming("ReceiveMessage", dict(METADATA), request, 10.0)
        said = [m.ReceiveMessageResponse.FromString(one) if isinstance(one, bytes) else one for one in frames]
        return [one.message.system_properties.receipt_handle for one in said if one.HasField("message")]

    def take_all(self, calls: list[Any]) -> list[int]:
        """How many were answered at each step, as a port takes them."""
        steps = []
        while sum(steps) < len(calls):
            steps.append(self.acks.take(calls, sum(steps)))
            if not steps[-1]:
                break
        return steps

    def counted(self) -> dict[int, int]:
        """Acknowledgements by the code of their answer."""
        return {code: sum(one.counts) for (name, code), one in self.processor.latency.items() if name == "AckMessage"}


@pytest.fixture
async def acknowledging(tmp_path: Path, clock: ManualClock) -> AsyncIterator[Acknowledging]:
    broker = Broker(tmp_path, clock=clock)
    await broker.start()
    for name in ("orders", "bills"):
        broker.topics.create(TopicConfig(name, read_queues=2, write_queues=2))
    broker.groups.create(GroupConfig("g", first_position=FirstPosition.FIRST))
    processor = Processor(LocalBackend(broker), clock=clock)
    await processor.start()
    yield Acknowledging(broker, processor, clock)
    await processor.close()
    await broker.close()


def call_of(*handles: str, topic: str = "orders", method: GrpcMethod = ACK, **metadata: str) -> ServerCall:
    entries = [m.AckMessageEntry(message_id=f"id-{handle[:2]}", receipt_handle=handle) for handle in handles]
    request = m.AckMessageRequest(group=m.Resource(name="g"), topic=m.Resource(name=topic), entries=entries)
    head = RequestHead("POST", "http", "/ack", "localhost", METADATA | metadata, None)
    stream = Http2Stream(1, head, 65_535, 65_535, 0.0)
    stream.is_ended = True
    line: Any = Line()
    stream.owner = call = ServerCall(line, stream, method, None)
    call.state = line
    call.request = request.SerializeToString()
    return call


def codes(call: Any) -> list[int]:
    """The code of all, then that of each entry."""
    answer = m.AckMessageResponse.FromString(call.state.answered)
    request = m.AckMessageRequest.FromString(call.request)
    assert [one.receipt_handle for one in answer.entries] == [one.receipt_handle for one in request.entries]
    assert [one.message_id for one in answer.entries] == [one.message_id for one in request.entries]
    return [answer.status.code, *(one.status.code for one in answer.entries)]


async def test_requests_of_one_chunk_are_answered_in_one_step_each_with_its_own_status(
    acknowledging: Acknowledging,
) -> None:
    handles = await acknowledging.receive(6)
    never = handles[0].rsplit(" ", 2)[0] + " 999 4096"
    calls = [
        call_of(handles[0]),
        call_of(*handles[1:4]),
        call_of(never),
        call_of(handles[4], never),
        call_of(handles[5]),
    ]
    assert acknowledging.take_all(calls) == [5]
    bad = m.INVALID_RECEIPT_HANDLE
    assert [codes(call) for call in calls] == [
        [m.OK, m.OK],
        [m.OK, m.OK, m.OK, m.OK],
        [bad, bad],
        [m.MULTIPLE_RESULTS, m.OK, bad],
        [m.OK, m.OK],
    ]
    assert acknowledging.counted() == {m.OK: 3, bad: 1, m.MULTIPLE_RESULTS: 1}
    assert [acknowledging.broker.queues.committed_offset("g", "orders", queue_id) for queue_id in (0, 1)] == [3, 3]


async def test_what_cannot_be_acknowledged_with_the_first_ones_is_left_for_a_step_of_its_own(
    acknowledging: Acknowledging,
) -> None:
    orders, bills = await acknowledging.receive(8), await acknowledging.receive(1, "bills")
    calls = [
        call_of(orders[0]),
        call_of(orders[1]),
        call_of(bills[0], topic="bills"),
        call_of("dead"),
        call_of(orders[2]),
        call_of(orders[3], orders[4]),
    ]
    assert acknowledging.take_all(calls) == [2, 1, 1, 2]
    assert [codes(call)[0] for call in calls] == [*[m.OK] * 3, m.INVALID_RECEIPT_HANDLE, *[m.OK] * 2]
    many = [call_of(*[orders[5]] * MAX_ENTRIES) for _ in range(MAX_GATHERED_ACKS // MAX_ENTRIES + 1)]
    assert acknowledging.take_all(many) == [len(many) - 1, 1]
    assert {code for call in many for code in codes(call)} == {m.OK}
    other = call_of(orders[7], method=GrpcMethod("Other"))
    large = call_of(*["dead"] * (MAX_ENTRIES + 1))
    foreign = call_of(orders[7], **{"x-mq-namespace": "acme"})
    for second in (other, large, foreign):
        assert acknowledging.acks.take([call_of(orders[0]), second], 0) == 1


async def test_each_client_that_acknowledges_counts_as_alive(acknowledging: Acknowledging, clock: ManualClock) -> None:
    handles = await acknowledging.receive(1)
    clients = acknowledging.processor.clients
    for names in (["one"], ["one"], ["one", "other"], ["one", "other"]):
        clock.advance_ms(10_000)
        calls = [call_of(handles[0], **{"x-mq-client-id": name}) for name in names]
        assert acknowledging.take_all(calls) == [len(names)]
        seen = [clients.find(name) for name in names]
        assert [one is not None and one.last_seen_s == clock.monotonic_s() for one in seen] == [True] * len(names)


async def test_a_client_is_known_by_its_headers_as_long_as_nobody_has_to_look_closer(
    acknowledging: Acknowledging,
) -> None:
    caller = PlainCaller(acknowledging.adapter)
    assert not caller.is_last(dict(METADATA))
    assert caller.enter(dict(METADATA), 1.0) == Address("192.0.2.7", 50312)
    assert caller.is_last(METADATA | {"grpc-timeout": "1S"})
    for changed in (
        {"x-mq-client-id": "other"},
        {"rpc-remote-address": "192.0.2.7:1"},
        {"x-mq-namespace": "acme"},
        {"x-more": "x" * 16 * 1024},
    ):
        assert not caller.is_last(METADATA | changed)
    assert caller.enter(METADATA | {"x-more": "x" * 16 * 1024}, 1.0) is None
    assert caller.enter(METADATA | {"x-mq-client-id": ""}, 1.0) is None
    assert caller.is_last(dict(METADATA))
    assert caller.enter(METADATA | {"rpc-remote-address": "192.0.2.7:1"}, 2.0) == Address("192.0.2.7", 1)
