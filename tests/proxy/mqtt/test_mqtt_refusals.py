"""What is refused, and in which words of each version."""

from __future__ import annotations

import logging

import pytest
from mqtt_peer import Dial, Peer, connect_to

from millstream.broker.broker import Broker
from millstream.broker.delivery_service import DeliveryService
from millstream.model.clock import ManualClock
from millstream.model.errors import StoreError
from millstream.model.message import OutgoingMessage
from millstream.model.topic import TopicConfig
from millstream.protocol.mqtt.packet_types import PacketType, ProtocolVersion
from millstream.protocol.mqtt.packets import (
    Acknowledgement,
    Connack,
    Connect,
    Disconnect,
    Ping,
    Publish,
    Suback,
    Subscribe,
    TopicSubscription,
)
from millstream.protocol.mqtt.properties import Properties, PropertyId
from millstream.protocol.mqtt.reason_codes import ReasonCode
from millstream.proxy.local import LocalBackend
from millstream.proxy.mqtt import handlers as handlers_module
from millstream.proxy.mqtt import session as session_module
from millstream.proxy.mqtt.connection import MAX_RECEIVE
from millstream.proxy.mqtt.opening import MAX_CLIENT_ID_BYTES
from millstream.proxy.mqtt.server import CONNECT_LIMIT_S, MqttServer
from millstream.proxy.mqtt.session import MAX_INFLIGHT, MAX_SESSION_EXPIRY_S, MAX_SESSION_SUBSCRIPTIONS
from millstream.proxy.processor import Processor
from millstream.proxy.throttle import Throttle, parse_throttle_rule
from millstream.telemetry.metrics import MetricsPage

V4, V5 = ProtocolVersion.V3_1_1, ProtocolVersion.V5


async def client(dial: Dial, version: ProtocolVersion = V5) -> Peer:
    peer = await dial(version)
    await peer.connect()
    return peer


@pytest.mark.parametrize("data", [b"\xc0\x00", b"\x30\x03\x00\x01a", b"\xff\xff\xff\xff\xff", b"\x00\x00", b"\x10\x00"])
async def test_who_does_not_begin_with_connect_is_cut_off_without_a_word(dial: Dial, data: bytes) -> None:
    peer = await dial()
    peer.write(data)
    assert await peer.next_packet() is None


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"\x10\x0d\x00\x04MQTT\x05\x02\x00\x00\x00\x00\x00", ReasonCode.PROTOCOL_ERROR),
        (b"\x36\x06\x00\x01a\x00\x01\x00", ReasonCode.MALFORMED_PACKET),
        (b"\x32\x06\x00\x01a\x00\x00\x00", ReasonCode.MALFORMED_PACKET),
        (b"\x82\x03\x00\x01\x00", ReasonCode.PROTOCOL_ERROR),
        (b"\x62\x02\x00\x00", ReasonCode.PROTOCOL_ERROR),
        (b"\x20\x03\x00\x00\x00", ReasonCode.PROTOCOL_ERROR),
        (b"\x30\x04\x00\x01+\x00", ReasonCode.TOPIC_NAME_INVALID),
        (b"\x30\x03\x00\x00\x00", ReasonCode.TOPIC_NAME_INVALID),
        (b"\x30\x07\x00\x01a\x03\x23\x00\x00", ReasonCode.TOPIC_ALIAS_INVALID),
        (b"\x30\x07\x00\x01a\x03\x23\x01\x00", ReasonCode.TOPIC_ALIAS_INVALID),
        (b"\x30\x06\x00\x01a\x02\x0b\x01", ReasonCode.PROTOCOL_ERROR),
        (b"\x30\xff\xff\xff\x7f", ReasonCode.PACKET_TOO_LARGE),
        (b"\x30\xff\xff\xff\xff\x01", ReasonCode.MALFORMED_PACKET),
        (b"\xf0\x00", ReasonCode.PROTOCOL_ERROR),
    ],
)
async def test_a_packet_that_may_not_be_ends_the_connection_with_its_reason(
    dial: Dial, data: bytes, reason: ReasonCode
) -> None:
    peer = await client(dial)
    peer.write(data)
    assert (await peer.expect(Disconnect)).reason is reason
    assert await peer.next_packet() is None


@pytest.mark.parametrize(
    "data", [b"\x36\x06\x00\x01a\x00\x01\x00", b"\x30\x02\x00\x00", b"\x82\x02\x00\x01", b"\xf0\x00"]
)
async def test_a_client_of_3_1_1_is_cut_off_without_a_word(dial: Dial, data: bytes) -> None:
    peer = await client(dial, V4)
    peer.write(data)
    assert await peer.next_packet() is None


@pytest.mark.parametrize(("name", "level"), [(b"MQTT", 6), (b"mqtt", 4), (b"MQIsdp", 4)])
async def test_an_unknown_protocol_is_answered_and_cut_off(dial: Dial, name: bytes, level: int) -> None:
    peer = await dial(V4)
    body = len(name).to_bytes(2, "big") + name + bytes((level, 2, 0, 0, 0, 0))
    peer.write(b"\x10" + bytes((len(body),)) + body)
    assert (await peer.expect(Connack)).return_code == 1
    assert await peer.next_packet() is None


@pytest.mark.parametrize(
    ("connect", "reason"),
    [
        (Connect("c" * (MAX_CLIENT_ID_BYTES + 1)), ReasonCode.CLIENT_IDENTIFIER_NOT_VALID),
        (
            Connect("c", properties=Properties({PropertyId.AUTHENTICATION_METHOD: "x"})),
            ReasonCode.BAD_AUTHENTICATION_METHOD,
        ),
        (Connect("c", properties=Properties({PropertyId.AUTHENTICATION_DATA: b"x"})), ReasonCode.PROTOCOL_ERROR),
    ],
)
async def test_a_connect_that_asks_for_what_there_is_not_is_refused(
    dial: Dial, connect: Connect, reason: ReasonCode
) -> None:
    peer = await dial()
    peer.send(connect)
    connack = await peer.expect(Connack)
    assert connack.reason is reason
    assert connack.properties.text(PropertyId.REASON_STRING)
    assert await peer.next_packet() is None


async def test_a_client_of_3_1_1_without_an_id_needs_a_clean_session(dial: Dial) -> None:
    peer = await dial(V4)
    assert (await peer.connect("", clean_start=False)).return_code == 2
    assert await peer.next_packet() is None
    peer = await dial(V4)
    assert (await peer.connect("")).return_code == 0


async def test_connack_says_which_limits_hold(dial: Dial) -> None:
    peer = await dial()
    told = (await peer.connect("", expiry_s=0xFFFF_FFFF)).properties
    assert told.number(PropertyId.SESSION_EXPIRY_INTERVAL, 0) == MAX_SESSION_EXPIRY_S
    assert told.number(PropertyId.RECEIVE_MAXIMUM, 0) == MAX_RECEIVE
    assert told.text(PropertyId.ASSIGNED_CLIENT_IDENTIFIER)


async def test_who_does_not_want_problem_information_gets_no_words(dial: Dial) -> None:
    peer = await dial()
    await peer.connect(properties={PropertyId.REQUEST_PROBLEM_INFORMATION: 0})
    peer.write(b"\x36\x00")
    assert not (await peer.expect(Disconnect)).properties.values


@pytest.mark.parametrize(
    "topic_filter", ["a#", "#/a", "+a", "", "$share/g", "$share//a", "$share/a+/b", "$share/a b/c", "$share/CID_MQTT/a"]
)
async def test_a_filter_that_may_not_be_is_refused_in_suback_and_the_others_hold(dial: Dial, topic_filter: str) -> None:
    peer = await client(dial)
    suback = await peer.subscribe(topic_filter, "good", qos=1)
    assert suback.reasons == [ReasonCode.TOPIC_FILTER_INVALID, ReasonCode.GRANTED_QOS_1]
    older = await client(dial, V4)
    suback = await older.subscribe(topic_filter, "good", qos=1)
    assert suback.reasons == [ReasonCode.UNSPECIFIED_ERROR, ReasonCode.GRANTED_QOS_1]


async def test_no_local_on_a_shared_subscription_is_a_protocol_error(dial: Dial) -> None:
    peer = await client(dial)
    peer.send(Subscribe(1, [TopicSubscription("$share/g/a", 0, no_local=True)]))
    assert (await peer.expect(Disconnect)).reason is ReasonCode.PROTOCOL_ERROR


async def test_more_subscriptions_than_a_session_may_have_are_refused(dial: Dial) -> None:
    peer = await client(dial)
    for number in range(0, MAX_SESSION_SUBSCRIPTIONS, 100):
        wishes = [TopicSubscription(f"a/{number + one}") for one in range(100)]
        peer.send(Subscribe(1, wishes))
        assert set((await peer.expect(Suback)).reasons) == {ReasonCode.SUCCESS}
    assert (await peer.subscribe("b", "a/1")).reasons == [ReasonCode.QUOTA_EXCEEDED, ReasonCode.SUCCESS]


async def test_more_messages_than_the_receive_maximum_end_the_connection(dial: Dial) -> None:
    peer = await client(dial)
    peer.send(*(Publish("a", b"", 2, packet_id=number) for number in range(1, MAX_RECEIVE + 2)))
    while not isinstance(packet := await peer.next_packet(), Disconnect):
        assert isinstance(packet, Acknowledgement)
    assert packet.reason is ReasonCode.RECEIVE_MAXIMUM_EXCEEDED


async def test_a_message_that_cannot_be_stored_is_refused_in_its_acknowledgement_and_the_connection_stays(
    dial: Dial, broker: Broker, server: MqttServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    peer = await client(dial)
    many = Properties(user=[("k" * 60 + str(number), "v" * 400) for number in range(100)])
    for qos, kind in ((1, PacketType.PUBACK), (2, PacketType.PUBREC)):
        peer.send(Publish("a", b"x", qos, packet_id=5, properties=many))
        answer = await peer.expect(Acknowledgement)
        assert (answer.packet_type, answer.packet_id, answer.reason) == (kind, 5, ReasonCode.PACKET_TOO_LARGE)
        assert answer.properties.text(PropertyId.REASON_STRING)
    await peer.publish("a", b"x", 2, packet_id=5)


async def test_a_client_of_3_1_1_whose_message_was_refused_is_cut_off_a_little_later(
    dial: Dial, broker: Broker, server: MqttServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handlers_module, "REFUSAL_DELAY_S", 0.01)

    def full(*_messages: object) -> None:
        raise StoreError("DISK_FULL", "no room")

    peer = await client(dial, V4)
    await peer.publish("a", b"x", 1)
    monkeypatch.setattr(DeliveryService, "send_plain", full)
    peer.send(Publish("a", b"x", 1, packet_id=1))
    assert await peer.next_packet() is None


async def test_a_client_that_publishes_faster_than_a_rule_allows_is_told_so(dial: Dial, processor: Processor) -> None:
    processor.throttle = Throttle([parse_throttle_rule("client=quick calls=1")])
    server = MqttServer(processor, processor.backend, "127.0.0.1", 0)
    peer = await connect_to(await server.start())
    await peer.connect("quick")
    peer.send(*(Publish("a", b"x", 1, packet_id=number) for number in (1, 2)))
    found = {one.packet_id: one.reason for one in [await peer.expect(Acknowledgement) for _ in range(2)]}
    assert found == {1: ReasonCode.SUCCESS, 2: ReasonCode.MESSAGE_RATE_TOO_HIGH}
    await server.close()


async def test_a_clean_session_that_acknowledges_nothing_ends_rather_than_lose_messages(
    dial: Dial, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_module, "MAX_PENDING", 10)
    peer = await dial()
    await peer.connect(properties={PropertyId.RECEIVE_MAXIMUM: 1})
    await peer.subscribe("a", qos=1)
    sender = await client(dial)
    sender.send(*(Publish("a", b"", 1, packet_id=number + 1) for number in range(12)))
    await peer.expect(Publish)
    assert (await peer.expect(Disconnect)).reason is ReasonCode.QUOTA_EXCEEDED


async def test_a_burst_comes_whole_to_a_client_of_a_clean_session_that_acknowledges(
    dial: Dial, broker: Broker, server: MqttServer
) -> None:
    peer, sender = await client(dial), await client(dial)
    await sender.publish("a", b"first", 1)
    await peer.subscribe("a", qos=1)
    burst = [OutgoingMessage("mqtt", b"%d" % number, {"mqtt_topic": "a"}, queue_id=0) for number in range(5000)]
    for start in range(0, len(burst), 1000):
        await broker.delivery.send(burst[start : start + 1000])
    assert [(await peer.receive()).payload for _ in burst] == [one.body for one in burst]
    assert server.services.traffic.dropped == 0


async def test_what_a_client_of_a_clean_session_loses_is_counted_and_said(
    dial: Dial, server: MqttServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(session_module, "MAX_PENDING", 3)
    peer, sender = await client(dial), await client(dial)
    await peer.subscribe("a", qos=1)
    for _ in range(MAX_INFLIGHT + 4):
        await sender.publish("a", b"x", 1)
    while isinstance(packet := await peer.next_packet(), Publish):
        pass
    assert isinstance(packet, Disconnect)
    assert packet.reason is ReasonCode.QUOTA_EXCEEDED
    assert server.services.traffic.dropped == 4
    (line,) = [record for record in caplog.records if "waited for acknowledgements" in record.getMessage()]
    assert line.levelno == logging.WARNING
    page = MetricsPage(cluster="c", node_id="n")
    server.add_metrics(page)
    (counted,) = [one for one in page.text().splitlines() if one.startswith("millstream_port_dropped_total")]
    assert counted.endswith(" 4")


async def test_a_message_larger_than_the_client_takes_is_left_out(dial: Dial) -> None:
    peer = await dial()
    await peer.connect(properties={PropertyId.MAXIMUM_PACKET_SIZE: 100})
    await peer.subscribe("a", qos=1)
    sender = await client(dial)
    await sender.publish("a", b"x" * 200, 1)
    await sender.publish("a", b"y", 1)
    assert (await peer.receive()).payload == b"y"


async def test_an_unknown_pubrel_is_said_to_be_unknown(dial: Dial) -> None:
    peer = await client(dial)
    peer.send(Acknowledgement(PacketType.PUBREL, 77))
    answer = await peer.expect(Acknowledgement)
    assert (answer.packet_type, answer.reason) == (PacketType.PUBCOMP, ReasonCode.PACKET_IDENTIFIER_NOT_FOUND)


async def test_silent_clients_are_cut_off(broker: Broker, processor: Processor) -> None:
    clock = ManualClock()
    server = MqttServer(processor, LocalBackend(broker), "127.0.0.1", 0, clock=clock)
    port = await server.start()
    unknown, silent, alive = [await connect_to(port) for _ in range(3)]
    unknown.write(b"\x10")
    await silent.connect(keep_alive_s=60)
    await alive.connect(keep_alive_s=60)
    clock.advance_ms(round(CONNECT_LIMIT_S * 1000) + 1000)
    server.close_silent()
    assert await unknown.next_packet() is None
    clock.advance_ms(50_000)
    await alive.expect_nothing()
    clock.advance_ms(31_000)
    server.close_silent()
    assert (await silent.expect(Disconnect)).reason is ReasonCode.KEEP_ALIVE_TIMEOUT
    await alive.expect_nothing()
    assert server.connections == 1
    await server.close()
    assert (await alive.expect(Disconnect)).reason is ReasonCode.SERVER_SHUTTING_DOWN


async def test_a_topic_that_is_not_there_is_refused_and_the_connection_stays(
    broker: Broker, processor: Processor
) -> None:
    from millstream.proxy.mqtt.topic_rules import parse_topic_rule

    rules = [parse_topic_rule("there/#=orders"), parse_topic_rule("not/#=missing")]
    broker.topics.create(TopicConfig("orders"))
    server = MqttServer(processor, LocalBackend(broker), "127.0.0.1", 0, rules=rules)
    port = await server.start()
    peer = await connect_to(port)
    await peer.connect()
    for packet_id, topic in ((1, "not/1"), (2, "there/1")):
        peer.send(Publish(topic, b"x", 1, packet_id=packet_id))
    answers = {(await peer.expect(Acknowledgement)).packet_id: None for _ in range(2)}
    assert list(answers) == [1, 2]
    peer.send(Ping(PacketType.PINGREQ))
    await peer.expect(Ping)
    await server.close()
