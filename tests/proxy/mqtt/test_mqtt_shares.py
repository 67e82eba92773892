"""Shared subscriptions."""

from __future__ import annotations

import asyncio

import pytest
from mqtt_peer import Dial, Peer

from millstream.broker.broker import Broker
from millstream.model.errors import ConsumeRefused
from millstream.model.light_queue import light_queue
from millstream.protocol.mqtt.packet_types import PacketType
from millstream.protocol.mqtt.packets import Acknowledgement, Disconnect, Publish, Subscribe, TopicSubscription
from millstream.protocol.mqtt.properties import PropertyId
from millstream.protocol.mqtt.reason_codes import ReasonCode
from millstream.proxy.mqtt.light_routes import share_queue_name
from millstream.proxy.mqtt.server import MqttServer
from millstream.proxy.mqtt.subscriptions import SessionSubscription
from patience import eventually


async def member(dial: Dial, *, topic_filter: str = "$share/g/a/#", qos: int = 1, receive_maximum: int = 100) -> Peer:
    peer = await dial()
    await peer.connect(properties={PropertyId.RECEIVE_MAXIMUM: receive_maximum})
    assert (await peer.subscribe(topic_filter, qos=qos)).reasons == [ReasonCode(qos)]
    return peer


async def test_each_message_comes_to_one_member_and_to_every_other_group(dial: Dial) -> None:
    members = [await member(dial) for _ in range(3)]
    other, plain = await member(dial, topic_filter="$share/h/a/+"), await member(dial, topic_filter="a/+")
    sender = await dial()
    await sender.connect()
    found: list[bytes] = []

    async def collect(peer: Peer) -> None:
        while True:
            found.append((await peer.receive()).payload)

    tasks = [asyncio.create_task(collect(peer)) for peer in members]
    bodies = [b"%d" % number for number in range(60)]
    for body in bodies:
        await sender.publish("a/x", body, 1)
    for peer in (other, plain):
        assert [(await peer.receive()).payload for _ in bodies] == bodies
    await eventually(lambda: len(found) == len(bodies))
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert sorted(found) == sorted(bodies)


async def test_what_a_member_has_not_acknowledged_goes_to_another_when_it_leaves(dial: Dial) -> None:
    slow = await member(dial, receive_maximum=2)
    sender = await dial()
    await sender.connect()
    for number in range(4):
        await sender.publish("a/x", b"%d" % number, 1)
    held = [(await slow.expect(Publish)).payload for _ in range(2)]
    assert held == [b"0", b"1"]
    await slow.expect_nothing()
    quick = await member(dial)
    assert {(await quick.receive()).payload for _ in range(2)} == {b"2", b"3"}
    slow.close()
    assert {(await quick.receive()).payload for _ in range(2)} == {b"0", b"1"}


async def test_the_group_is_a_consumer_group_that_shows_what_waits(dial: Dial, broker: Broker) -> None:
    peer = await member(dial, receive_maximum=1)
    assert broker.groups.find("g") is not None
    sender = await dial()
    await sender.connect()
    for body in (b"0", b"1", b"2"):
        await sender.publish("a/x", body, 1)
    await peer.expect(Publish)
    topic = light_queue(share_queue_name("g", "a/#"))
    assert broker.delivery.count_undelivered("g", topic, 0) == 2


async def test_nothing_that_is_retained_comes_to_a_shared_subscription(dial: Dial) -> None:
    sender = await dial()
    await sender.connect()
    await sender.publish("a/x", b"retained", 1, retain=True)
    peer = await member(dial)
    await peer.expect_nothing()


async def lasting_member(dial: Dial) -> Peer:
    peer = await dial()
    await peer.connect("member", clean_start=False, expiry_s=3600)
    return peer


async def test_a_message_of_qos_2_is_completed_with_the_member_that_it_was_sent_to(
    dial: Dial, server: MqttServer
) -> None:
    first = await lasting_member(dial)
    await first.subscribe("$share/g/a/#", qos=2)
    sender = await dial()
    await sender.connect()
    await sender.publish("a/x", b"one", 2)
    sent = await first.expect(Publish)
    other = await member(dial, qos=2)
    first.close()
    await eventually(lambda: server.services.traffic.sessions == 2)
    await sender.publish("a/x", b"two", 2)
    assert (await other.receive()).payload == b"two"
    await other.expect_nothing()
    for _ in range(2):
        # Also over a connection that ends before it is said to be there.
        first = await lasting_member(dial)
        again = await first.expect(Publish)
        assert (again.payload, again.qos, again.packet_id, again.dup) == (b"one", 2, sent.packet_id, True)
        first.send(Disconnect())
        assert await first.next_packet() is None
    first = await lasting_member(dial)
    again = await first.receive()
    assert (again.payload, again.packet_id) == (b"one", sent.packet_id)
    await first.expect_nothing()
    first.send(Disconnect())
    assert await first.next_packet() is None
    first = await lasting_member(dial)
    await first.expect_nothing()
    await other.expect_nothing()


async def test_a_message_of_qos_2_goes_to_nobody_else_when_the_session_of_its_member_ended(
    dial: Dial, server: MqttServer
) -> None:
    sender = await dial()
    await sender.connect()
    for has_received in (False, True):
        first = await member(dial, qos=2)
        await sender.publish("a/x", b"one", 2)
        sent = await first.expect(Publish)
        if has_received:
            first.send(Acknowledgement(PacketType.PUBREC, sent.packet_id))
            assert (await first.expect(Acknowledgement)).packet_type is PacketType.PUBREL
        first.close()
        await eventually(lambda: server.services.traffic.sessions == 1)
        other = await member(dial, qos=2)
        await sender.publish("a/x", b"two", 2)
        assert (await other.receive()).payload == b"two"
        await other.expect_nothing()
        other.close()
        await eventually(lambda: server.services.traffic.sessions == 1)


@pytest.mark.parametrize("is_cut", [False, True])
async def test_a_member_whose_subscribe_is_refused_or_cut_off_is_none(
    dial: Dial, server: MqttServer, monkeypatch: pytest.MonkeyPatch, *, is_cut: bool
) -> None:
    is_under_way = asyncio.Event()

    async def refuse(_made: SessionSubscription) -> None:
        is_under_way.set()
        if is_cut:
            await asyncio.Event().wait()
        raise ConsumeRefused("TOO_MANY_REQUESTS", "No more of them.")

    refused = await dial()
    await refused.connect()
    with monkeypatch.context() as patch:
        patch.setattr(server.services.subscriptions, "add", refuse)
        if is_cut:
            refused.send(Subscribe(1, [TopicSubscription("$share/g/a/#", 1)]))
            await is_under_way.wait()
            refused.close()
            await eventually(lambda: not server.connections)
        else:
            assert (await refused.subscribe("$share/g/a/#", qos=1)).reasons == [ReasonCode.QUOTA_EXCEEDED]
    await eventually(lambda: not len(server._shares))
    quick, sender = await member(dial), await dial()
    await sender.connect()
    for number in range(8):
        await sender.publish("a/x", b"%d" % number, 1)
    assert {(await quick.receive()).payload for _ in range(8)} == {b"%d" % number for number in range(8)}
