"""Ordinary sends and acknowledgements take a short way; what it does is what the general way does."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from dialled import CLIENT_ID, Dialled
from hypothesis import given, settings
from hypothesis import strategies as st
from service_calls import message

from millstream.broker.broker import Broker
from millstream.broker.delivery.admission import check_messages, is_plain
from millstream.model.errors import MillstreamError
from millstream.model.group import GroupConfig
from millstream.model.message import Address, OutgoingMessage, SystemFlag
from millstream.model.operations import ChangeInvisibleRequest
from millstream.model.topic import MessageType, TopicConfig
from millstream.protocol.grpc import messages as m
from millstream.protocol.grpc.plain_send import GZIP, read_plain_send
from millstream.proxy.grpc.adapter import MessagingAdapter
from millstream.proxy.grpc.call import GrpcCall
from millstream.proxy.grpc.message_conversion import outgoing_message
from millstream.proxy.grpc.server import GrpcServer
from millstream.proxy.local import LocalBackend
from millstream.proxy.processor import Processor

PEER = Address("192.0.2.7", 4711)
CALL = GrpcCall("c", PEER)
TEXTS = st.one_of(st.text(max_size=8), st.sampled_from(["", " ", "a", "a b", "UNIQ_KEY", "\x01", "é", "|", "x" * 200]))


@st.composite
def sent_messages(draw: st.DrawFn) -> Any:
    """Messages of all kinds, most of them nearly ordinary."""
    system = m.SystemProperties(
        message_id=draw(st.one_of(st.just("0" * 32), TEXTS)),
        body_encoding=draw(st.sampled_from([m.IDENTITY, m.IDENTITY, m.GZIP, m.ENCODING_UNSPECIFIED, 7])),
        message_type=draw(st.sampled_from([m.NORMAL, m.NORMAL, m.MESSAGE_TYPE_UNSPECIFIED, m.FIFO, m.TRANSACTION])),
        born_host=draw(TEXTS),
    )
    for field in draw(st.lists(st.sampled_from(["tag", "message_group", "trace_context", "lite_topic"]), max_size=1)):
        setattr(system, field, draw(TEXTS))
    system.keys.extend(draw(st.lists(TEXTS, max_size=2)))
    if draw(st.booleans()):
        system.born_timestamp.seconds = draw(st.integers(-2, 1 << 34))
        system.born_timestamp.nanos = draw(st.integers(0, 999_999_999))
    if draw(st.booleans()):
        system.body_digest.type = m.CRC32
        system.body_digest.checksum = draw(TEXTS)
    if draw(st.integers(0, 9)) == 0:
        system.delivery_timestamp.seconds = draw(st.integers(0, 10))
    if draw(st.booleans()):
        system.queue_id = draw(st.integers(-1, (1 << 31) - 1))
    if draw(st.integers(0, 9)) == 0:
        system.priority = draw(st.integers(-1, 3))
    names = m.Resource(name=draw(st.one_of(st.just("orders"), TEXTS)))
    if draw(st.integers(0, 9)) == 0:
        names.resource_namespace = draw(TEXTS)
    return m.Message(
        topic=names,
        user_properties=draw(st.dictionaries(TEXTS, TEXTS, max_size=3)),
        system_properties=system,
        body=draw(st.binary(max_size=40)),
    )


@given(sent_messages())
@settings(max_examples=300, deadline=None)
def test_what_is_read_from_the_bytes_is_what_protobuf_reads(sent: Any) -> None:
    read = read_plain_send(m.SendMessageRequest(messages=[sent]).SerializeToString())
    if read is None:
        return
    name, held, body, born_ms, encoding, users = read
    assert not sent.topic.resource_namespace
    if not is_plain(held, users):
        return
    general = outgoing_message(sent, CALL)
    flag = SystemFlag.COMPRESSED if encoding == GZIP else SystemFlag.NONE
    plain = OutgoingMessage(name, body, held, MessageType.NORMAL, None, flag, 0, born_ms, PEER)
    assert plain == general
    assert [*plain.properties] == [*general.properties], "they are stored in this order"
    check_messages([plain], TopicConfig(name), typed=True)


@pytest.mark.parametrize(
    "filled",
    [
        {},
        {"tag": "t"},
        {"keys": ["k", "l"]},
        {"user_properties": {"colour": "red"}},
        {"born_host": "h", "body_encoding": m.GZIP},
        {"queue_id": 7},
        {"queue_id": 1023, "message_type": m.NORMAL},
    ],
    ids=str,
)
def test_the_ordinary_message_is_read(filled: dict[str, Any]) -> None:
    users = filled.pop("user_properties", {})
    sent = message(**filled)
    sent.user_properties.update(users)
    read = read_plain_send(m.SendMessageRequest(messages=[sent]).SerializeToString())
    assert read is not None
    assert is_plain(read[1], read[5])


@given(sent_messages(), st.data())
@settings(max_examples=300, deadline=None)
def test_mutated_bytes_are_left_to_protobuf_or_read_as_it_does(sent: Any, data: st.DataObject) -> None:
    raw = bytearray(m.SendMessageRequest(messages=[sent]).SerializeToString())
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(raw) - 1))
        raw[place] = data.draw(st.integers(0, 255))
    read = read_plain_send(bytes(raw))
    if read is None:
        return
    request = m.SendMessageRequest.FromString(bytes(raw))
    (decoded,) = request.messages
    name, held, body, born_ms, _, users = read
    if is_plain(held, users):
        general = outgoing_message(decoded, CALL)
        assert (general.topic, general.properties, general.body, general.born_timestamp_ms) == (
            name, held, body, born_ms,
        )  # fmt: skip


def test_an_earlier_end_is_no_ordinary_send() -> None:
    raw = m.SendMessageRequest(messages=[message(tag="t", keys=["k"])]).SerializeToString()
    for end in range(len(raw)):
        assert read_plain_send(raw[:end]) is None


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    broker = Broker(tmp_path)
    await broker.start()
    broker.topics.create(TopicConfig("orders", read_queues=1, write_queues=1))
    broker.groups.create(GroupConfig("g"))
    yield broker
    await broker.close()


class Served(Dialled):
    """A channel, and what stands behind the port."""

    def __init__(self, port: int, processor: Processor) -> None:
        super().__init__(port)
        self.processor = processor


@pytest.fixture
async def served(broker: Broker) -> AsyncIterator[Served]:
    processor = Processor(LocalBackend(broker))
    await processor.start()
    server = GrpcServer(processor, "127.0.0.1", 0, delivery=broker.delivery)
    dialled = Served(await server.start(), processor)
    yield dialled
    await dialled.channel.close()
    await server.close(0)
    await processor.close()


async def receive(served: Dialled, count: int) -> list[Any]:
    request = m.ReceiveMessageRequest(
        group=m.Resource(name="g"),
        message_queue=m.MessageQueue(topic=m.Resource(name="orders"), id=-1),
        filter_expression=m.FilterExpression(type=m.TAG, expression="*"),
        batch_size=count,
        invisible_duration=m.Duration(seconds=60),
        long_polling_timeout=m.Duration(seconds=1),
    )
    frames = served.method("ReceiveMessage")(request, metadata=CLIENT_ID, timeout=20)
    return [frame.message async for frame in frames if frame.HasField("message")]


async def test_sends_of_a_turn_are_stored_in_their_order_and_each_has_its_receipt(served: Dialled) -> None:
    sends = [served.send(f"body {number}".encode()) for number in range(40)]
    offsets = [(await one).entries[0].offset for one in sends]
    assert sorted(offsets) == list(range(40))
    messages = await receive(served, 32) + await receive(served, 32)
    stored = {one.system_properties.queue_offset: one.body for one in messages}
    assert stored == {offset: f"body {number}".encode() for number, offset in enumerate(offsets)}


@pytest.mark.parametrize(
    "headers",
    [
        pytest.param((("x-mq-namespace", ""), ("authorization", "MQv2-HMAC-SHA1 Credential=")), id="python"),
        pytest.param((("x-mq-protocol", "v2"), ("x-mq-namespace", "")), id="java"),
    ],
)
async def test_what_official_clients_send_takes_the_short_way(
    served: Dialled, headers: tuple[tuple[str, str], ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    general: list[str] = []
    unary = MessagingAdapter.unary

    def note(adapter: MessagingAdapter, name: str, *rest: Any) -> Any:
        general.append(name)
        return unary(adapter, name, *rest)

    monkeypatch.setattr(MessagingAdapter, "unary", note)
    metadata = (*CLIENT_ID, *headers)
    sent = message(message_type=m.NORMAL, queue_id=300)
    sent.system_properties.born_timestamp.seconds = 1_790_000_000
    request = m.SendMessageRequest(messages=[sent])
    assert (await served.method("SendMessage")(request, metadata=metadata, timeout=10)).status.code == m.OK
    [taken] = await receive(served, 1)
    entry = m.AckMessageEntry(message_id="01ABC", receipt_handle=taken.system_properties.receipt_handle)
    done = m.AckMessageRequest(group=m.Resource(name="g"), topic=m.Resource(name="orders"), entries=[entry])
    assert (await served.method("AckMessage")(done, metadata=metadata, timeout=10)).status.code == m.OK
    assert general == []
    named = (*CLIENT_ID, ("x-mq-namespace", "acme"))
    await served.method("SendMessage")(request, metadata=named, timeout=10)
    assert general == ["SendMessage"]


async def test_an_unusual_send_among_ordinary_ones_gets_its_own_answer(served: Dialled) -> None:
    send = served.method("SendMessage")
    requests = [
        m.SendMessageRequest(messages=[message(body=b"good")]),
        m.SendMessageRequest(messages=[message(topic="missing", body=b"x")]),
        m.SendMessageRequest(messages=[message(body=b"")]),
        m.SendMessageRequest(messages=[message(body=b"grouped", message_group="one")]),
        m.SendMessageRequest(messages=[message(body=b"good")]),
    ]
    calls = [send(request, metadata=CLIENT_ID, timeout=10) for request in requests]
    codes = [(await call).status.code for call in calls]
    assert codes == [
        m.OK,
        m.TOPIC_NOT_FOUND,
        m.MESSAGE_BODY_EMPTY,
        m.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE,
        m.OK,
    ]


async def test_each_handle_of_an_acknowledgement_has_its_own_status(served: Dialled) -> None:
    for number in range(3):
        await served.send(b"%d" % number)
    taken = await receive(served, 3)
    entries = [
        m.AckMessageEntry(
            message_id=one.system_properties.message_id, receipt_handle=one.system_properties.receipt_handle
        )
        for one in taken
    ]
    request = m.AckMessageRequest(group=m.Resource(name="g"), topic=m.Resource(name="orders"), entries=entries[:2])
    ack = served.method("AckMessage")
    answer = await ack(request, metadata=CLIENT_ID, timeout=10)
    assert answer.status.code == m.OK
    assert [entry.receipt_handle for entry in answer.entries] == [entry.receipt_handle for entry in entries[:2]]
    assert [entry.message_id for entry in answer.entries] == [entry.message_id for entry in entries[:2]]
    request.entries[0].receipt_handle = "dead"
    request.entries[1].CopyFrom(entries[2])
    answer = await ack(request, metadata=CLIENT_ID, timeout=10)
    assert answer.status.code == m.MULTIPLE_RESULTS
    assert [entry.status.code for entry in answer.entries] == [m.INVALID_RECEIPT_HANDLE, m.OK]
    del request.entries[1]
    assert (await ack(request, metadata=CLIENT_ID, timeout=10)).status.code == m.INVALID_RECEIPT_HANDLE


async def test_a_store_that_refuses_answers_each_send(
    served: Dialled, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise MillstreamError("DISK_FULL", "The disk is full.")

    monkeypatch.setattr(type(broker.delivery.appender), "_enter", refuse)
    codes = [(await one).status.code for one in [served.send(b"x") for _ in range(5)]]
    assert len(set(codes)) == 1
    assert codes[0] != m.OK


async def test_a_delivery_that_is_renewed_can_be_acknowledged_by_the_handle_that_its_client_holds(
    served: Served, broker: Broker
) -> None:
    await served.send(b"x")
    await served.send(b"y")
    settings_of_a_push_consumer = served.telemetry()
    subscription = m.Subscription(group=m.Resource(name="g"))
    await settings_of_a_push_consumer.write(
        m.TelemetryCommand(settings=m.Settings(client_type=m.PUSH_CONSUMER, subscription=subscription))
    )
    await settings_of_a_push_consumer.read()
    request = m.ReceiveMessageRequest(
        group=m.Resource(name="g"),
        message_queue=m.MessageQueue(topic=m.Resource(name="orders"), id=-1),
        filter_expression=m.FilterExpression(type=m.TAG, expression="*"),
        batch_size=2,
        auto_renew=True,
        long_polling_timeout=m.Duration(seconds=1),
    )
    frames = served.method("ReceiveMessage")(request, metadata=CLIENT_ID, timeout=20)
    held = [frame.message.system_properties.receipt_handle async for frame in frames if frame.HasField("message")]
    renewer = served.processor.renewer
    assert len(renewer.table) == 2
    entry = renewer.table.find(("g", held[0]))
    assert entry is not None
    change = ChangeInvisibleRequest("g", "orders", entry.handle, 60_000)
    renewer.table.note_renewal(entry, broker.delivery.change_invisible(change), renewer.now_ms())
    entries = [m.AckMessageEntry(message_id="01ABC", receipt_handle=handle) for handle in held]
    done = m.AckMessageRequest(group=m.Resource(name="g"), topic=m.Resource(name="orders"), entries=entries)
    answer = await served.method("AckMessage")(done, metadata=CLIENT_ID, timeout=10)
    assert [one.status.code for one in answer.entries] == [m.OK, m.OK]
    assert broker.queues.committed_offset("g", "orders", 0) == 2
    assert not len(renewer.table)
