"""PullMessage, UpdateOffset, GetOffset and QueryOffset over a real broker, with raw stubs over a socket as well."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from service_calls import METADATA, Service

from millstream.broker.broker import Broker, BrokerOptions
from millstream.model.clock import ManualClock
from millstream.model.group import GroupConfig
from millstream.model.message import Address, OutgoingMessage, SystemFlag
from millstream.model.operations import QueuePoint, ResetRequest
from millstream.model.topic import TopicConfig
from millstream.protocol.grpc import messages as m
from millstream.protocol.grpc.service import METHODS
from millstream.protocol.remoting.messages.batch import encode_batch_item
from millstream.proxy.grpc.adapter import MessagingAdapter
from millstream.proxy.grpc.route import Advertised
from millstream.proxy.grpc.server import GrpcServer
from millstream.proxy.local import LocalBackend
from millstream.proxy.processor import Processor
from millstream.store.message_store import StoreOptions
from patience import eventually, within_patience

ORDERS = m.Resource(name="orders")
GROUP = m.Resource(name="readers")
NOWHERE = m.Resource(name="nowhere")


@pytest.fixture
async def broker(tmp_path: Path, clock: ManualClock) -> AsyncIterator[Broker]:
    options = BrokerOptions(store=StoreOptions(segment_bytes=1 << 20, consume_queue_entries=1000))
    started = Broker(tmp_path, options=options, clock=clock)
    await started.start()
    started.topics.create(TopicConfig("orders", read_queues=2, write_queues=2))
    yield started
    await started.close()


@pytest.fixture
def processor(broker: Broker, clock: ManualClock) -> Processor:
    return Processor(LocalBackend(broker), clock=clock)


@pytest.fixture
def service(processor: Processor, clock: ManualClock) -> Service:
    advertised = Advertised(Address("192.0.2.1", 8081))
    return Service(MessagingAdapter(processor, advertised, clock=clock), dict(METADATA))


def queue(queue_id: int = 0, topic: Any = ORDERS, broker: str = "broker-a") -> Any:
    return m.MessageQueue(topic=topic, id=queue_id, broker=m.Broker(name=broker))


def pull_request(offset: int = 0, **wish: Any) -> Any:
    filled: dict[str, Any] = {
        "group": GROUP,
        "message_queue": queue(),
        "offset": offset,
        "batch_size": 32,
        "filter_expression": m.FilterExpression(type=m.TAG, expression="*"),
        "long_polling_timeout": m.Duration(seconds=0),
    }
    return m.PullMessageRequest(**(filled | wish))


async def send(broker: Broker, *bodies: bytes, topic: str = "orders", **held: str) -> None:
    await broker.delivery.send(
        [OutgoingMessage(topic, body, {"UNIQ_KEY": "01ABC", **held}, queue_id=0) for body in bodies]
    )


async def pull(service: Service, offset: int = 0, **wish: Any) -> tuple[int, list[bytes], int | None]:
    """Status code, bodies and the next offset of the frames, whose order is checked."""
    frames = await service.frames("PullMessage", pull_request(offset, **wish))
    kinds = [frame.WhichOneof("content") for frame in frames]
    bodies = [frame.message.body for frame in frames[1:-1]]
    if len(frames) == 1:
        assert kinds == ["status"]
        return frames[0].status.code, [], None
    assert kinds == ["status", *["message"] * len(bodies), "next_offset"]
    return frames[0].status.code, bodies, frames[-1].next_offset


async def test_messages_are_read_from_an_offset_with_where_to_go_on(service: Service, broker: Broker) -> None:
    await send(broker, b"a", b"b", b"c")
    assert await pull(service, 1) == (m.OK, [b"b", b"c"], 3)
    assert await pull(service, 0, batch_size=2) == (m.OK, [b"a", b"b"], 2)
    assert await pull(service, 3) == (m.MESSAGE_NOT_FOUND, [], 3)


async def test_a_pulled_message_has_every_field_but_a_handle(service: Service, broker: Broker) -> None:
    await send(broker, b"a", TAGS="red", KEYS="k", colour="blue")
    (_, frame, _) = await service.frames("PullMessage", pull_request())
    system = frame.message.system_properties
    assert (frame.message.topic, dict(frame.message.user_properties)) == (ORDERS, {"colour": "blue"})
    assert (system.message_id, system.tag, list(system.keys), system.queue_offset) == ("01ABC", "red", ["k"], 0)
    assert (system.body_encoding, system.delivery_attempt, system.receipt_handle) == (m.IDENTITY, 1, "")
    assert system.body_digest.checksum


async def test_a_tenant_pulls_from_the_topic_of_its_namespace(service: Service, broker: Broker) -> None:
    broker.topics.create(TopicConfig("ns%orders", read_queues=1, write_queues=1))
    await send(broker, b"theirs")
    await send(broker, b"own", topic="ns%orders")
    named = m.Resource(name="orders", resource_namespace="ns")
    (_, frame, _) = await service.frames("PullMessage", pull_request(message_queue=queue(topic=named)))
    assert (frame.message.topic, frame.message.body) == (named, b"own")


async def test_a_filter_passes_over_and_says_where_to_go_on(service: Service, broker: Broker) -> None:
    await send(broker, b"a", TAGS="red")
    await send(broker, b"b", TAGS="blue")
    blue = m.FilterExpression(type=m.TAG, expression="blue")
    assert await pull(service, filter_expression=blue) == (m.OK, [b"b"], 2)
    green = m.FilterExpression(type=m.SQL, expression="TAGS = 'green'")
    assert await pull(service, filter_expression=green) == (m.MESSAGE_NOT_FOUND, [], 2)


async def test_an_offset_that_the_queue_does_not_have_is_answered_with_the_nearest(
    service: Service, broker: Broker
) -> None:
    await send(broker, b"a")
    assert await pull(service, 7) == (m.ILLEGAL_OFFSET, [], 1)
    assert await pull(service, -1) == (m.ILLEGAL_OFFSET, [], 0)


async def test_a_pull_waits_for_a_message(service: Service, broker: Broker) -> None:
    waiting = asyncio.create_task(pull(service, long_polling_timeout=m.Duration(seconds=20)))
    await eventually(lambda: broker.maintenance.waiting_requests > 0)
    await send(broker, b"a")
    assert await within_patience(waiting) == (m.OK, [b"a"], 1)


async def test_a_batch_that_is_one_record_is_read_in_parts(service: Service, broker: Broker) -> None:
    broker.topics.create(TopicConfig("batches", read_queues=1, write_queues=1, attributes={"queue.type": "BatchCQ"}))
    items = b"".join(encode_batch_item(b"%d" % number, {"UNIQ_KEY": f"id{number}"}) for number in range(4))
    flags = SystemFlag.INNER_BATCH | SystemFlag.NEED_UNWRAP
    await broker.delivery.send(
        [OutgoingMessage("batches", items, {"UNIQ_KEY": "b"}, system_flag=flags, message_count=4)]
    )
    named = queue(topic=m.Resource(name="batches"))
    assert await pull(service, 1, message_queue=named, batch_size=2) == (m.OK, [b"1", b"2"], 3)
    assert await pull(service, 3, message_queue=named) == (m.OK, [b"3"], 4)


async def test_a_group_that_was_reset_is_told_where_to_go_on(service: Service, broker: Broker) -> None:
    await send(broker, b"a", b"b")
    assert await pull(service, 0) == (m.OK, [b"a", b"b"], 2)
    await service.call("UpdateOffset", m.UpdateOffsetRequest(group=GROUP, message_queue=queue(), offset=2))
    broker.queues.reset(ResetRequest("readers", "orders", QueuePoint.OFFSET, 1, 0))
    assert await pull(service, 2) == (m.ILLEGAL_OFFSET, [], 1)
    assert await pull(service, 1) == (m.OK, [b"b"], 2)


@pytest.mark.parametrize(
    ("wish", "code"),
    [
        ({"group": m.Resource(name="no group")}, m.ILLEGAL_CONSUMER_GROUP),
        ({"message_queue": queue(topic=m.Resource(name="nowhere"))}, m.TOPIC_NOT_FOUND),
        ({"message_queue": queue(topic=m.Resource(name="no topic"))}, m.ILLEGAL_TOPIC),
        ({"message_queue": queue(9)}, m.BAD_REQUEST),
        ({"message_queue": queue(-1)}, m.BAD_REQUEST),
        ({"message_queue": queue(broker="elsewhere")}, m.BAD_REQUEST),
        ({"filter_expression": m.FilterExpression(type=m.SQL, expression="a = ")}, m.ILLEGAL_FILTER_EXPRESSION),
    ],
)
async def test_a_pull_that_cannot_be_is_refused_with_one_status(service: Service, wish: Any, code: int) -> None:
    assert await pull(service, **wish) == (code, [], None)


async def test_a_group_that_is_switched_off_reads_nothing(service: Service, broker: Broker) -> None:
    broker.groups.create(GroupConfig("readers", enabled=False))
    assert await pull(service) == (m.FORBIDDEN, [], None)


async def test_a_groups_offset_is_kept_and_told(service: Service, broker: Broker) -> None:
    await send(broker, b"a", b"b")
    asked = m.GetOffsetRequest(group=GROUP, message_queue=queue())
    assert (await service.call("GetOffset", asked)).status.code == m.OFFSET_NOT_FOUND
    for offset in (2, 1):
        update = m.UpdateOffsetRequest(group=GROUP, message_queue=queue(), offset=offset)
        assert (await service.call("UpdateOffset", update)).status.code == m.OK
        answer = await service.call("GetOffset", asked)
        assert (answer.status.code, answer.offset) == (m.OK, offset)


@pytest.mark.parametrize(
    ("name", "request_", "code"),
    [
        ("UpdateOffset", m.UpdateOffsetRequest(group=GROUP, message_queue=queue(), offset=3), m.ILLEGAL_OFFSET),
        ("UpdateOffset", m.UpdateOffsetRequest(group=GROUP, message_queue=queue(), offset=-1), m.ILLEGAL_OFFSET),
        ("UpdateOffset", m.UpdateOffsetRequest(group=GROUP, message_queue=queue(5)), m.BAD_REQUEST),
        ("GetOffset", m.GetOffsetRequest(group=GROUP, message_queue=queue(topic=NOWHERE)), m.TOPIC_NOT_FOUND),
        ("GetOffset", m.GetOffsetRequest(message_queue=queue()), m.ILLEGAL_CONSUMER_GROUP),
        ("QueryOffset", m.QueryOffsetRequest(message_queue=queue(5)), m.BAD_REQUEST),
        ("QueryOffset", m.QueryOffsetRequest(message_queue=queue(), query_offset_policy=m.TIMESTAMP), m.ILLEGAL_OFFSET),
    ],
)  # fmt: skip
async def test_offsets_that_cannot_be_are_refused(service: Service, name: str, request_: Any, code: int) -> None:
    assert (await service.call(name, request_)).status.code == code


async def test_offsets_are_found_by_place_and_by_time(service: Service, broker: Broker, clock: ManualClock) -> None:
    async def query(policy: Any, **more: Any) -> int:
        request = m.QueryOffsetRequest(message_queue=queue(), query_offset_policy=policy, **more)
        answer = await service.call("QueryOffset", request)
        assert answer.status.code == m.OK
        return int(answer.offset)

    await send(broker, b"a", b"b")
    clock.advance_ms(1000)
    later = m.Timestamp()
    later.FromMilliseconds(clock.now_ms())
    await send(broker, b"c")
    assert await query(m.BEGINNING) == 0
    assert await query(m.END) == 3
    assert await query(m.TIMESTAMP, timestamp=later) == 2


async def test_a_pull_consumer_gets_its_settings(service: Service) -> None:
    subscription = m.Subscription(group=GROUP)
    asked = m.TelemetryCommand(settings=m.Settings(client_type=m.PULL_CONSUMER, subscription=subscription))
    (answer,) = await service.telemetry(asked)
    assert answer.status.code == m.OK
    assert answer.settings.subscription.long_polling_timeout.seconds == 20


async def test_raw_stubs_pull_over_a_socket(processor: Processor, broker: Broker) -> None:
    await send(broker, b"a")
    server = GrpcServer(processor, "127.0.0.1", 0)
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{await server.start()}") as channel:
            stub = METHODS["PullMessage"].stub(channel)
            frames = [frame async for frame in stub(pull_request(), metadata=tuple(METADATA.items()), timeout=10)]
    finally:
        await server.close(0)
    assert [frame.WhichOneof("content") for frame in frames] == ["status", "message", "next_offset"]
