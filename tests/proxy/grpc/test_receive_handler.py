"""ReceiveMessage: the frames' order, the fields that clients need, how long it waits, and who keeps a message."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import zlib
from dataclasses import replace
from typing import Any

import lz4.frame
import pytest
from memory_backend import MemoryBackend
from service_calls import Service, receive_request

from millstream.model.clock import ManualClock
from millstream.model.errors import ConsumeRefused
from millstream.model.group import GroupConfig
from millstream.model.message import OutgoingMessage, SystemFlag
from millstream.protocol.grpc import messages as m
from millstream.proxy.grpc.consume_handlers import ANSWER_MARGIN_S, polling_ms
from millstream.proxy.processor import Processor
from patience import within_patience

PUSH = {"auto_renew": True, "invisible_duration": m.Duration()}


def kinds(frames: list[Any]) -> list[str | None]:
    return [frame.WhichOneof("content") for frame in frames]


async def test_frames_are_status_then_messages_then_the_time_of_delivery(service: Service) -> None:
    await service.send()
    await service.send()
    frames = await service.receive()
    assert kinds(frames) == ["status", "message", "message", "delivery_timestamp"]
    assert frames[0].status.code == m.OK


async def test_a_delivery_carries_every_field_that_a_client_reads(service: Service, clock: ManualClock) -> None:
    await service.send(body=b"hello", tag="new", keys=["k"], user={"a": "b"}, born_timestamp=m.Timestamp(seconds=7))
    received = (await service.receive())[1].message
    system = received.system_properties
    assert (received.topic.name, received.topic.resource_namespace, received.body) == ("orders", "", b"hello")
    assert dict(received.user_properties) == {"a": "b"}
    assert system.body_digest.type == m.MD5
    assert system.body_digest.checksum == hashlib.md5(b"hello").hexdigest().upper()
    assert (system.body_encoding, system.message_type, system.delivery_attempt) == (m.IDENTITY, m.NORMAL, 1)
    assert (system.message_id, system.tag, list(system.keys)) == ("01ABC", "new", ["k"])
    assert (system.born_timestamp.seconds, system.born_host) == (7, "laptop")
    assert (system.store_timestamp.ToMilliseconds(), system.store_host) == (clock.now_ms(), "127.0.0.1:10911")
    assert system.invisible_duration.seconds == 30
    assert system.receipt_handle
    assert not system.HasField("message_group")


async def test_absent_tag_group_and_trace_stay_absent(service: Service) -> None:
    await service.send()
    system = (await service.receive())[1].message.system_properties
    assert [name for name in ("tag", "message_group", "trace_context") if system.HasField(name)] == []


async def test_a_fifo_message_says_its_type_and_group(service: Service) -> None:
    await service.send("ordered", message_group="customer-7")
    system = (await service.receive("ordered"))[1].message.system_properties
    assert (system.message_type, system.message_group) == (m.FIFO, "customer-7")


async def test_a_dead_letter_says_where_it_comes_from(service: Service, backend: MemoryBackend) -> None:
    await service.send()
    assert not (await service.receive())[1].message.system_properties.HasField("dead_letter_queue")
    backend.log[0].properties.update(DLQ_ORIGIN_TOPIC="orders", DLQ_ORIGIN_MESSAGE_ID="01ABC")
    origin = (await service.receive(group="other"))[1].message.system_properties.dead_letter_queue
    assert (origin.topic, origin.message_id) == ("orders", "01ABC")


def packed(body: bytes) -> OutgoingMessage:
    return OutgoingMessage("orders", body, {"UNIQ_KEY": "id"}, system_flag=SystemFlag.COMPRESSED)


@pytest.mark.parametrize("pack", [gzip.compress, zlib.compress, lz4.frame.compress], ids=["gzip", "zlib", "lz4"])
async def test_compressed_bodies_are_unpacked_for_the_consumer(
    service: Service, processor: Processor, pack: Any
) -> None:
    await processor.send([packed(pack(b"plain" * 50))])
    received = (await service.receive())[1].message
    assert received.body == b"plain" * 50
    assert received.system_properties.body_encoding == m.IDENTITY
    assert received.system_properties.body_digest.checksum == hashlib.md5(received.body).hexdigest().upper()


async def test_a_body_that_cannot_be_unpacked_is_delivered_as_stored(service: Service, processor: Processor) -> None:
    await processor.send([packed(b"not packed")])
    assert (await service.receive())[1].message.body == b"not packed"


async def test_nothing_found_is_one_status_after_the_polling_time_and_not_before(service: Service) -> None:
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    frames = await service.receive(long_polling_timeout=m.Duration(nanos=300_000_000))
    assert loop.time() - began_s >= 0.3
    assert kinds(frames) == ["status"]
    assert frames[0].status.code == m.MESSAGE_NOT_FOUND


async def test_a_waiting_receive_is_answered_when_a_message_arrives(service: Service) -> None:
    waiting = asyncio.create_task(service.receive(long_polling_timeout=m.Duration(seconds=2)))
    await asyncio.sleep(0.01)
    await service.send()
    assert kinds(await within_patience(waiting)) == ["status", "message", "delivery_timestamp"]


@pytest.mark.parametrize(
    ("asked_s", "deadline_s", "push", "polling_s"),
    [
        (20.0, 23.0, True, 20.0),
        (60.0, 70.0, True, 20.0),
        (0.0, 23.0, True, 5.0),
        (None, 13.0, True, 13.0 - ANSWER_MARGIN_S),
        (20.0, 9.0, True, 9.0 - ANSWER_MARGIN_S),
        (0.0, 3.0, False, 0.0),
        (1.0, 4.0, False, 1.0),
        (20.0, 2.0, False, 2.0 - ANSWER_MARGIN_S),
        (None, None, False, 20.0),
    ],
)
def test_a_receive_waits_as_asked_but_answers_before_the_deadline(
    asked_s: float | None, deadline_s: float | None, push: bool, polling_s: float
) -> None:
    asked_ms = None if asked_s is None else int(asked_s * 1000)
    assert polling_ms(asked_ms, deadline_s, push=push) == int(polling_s * 1000)


@pytest.mark.parametrize(("deadline_s", "push"), [(5.4, True), (0.4, False), (-1.0, False)])
def test_a_deadline_that_leaves_no_time_is_refused(deadline_s: float, push: bool) -> None:
    with pytest.raises(ConsumeRefused) as refusal:
        polling_ms(20_000, deadline_s, push=push)
    assert refusal.value.name == "ILLEGAL_POLLING_TIME"


@pytest.mark.parametrize(
    ("wish", "code"),
    [
        ({"invisible_duration": m.Duration(seconds=9)}, m.ILLEGAL_INVISIBLE_TIME),
        ({"invisible_duration": m.Duration()}, m.ILLEGAL_INVISIBLE_TIME),
        ({"invisible_duration": m.Duration(seconds=12 * 3600 + 1)}, m.ILLEGAL_INVISIBLE_TIME),
        ({"filter_expression": m.FilterExpression(type=m.SQL, expression="a > ")}, m.ILLEGAL_FILTER_EXPRESSION),
        ({"filter_expression": m.FilterExpression(type=m.TAG, expression="||")}, m.ILLEGAL_FILTER_EXPRESSION),
        ({"group": "no group"}, m.ILLEGAL_CONSUMER_GROUP),
        ({"topic": "missing"}, m.TOPIC_NOT_FOUND),
        ({"topic": ""}, m.ILLEGAL_TOPIC),
    ],
)
async def test_a_refused_receive_is_exactly_one_status(service: Service, wish: dict[str, Any], code: int) -> None:
    frames = await service.receive(**wish)
    assert kinds(frames) == ["status"]
    assert m.Code.Name(frames[0].status.code) == m.Code.Name(code)


async def test_a_receive_filters_by_condition(service: Service) -> None:
    for price in ("5", "15", "25"):
        await service.send(body=price.encode(), user={"price": price})
    wanted = m.FilterExpression(type=m.SQL, expression="price BETWEEN 10 AND 20")
    frames = await service.receive(filter_expression=wanted)
    assert [frame.message.body for frame in frames if frame.HasField("message")] == [b"15"]


async def test_an_unforeseen_error_is_one_status_too(service: Service, backend: MemoryBackend) -> None:
    backend.failure = KeyError("secret-detail")
    frames = await service.receive()
    assert kinds(frames) == ["status"]
    assert frames[0].status.code == m.INTERNAL_SERVER_ERROR


async def test_a_client_that_never_declared_itself_may_receive(service: Service) -> None:
    await service.send()
    service.deadline_s = 23.0
    assert len(await service.receive(**PUSH)) == 3


async def test_the_batch_is_cut_to_thirty_two_and_is_at_least_one(service: Service, backend: MemoryBackend) -> None:
    await service.receive(batch_size=1000)
    await service.receive(batch_size=0)
    assert [pop.max_messages for pop in backend.pops] == [32, 1]


async def test_a_push_consumer_of_a_fifo_group_polls_its_queue_and_others_poll_all(
    service: Service, backend: MemoryBackend
) -> None:
    backend.groups["fifo"] = GroupConfig("fifo", fifo=True)
    queue = m.MessageQueue(topic=m.Resource(name="orders"), id=1, broker=m.Broker(name="broker-a"))
    await service.send()
    service.deadline_s = 23.0
    await service.receive(group="fifo", message_queue=queue, attempt_id="try-1", **PUSH)
    await service.receive(group="fifo", message_queue=queue)
    await service.receive(group="plain", message_queue=queue, **PUSH)
    assert [pop.queue_id for pop in backend.pops] == [1, None, None]
    assert backend.pops[0].attempt_id == "try-1"
    assert [pop.invisible_ms for pop in backend.pops] == [60_000, 30_000, 60_000]


async def test_a_receive_that_is_cancelled_while_it_waits_takes_nothing(
    service: Service, processor: Processor, backend: MemoryBackend
) -> None:
    waiting = asyncio.create_task(service.receive(long_polling_timeout=m.Duration(seconds=2)))
    await asyncio.sleep(0.01)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    assert not processor._waiting
    await service.send()
    assert len(await service.receive()) == 3


async def test_messages_whose_receiver_goes_before_the_last_frame_come_back_in_a_second(
    service: Service, backend: MemoryBackend, clock: ManualClock
) -> None:
    await service.send()
    await service.send()
    frames = await service.adapter.streaming("ReceiveMessage", service.metadata, receive_request(), 3.0)
    next(frames)
    next(frames)
    frames.close()
    await asyncio.sleep(0.01)
    assert [change.invisible_ms for change in backend.changes] == [1000, 1000]
    clock.advance_ms(1000)
    assert len(await service.receive()) == 4


async def test_a_push_delivery_that_comes_back_is_no_longer_renewed(service: Service, processor: Processor) -> None:
    await service.send()
    frames = await service.adapter.streaming("ReceiveMessage", service.metadata, receive_request(**PUSH), 23.0)
    next(frames)
    assert len(processor.renewer.table) == 1
    frames.close()
    await asyncio.sleep(0.01)
    assert len(processor.renewer.table) == 0


async def test_closing_the_proxy_finishes_what_is_on_its_way_back(
    service: Service, processor: Processor, backend: MemoryBackend
) -> None:
    await service.send()
    frames = await service.adapter.streaming("ReceiveMessage", service.metadata, receive_request(), 3.0)
    next(frames)
    frames.close()
    assert backend.changes == []
    await processor.close()
    assert [change.invisible_ms for change in backend.changes] == [1000]


async def test_a_delivery_attempt_below_one_is_never_told(service: Service, backend: MemoryBackend) -> None:
    await service.send()
    await service.receive()
    backend.progress["g", 0].attempts = -2
    backend.progress["g", 0].visible_ms = 0
    assert (await service.receive())[1].message.system_properties.delivery_attempt == 1


async def test_messages_that_bring_no_id_get_one_of_their_own(service: Service, backend: MemoryBackend) -> None:
    for body in (b"a", b"b"):
        await service.send(body=body)
    backend.log[:] = [replace(stored, properties={}) for stored in backend.log]
    frames = await service.receive()
    ids = {frame.message.system_properties.message_id for frame in frames if frame.HasField("message")}
    assert len(ids - {""}) == 2
