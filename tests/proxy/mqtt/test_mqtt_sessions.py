"""Sessions that outlive their connections: what came meanwhile, what was not acknowledged, takeovers."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from mqtt_peer import Dial, Peer

from millstream.model.errors import ConnectionFailed
from millstream.model.message import StoredMessage
from millstream.model.operations import PoppedMessage, PopRequest
from millstream.protocol.mqtt.packet_types import PacketType, ProtocolVersion
from millstream.protocol.mqtt.packets import (
    Acknowledgement,
    Disconnect,
    Publish,
    Subscribe,
    TopicSubscription,
    Unsuback,
    Unsubscribe,
)
from millstream.protocol.mqtt.properties import Properties, PropertyId
from millstream.protocol.mqtt.reason_codes import ReasonCode
from millstream.proxy.feed import FeedPlace
from millstream.proxy.mqtt.server import MqttServer
from millstream.proxy.mqtt.session_records import StoredPacketIds

V4, V5 = ProtocolVersion.V3_1_1, ProtocolVersion.V5
HOUR = {PropertyId.SESSION_EXPIRY_INTERVAL: 3600}


async def lasting(dial: Dial, version: ProtocolVersion = V5, client_id: str = "lasting") -> tuple[Peer, bool]:
    """A client whose session lasts, and whether the session was there."""
    peer = await dial(version)
    connack = await peer.connect(client_id, clean_start=False, expiry_s=3600)
    assert connack.reason is ReasonCode.SUCCESS
    return peer, connack.session_present


async def publisher(dial: Dial) -> Peer:
    peer = await dial()
    await peer.connect()
    return peer


@pytest.mark.parametrize("version", [V4, V5])
async def test_what_came_while_a_client_was_away_comes_when_it_is_back(dial: Dial, version: ProtocolVersion) -> None:
    peer, present = await lasting(dial, version)
    assert not present
    await peer.subscribe("a/#", qos=1)
    sender = await publisher(dial)
    await sender.publish("a/0", b"here", 1)
    assert (await peer.receive()).payload == b"here"
    peer.send(Disconnect())
    assert await peer.next_packet() is None
    for number in range(5):
        await sender.publish(f"a/{number}", b"%d" % number, 1 + number % 2)
    peer, present = await lasting(dial, version)
    assert present
    found = [await peer.receive() for _ in range(5)]
    assert [(one.topic, one.payload, one.qos) for one in found] == [(f"a/{n}", b"%d" % n, 1) for n in range(5)]
    await peer.expect_nothing()


async def test_what_was_not_acknowledged_comes_again_in_its_order_with_dup_and_its_identifier(dial: Dial) -> None:
    peer, _ = await lasting(dial)
    await peer.subscribe("a", qos=2)
    sender = await publisher(dial)
    for number in range(4):
        await sender.publish("a", b"%d" % number, 2)
    first = [await peer.expect(Publish) for _ in range(4)]
    assert not any(one.dup for one in first)
    peer.send(Acknowledgement(PacketType.PUBREC, first[1].packet_id))
    assert (await peer.expect(Acknowledgement)).packet_type is PacketType.PUBREL
    peer.close()
    peer, present = await lasting(dial)
    assert present
    release = await peer.expect(Acknowledgement)
    assert (release.packet_type, release.packet_id) == (PacketType.PUBREL, first[1].packet_id)
    peer.send(Acknowledgement(PacketType.PUBCOMP, release.packet_id))
    again = [await peer.receive() for _ in range(3)]
    expected = [(b"0", True), (b"2", True), (b"3", True)]
    assert [(one.payload, one.dup) for one in again] == expected
    assert [one.packet_id for one in again] == [first[0].packet_id, first[2].packet_id, first[3].packet_id]
    await peer.expect_nothing()


async def test_a_message_of_qos_2_is_stored_once_though_it_is_sent_over_two_connections(dial: Dial) -> None:
    reader = await publisher(dial)
    await reader.subscribe("a", qos=2)
    peer, _ = await lasting(dial)
    message = Publish("a", b"once", 2, packet_id=9)
    peer.send(message)
    assert (await peer.expect(Acknowledgement)).packet_type is PacketType.PUBREC
    peer.close()
    peer, _ = await lasting(dial)
    message.dup = True
    peer.send(message)
    assert (await peer.expect(Acknowledgement)).packet_type is PacketType.PUBREC
    peer.send(Acknowledgement(PacketType.PUBREL, 9))
    assert (await peer.expect(Acknowledgement)).reason is ReasonCode.SUCCESS
    peer.send(Acknowledgement(PacketType.PUBREL, 9))
    assert (await peer.expect(Acknowledgement)).reason is ReasonCode.PACKET_IDENTIFIER_NOT_FOUND
    message.dup = False
    peer.send(message)
    assert (await peer.expect(Acknowledgement)).packet_type is PacketType.PUBREC
    assert [(await reader.receive()).payload for _ in range(2)] == [b"once", b"once"]
    await reader.expect_nothing()


async def test_a_message_of_qos_2_whose_identifier_alone_was_stored_before_a_crash_is_stored_when_it_comes_again(
    dial: Dial, server: MqttServer
) -> None:
    reader = await publisher(dial)
    await reader.subscribe("a", qos=2)
    peer, _ = await lasting(dial)
    peer.send(Disconnect())
    assert await peer.next_packet() is None
    await server.sessions.settle()
    noted = StoredPacketIds(received={9: server.clock.now_ms()})
    await server.sessions.store.put_packet_ids("lasting", noted)
    peer, present = await lasting(dial)
    assert present
    for _ in range(2):
        peer.send(Publish("a", b"once", 2, dup=True, packet_id=9))
        assert (await peer.expect(Acknowledgement)).packet_type is PacketType.PUBREC
    assert (await reader.receive()).payload == b"once"
    await reader.expect_nothing()


async def test_more_messages_than_the_client_takes_wait_in_the_store(dial: Dial) -> None:
    peer = await dial()
    await peer.connect("slow", expiry_s=3600, properties={PropertyId.RECEIVE_MAXIMUM: 3})
    await peer.subscribe("a", qos=1)
    sender = await publisher(dial)
    for number in range(10):
        await sender.publish("a", b"%d" % number, 1)
    held = [await peer.expect(Publish) for _ in range(3)]
    await peer.expect_nothing()
    for one in held:
        peer.send(Acknowledgement(PacketType.PUBACK, one.packet_id))
    assert [(await peer.receive()).payload for _ in range(7)] == [b"%d" % number for number in range(3, 10)]


async def test_a_clean_start_ends_the_session_that_was_there(dial: Dial) -> None:
    peer, _ = await lasting(dial)
    await peer.subscribe("a", qos=1)
    peer.send(Disconnect())
    assert await peer.next_packet() is None
    sender = await publisher(dial)
    await sender.publish("a", b"lost", 1)
    peer = await dial()
    assert not (await peer.connect("lasting", clean_start=True)).session_present
    await sender.publish("a", b"lost", 1)
    await peer.expect_nothing()
    peer.close()
    _, present = await lasting(dial)
    assert not present


async def test_a_session_with_no_expiry_ends_with_its_connection(dial: Dial) -> None:
    peer, _ = await lasting(dial)
    await peer.subscribe("a", qos=1)
    peer.send(Disconnect(properties=Properties({PropertyId.SESSION_EXPIRY_INTERVAL: 0})))
    assert await peer.next_packet() is None
    _, present = await lasting(dial)
    assert not present


async def test_a_second_connection_of_a_client_id_takes_over_and_the_first_is_told(dial: Dial) -> None:
    first, _ = await lasting(dial)
    await first.subscribe("a", qos=1)
    sender = await publisher(dial)
    await sender.publish("a", b"not acknowledged", 1)
    await first.expect(Publish)
    second, present = await lasting(dial)
    assert present
    assert (await first.expect(Disconnect)).reason is ReasonCode.SESSION_TAKEN_OVER
    assert await first.next_packet() is None
    again = await second.receive()
    assert (again.payload, again.dup) == (b"not acknowledged", True)


async def test_of_many_connections_of_a_client_id_one_stays(dial: Dial) -> None:
    peers = await asyncio.gather(*(dial() for _ in range(5)))
    await asyncio.gather(*(peer.connect("same", clean_start=False, expiry_s=60) for peer in peers))
    ended = [peer for peer in peers if isinstance(await asyncio.wait_for(answer(peer), 20), Disconnect)]
    assert len(ended) == 4


async def answer(peer: Peer) -> object:
    """What comes next, if only the answer to a ping."""
    from millstream.protocol.mqtt.packets import Ping

    peer.send(Ping(PacketType.PINGREQ))
    return await peer.next_packet()


async def test_what_was_unsubscribed_does_not_come(dial: Dial) -> None:
    peer, _ = await lasting(dial)
    await peer.subscribe("a", "b", qos=1)
    peer.send(Unsubscribe(3, ["a", "c"]))
    assert (await peer.expect(Unsuback)).reasons == [ReasonCode.SUCCESS, ReasonCode.NO_SUBSCRIPTION_EXISTED]
    sender = await publisher(dial)
    await sender.publish("a", b"x", 1)
    await sender.publish("b", b"y", 1)
    assert (await peer.receive()).payload == b"y"
    peer.close()
    peer, present = await lasting(dial)
    assert present
    await sender.publish("a", b"x", 1)
    await sender.publish("b", b"z", 1)
    assert (await peer.receive()).payload == b"z"
    await peer.expect_nothing()


async def test_of_a_new_session_nothing_is_read_before_a_message_comes(
    dial: Dial, server: MqttServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = server.services.backend
    pops: list[str] = []
    pop = backend.pop

    async def count_pop(broker_name: str, request: PopRequest) -> list[PoppedMessage]:
        pops.append(request.topic)
        return await pop(broker_name, request)

    monkeypatch.setattr(backend, "pop", count_pop)
    peer, _ = await lasting(dial)
    await peer.subscribe("a", qos=1)
    assert not pops
    sender = await publisher(dial)
    await sender.publish("a", b"first", 1)
    assert (await peer.receive()).payload == b"first"
    assert pops


async def test_what_waits_for_a_session_that_a_crash_left_without_its_subscription_comes_with_the_next_one(
    dial: Dial, server: MqttServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    peer, _ = await lasting(dial)

    async def fail(_session: object) -> None:
        raise ConnectionFailed("UNREACHABLE", "The proxy is killed here.")

    with monkeypatch.context() as patch:
        patch.setattr(server.sessions.store, "put", fail)
        peer.send(Subscribe(1, [TopicSubscription("a", 1)]))
        await peer.expect(Disconnect)
        await server.sessions.settle()
    sender = await publisher(dial)
    await sender.publish("a", b"waits", 1)
    peer, present = await lasting(dial)
    assert present
    peer.send(Subscribe(1, [TopicSubscription("a", 1)]))
    found = [await peer.next_packet() for _ in range(2)]
    assert [one.payload for one in found if isinstance(one, Publish)] == [b"waits"]


async def test_a_message_of_which_the_feed_passed_over_the_record_comes_nevertheless(
    dial: Dial, server: MqttServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    peer, _ = await lasting(dial)
    await peer.subscribe("a", qos=1)
    subscriptions, passed_over = server.services.subscriptions, asyncio.Event()

    def pass_over(topic: str, messages: Sequence[StoredMessage], place: FeedPlace) -> None:
        subscriptions.note_gap(topic, len(messages), place)
        passed_over.set()

    monkeypatch.setattr(subscriptions, "deliver", pass_over)
    sender = await publisher(dial)
    await sender.publish("a", b"1", 1)
    await passed_over.wait()
    assert (await peer.receive()).payload == b"1"
