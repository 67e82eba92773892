"""Statements of the specification that no other test is about."""

from __future__ import annotations

import pytest
from mqtt_peer import Dial, Peer

from millstream.broker.broker import Broker
from millstream.broker.pop import pop_scan
from millstream.model.message import OutgoingMessage
from millstream.protocol.mqtt.encoding import encode_packet
from millstream.protocol.mqtt.packet_types import PacketType, ProtocolVersion
from millstream.protocol.mqtt.packets import (
    Acknowledgement,
    Connack,
    Connect,
    Disconnect,
    Packet,
    Publish,
    Suback,
    Subscribe,
    TopicSubscription,
    Unsuback,
    Unsubscribe,
)
from millstream.protocol.mqtt.properties import Properties, PropertyId
from millstream.protocol.mqtt.reason_codes import ReasonCode
from millstream.proxy.mqtt.application_message import ApplicationMessage
from millstream.proxy.mqtt.server import MqttServer

V5 = ProtocolVersion.V5
FEW_BYTES = 30
PUBACK, PUBREC, PUBREL, PUBCOMP = PacketType.PUBACK, PacketType.PUBREC, PacketType.PUBREL, PacketType.PUBCOMP


async def lasting(dial: Dial, client_id: str = "lasting") -> Peer:
    peer = await dial()
    await peer.connect(client_id, clean_start=False, expiry_s=3600)
    return peer


async def client(dial: Dial, **properties: int) -> Peer:
    peer = await dial()
    await peer.connect(properties={PropertyId[name.upper()]: value for name, value in properties.items()})
    return peer


async def give_up(peer: Peer) -> None:
    """Go without a word, so that what was not acknowledged comes again."""
    peer.send(Disconnect())
    assert await peer.next_packet() is None


@pytest.mark.parametrize("client_id", ["a", "Z9", "0123456789abcdefghijklm"])
async def test_client_ids_of_1_to_23_letters_and_digits_are_taken(dial: Dial, client_id: str) -> None:
    peer = await dial()
    connack = await peer.connect(client_id)
    assert connack.reason is ReasonCode.SUCCESS
    assert PropertyId.ASSIGNED_CLIENT_IDENTIFIER not in connack.properties.values


async def test_nothing_comes_before_connack(dial: Dial, broker: Broker) -> None:
    peer = await lasting(dial)
    await peer.subscribe("a", qos=1)
    await give_up(peer)
    sender = await client(dial)
    for round_number in range(5):
        await sender.publish("a", b"waits", 1)
        peer = await dial()
        # In one turn with the packets of others: what waits and what comes now are on their way at once.
        peer.send(Connect("lasting", V5, False, 0, properties=Properties({PropertyId.SESSION_EXPIRY_INTERVAL: 3600})))
        await broker.delivery.send([OutgoingMessage("mqtt", b"now", {"mqtt_topic": "a"}, queue_id=0)])
        assert (await peer.expect(Connack)).session_present, round_number
        assert [(await peer.receive()).payload for _ in range(2)] == [b"waits", b"now"]
        await give_up(peer)


async def test_a_message_without_the_flag_leaves_the_retained_one_as_it_is(dial: Dial) -> None:
    sender = await client(dial)
    await sender.publish("a", b"retained", 1, retain=True)
    await sender.publish("a", b"plain", 1)
    await sender.publish("b", b"plain", 1)
    peer = await client(dial)
    await peer.subscribe("#", qos=1)
    found = await peer.receive()
    assert (found.topic, found.payload, found.retain) == ("a", b"retained", True)
    await peer.expect_nothing()


def assert_bare(packet: Packet) -> None:
    """Without words, and within what the client takes."""
    properties = packet.properties  # type: ignore[union-attr]
    assert PropertyId.REASON_STRING not in properties.values
    assert not properties.user


async def test_no_answer_has_words_for_which_the_client_has_no_room(dial: Dial) -> None:
    peer = await client(dial, maximum_packet_size=FEW_BYTES)
    many = Properties(user=[("k" * 60 + str(number), "v" * 400) for number in range(100)])
    for qos, kind in ((1, PUBACK), (2, PUBREC)):
        peer.send(Publish("a", b"x", qos, packet_id=5, properties=many))
        answer = await peer.expect(Acknowledgement)
        assert (answer.packet_type, answer.reason) == (kind, ReasonCode.PACKET_TOO_LARGE)
        assert_bare(answer)
    peer.send(Acknowledgement(PUBREL, 77))
    answer = await peer.expect(Acknowledgement)
    assert (answer.packet_type, answer.reason) == (PUBCOMP, ReasonCode.PACKET_IDENTIFIER_NOT_FOUND)
    assert_bare(answer)
    peer.send(Acknowledgement(PUBREC, 78))
    answer = await peer.expect(Acknowledgement)
    assert (answer.packet_type, answer.reason) == (PUBREL, ReasonCode.PACKET_IDENTIFIER_NOT_FOUND)
    assert_bare(answer)
    peer.send(Subscribe(1, [TopicSubscription("a#", 1)]), Unsubscribe(2, ["b"]))
    suback, unsuback = await peer.expect(Suback), await peer.expect(Unsuback)
    assert (suback.reasons, unsuback.reasons) == (
        [ReasonCode.TOPIC_FILTER_INVALID],
        [ReasonCode.NO_SUBSCRIPTION_EXISTED],
    )
    assert_bare(suback)
    assert_bare(unsuback)
    peer.write(b"\x36\x00")
    told = await peer.expect(Disconnect)
    assert_bare(told)
    assert all(len(encode_packet(one, V5)) <= FEW_BYTES for one in (answer, suback, unsuback, told))


async def test_connack_has_no_words_for_which_the_client_has_no_room(dial: Dial) -> None:
    peer = await dial()
    connack = await peer.connect("x" * 300, properties={PropertyId.MAXIMUM_PACKET_SIZE: FEW_BYTES})
    assert connack.reason is ReasonCode.CLIENT_IDENTIFIER_NOT_VALID
    assert_bare(connack)
    assert len(encode_packet(connack, V5)) <= FEW_BYTES


@pytest.mark.parametrize("qos", [1, 2])
async def test_a_delivery_that_began_before_unsubscribe_is_completed(dial: Dial, qos: int) -> None:
    peer, sender = await lasting(dial), await client(dial)
    await peer.subscribe("a", qos=qos)
    await sender.publish("a", b"x", qos)
    first = await peer.expect(Publish)
    peer.send(Unsubscribe(1, ["a"]))
    await peer.expect(Unsuback)
    if qos == 1:
        peer.send(Acknowledgement(PUBACK, first.packet_id))
    else:
        peer.send(Acknowledgement(PUBREC, first.packet_id))
        assert (await peer.expect(Acknowledgement)) == Acknowledgement(PUBREL, first.packet_id)
        peer.send(Acknowledgement(PUBCOMP, first.packet_id))
    await peer.expect_nothing()
    await give_up(peer)
    await (await lasting(dial)).expect_nothing()


async def test_a_publish_with_the_identifier_of_an_acknowledged_one_is_a_new_message(dial: Dial) -> None:
    peer, sender = await client(dial), await client(dial)
    await peer.subscribe("a", qos=1)
    for _ in range(2):
        await sender.publish("a", b"x", 1, packet_id=5)
        assert (await peer.receive()).payload == b"x"


@pytest.mark.parametrize("qos", [1, 2])
async def test_a_message_that_was_sent_comes_again_though_its_time_is_over(
    dial: Dial, qos: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    peer, sender = await lasting(dial), await client(dial)
    await peer.subscribe("a", qos=2)
    held = Properties({PropertyId.MESSAGE_EXPIRY_INTERVAL: 3600})
    sender.send(Publish("a", b"sent", qos, packet_id=5, properties=held))
    first = await peer.expect(Publish)
    await give_up(peer)
    sender.send(Publish("a", b"not sent", qos, packet_id=6, properties=held))
    sender.send(Publish("a", b"last", qos, packet_id=7))
    for _ in range(3):
        await sender.expect(Acknowledgement)
    monkeypatch.setattr(pop_scan, "is_expired", lambda properties, _now_ms: "__EXPIRES_MS" in properties)
    monkeypatch.setattr(ApplicationMessage, "is_expired", lambda message, _now_ms: message.expires_ms is not None)
    peer = await lasting(dial)
    again, last = await peer.expect(Publish), await peer.expect(Publish)
    assert (again.payload, again.packet_id, again.dup) == (b"sent", first.packet_id, True)
    assert (last.payload, last.dup) == (b"last", False)


async def test_a_message_of_qos_2_whose_time_is_over_is_acknowledged_to_its_end(dial: Dial) -> None:
    sender = await client(dial)
    sender.send(Publish("a", b"x", 2, packet_id=5, properties=Properties({PropertyId.MESSAGE_EXPIRY_INTERVAL: 0})))
    assert await sender.expect(Acknowledgement) == Acknowledgement(PUBREC, 5)
    sender.send(Acknowledgement(PUBREL, 5))
    assert await sender.expect(Acknowledgement) == Acknowledgement(PUBCOMP, 5)


@pytest.mark.parametrize(("qos", "kind"), [(1, PUBACK), (2, PUBREC)])
async def test_a_message_that_its_receiver_refuses_does_not_come_again(dial: Dial, qos: int, kind: PacketType) -> None:
    peer, sender = await lasting(dial), await client(dial)
    await peer.subscribe("a", qos=qos)
    await sender.publish("a", b"x", qos)
    first = await peer.expect(Publish)
    peer.send(Acknowledgement(kind, first.packet_id, ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR))
    await peer.expect_nothing()
    await give_up(peer)
    await (await lasting(dial)).expect_nothing()


@pytest.mark.parametrize(("qos", "kind"), [(1, PUBACK), (2, PUBREC)])
async def test_a_message_that_a_member_refuses_goes_to_no_other_member(
    dial: Dial, server: MqttServer, qos: int, kind: PacketType
) -> None:
    peer, sender = await client(dial), await client(dial)
    await peer.subscribe("$share/g/a", qos=qos)
    await sender.publish("a", b"x", qos)
    first = await peer.expect(Publish)
    other = await client(dial)
    await other.subscribe("$share/g/a", qos=qos)
    peer.send(Acknowledgement(kind, first.packet_id, ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR))
    await peer.expect_nothing()
    await give_up(peer)
    await server.sessions.settle()
    await sender.publish("a", b"y", qos)
    assert (await other.expect(Publish)).payload == b"y"
