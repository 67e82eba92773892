"""Messages between clients of MQTT, and their records."""

from __future__ import annotations

import zlib

import pytest
from mqtt_peer import Dial

from millstream.broker.broker import Broker
from millstream.model.message import OutgoingMessage, SystemFlag
from millstream.model.operations import PullRequest
from millstream.protocol.batches import messages_of
from millstream.protocol.mqtt.packet_types import ProtocolVersion
from millstream.protocol.mqtt.packets import Publish
from millstream.protocol.mqtt.properties import Properties, PropertyId
from millstream.protocol.mqtt.reason_codes import ReasonCode
from millstream.proxy.local import LocalBackend
from millstream.proxy.processor import Processor

V4, V5 = ProtocolVersion.V3_1_1, ProtocolVersion.V5


@pytest.mark.parametrize("version", [ProtocolVersion.V3_1, V4, V5])
@pytest.mark.parametrize("qos", [0, 1, 2])
async def test_a_message_comes_to_who_has_subscribed_with_its_qos(
    dial: Dial, version: ProtocolVersion, qos: int
) -> None:
    peer = await dial(version)
    assert (await peer.connect("c")).reason is ReasonCode.SUCCESS
    suback = await peer.subscribe("factory/+/x", qos=2)
    assert suback.reasons == [ReasonCode.GRANTED_QOS_2]
    other = await dial(V5)
    await other.connect("d")
    await other.publish("factory/1/x", b"payload", qos)
    await other.publish("factory/1/y", b"not wanted", qos)
    await other.publish("factory/2/x", b"", qos)
    for topic, payload in (("factory/1/x", b"payload"), ("factory/2/x", b"")):
        found = await peer.receive()
        assert (found.topic, found.payload, found.qos, found.retain) == (topic, payload, qos, False)
    await peer.expect_nothing()


async def test_all_fields_of_a_message_come_through_the_store(dial: Dial) -> None:
    peer = await dial()
    await peer.connect()
    await peer.subscribe("#", qos=1)
    held = Properties(
        {
            PropertyId.PAYLOAD_FORMAT_INDICATOR: 1,
            PropertyId.CONTENT_TYPE: "text/plain",
            PropertyId.RESPONSE_TOPIC: "answers/\x01|41",
            PropertyId.CORRELATION_DATA: b"\x00\xff",
        },
        [("b", "1"), ("a", "\x02 |41"), ("b", "2"), ("KEYS", "x"), ("", "")],
    )
    peer.send(Publish("a b/\x7f/ü", b"x", 0, properties=held))
    found = await peer.receive()
    assert (found.topic, found.payload) == ("a b/\x7f/ü", b"x")
    assert found.properties == held


async def test_what_remains_of_its_time_is_said_and_what_is_over_does_not_come(dial: Dial) -> None:
    peer = await dial()
    await peer.connect("c", expiry_s=60)
    await peer.subscribe("a", qos=1)
    sender = await dial()
    await sender.connect()
    for seconds in (0, 3600):
        held = Properties({PropertyId.MESSAGE_EXPIRY_INTERVAL: seconds})
        sender.send(Publish("a", b"%d" % seconds, 0, True, properties=held))
    found = await peer.receive()
    assert found.payload == b"3600"
    assert 3500 < found.properties.number(PropertyId.MESSAGE_EXPIRY_INTERVAL, 0) <= 3600
    late = await dial()
    await late.connect()
    await late.subscribe("a")
    assert (await late.receive()).properties.number(PropertyId.MESSAGE_EXPIRY_INTERVAL, 0) <= 3600


async def test_overlapping_subscriptions_bring_a_message_once_with_the_highest_qos_and_all_identifiers(
    dial: Dial,
) -> None:
    peer = await dial()
    await peer.connect()
    await peer.subscribe("a/#", qos=0, subscription_id=3)
    await peer.subscribe("a/b", qos=1, subscription_id=7)
    await peer.subscribe("+/b", qos=0)
    await peer.publish("a/b", b"x", 1)
    found = await peer.receive()
    assert (found.qos, sorted(found.properties.subscription_ids)) == (1, [3, 7])
    await peer.expect_nothing()


async def test_no_local_keeps_a_clients_own_messages_from_it(dial: Dial) -> None:
    peer = await dial()
    await peer.connect("me")
    await peer.subscribe("a", no_local=1)
    await peer.publish("a", b"own", 1)
    other = await dial()
    await other.connect("other")
    await other.publish("a", b"other's", 1)
    assert (await peer.receive()).payload == b"other's"


async def test_topic_aliases_of_both_sides_stand_for_their_topics(dial: Dial) -> None:
    peer = await dial()
    await peer.connect(properties={PropertyId.TOPIC_ALIAS_MAXIMUM: 1})
    await peer.subscribe("a", "b", qos=0)
    sender = await dial()
    await sender.connect()
    alias = Properties({PropertyId.TOPIC_ALIAS: 5})
    sender.send(*(Publish(topic, b"x", 0, properties=alias) for topic in ("a", "", "b", "", "")))
    found = [await peer.receive() for _ in range(5)]
    aliases = [one.properties.values.get(PropertyId.TOPIC_ALIAS) for one in found]
    assert [one.topic for one in found] == ["a", "", "b", "b", "b"]
    assert aliases == [1, 1, None, None, None]


async def test_records_of_other_protocols_come_as_messages_and_messages_as_records(
    dial: Dial, processor: Processor, broker: Broker
) -> None:
    peer = await dial()
    await peer.connect()
    await peer.subscribe("mqtt/#", "given/#", qos=1)
    sent = [
        {"TAGS": "hot", "KEYS": "k1", "colour": "blue"},
        {"originMqttTopic": "given/1"},
        {"mqtt_topic": "given/2", "mqtt_qos": "0"},
    ]
    for held in sent:
        await processor.send([OutgoingMessage("mqtt", b"body", held)])
    first, second, third = [await peer.receive() for _ in range(3)]
    user = [("colour", "blue"), ("KEYS", "k1"), ("TAGS", "hot")]
    assert (first.topic, first.qos, first.properties.user) == ("mqtt/hot", 1, user)
    assert (second.topic, third.topic, third.qos) == ("given/1", "given/2", 0)
    await peer.publish("given/3", b"x", 1)
    request = PullRequest("g", "mqtt", 0, 3)
    (record,) = [one for raw in (await LocalBackend(broker).pull("", request)).records for one in messages_of(raw, 3)]
    assert (record.body, record.keys, record.properties["mqtt_topic"]) == (b"x", ("given/3",), "given/3")


async def test_a_packed_body_comes_unpacked_and_an_empty_one_of_amqp_is_empty(dial: Dial, processor: Processor) -> None:
    peer = await dial()
    await peer.connect()
    await peer.subscribe("mqtt/#", qos=1)
    packed = OutgoingMessage("mqtt", zlib.compress(b"body" * 1000), {}, system_flag=SystemFlag.COMPRESSED)
    await processor.send([packed, OutgoingMessage("mqtt", b" ", {"IS_EMPTY_MSG": "true"})])
    assert [(await peer.receive()).payload for _ in range(2)] == [b"body" * 1000, b""]


async def test_an_expiry_that_mqtt_cannot_say_is_the_longest_that_it_can(dial: Dial, processor: Processor) -> None:
    peer = await dial()
    await peer.connect()
    await peer.subscribe("mqtt", qos=1)
    await processor.send([OutgoingMessage("mqtt", b"x", {"__EXPIRES_MS": "32472144000000"})])
    assert (await peer.receive()).properties.number(PropertyId.MESSAGE_EXPIRY_INTERVAL, 0) == 0xFFFFFFFF


async def test_a_message_with_the_attributes_of_an_event_is_stored_as_one(dial: Dial, broker: Broker) -> None:
    peer = await dial()
    await peer.connect()
    await peer.subscribe("a", qos=1)
    user = [("specversion", "1.0"), ("id", "1"), ("source", "/s"), ("type", "t"), ("No Name", "x"), ("tenant", "t1")]
    peer.send(Publish("a", b"x", 0, properties=Properties(user=user)))
    assert (await peer.receive()).properties.user == user
    request = PullRequest("g", "mqtt", 0, 0)
    [record] = [one for raw in (await LocalBackend(broker).pull("", request)).records for one in messages_of(raw, 0)]
    assert {name: record.properties[name] for name in ("CE_id", "CE_tenant", "No Name")} == {
        "CE_id": "1",
        "CE_tenant": "t1",
        "No Name": "x",
    }
    assert "id" not in record.properties
