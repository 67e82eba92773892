"""Retained messages."""

from __future__ import annotations

from mqtt_peer import Dial, Peer

from millstream.protocol.mqtt.packet_types import ProtocolVersion
from millstream.protocol.mqtt.packets import Acknowledgement, Publish
from millstream.protocol.mqtt.properties import Properties, PropertyId
from millstream.protocol.mqtt.reason_codes import ReasonCode


async def client(dial: Dial, version: ProtocolVersion = ProtocolVersion.V5) -> Peer:
    peer = await dial(version)
    await peer.connect()
    return peer


async def test_the_last_retained_message_of_each_topic_comes_to_a_new_subscription(dial: Dial) -> None:
    sender = await client(dial)
    held = Properties({PropertyId.CONTENT_TYPE: "x"}, [("k", "v")])
    for topic, payload in (("a/1", b"old"), ("a/1", b"new"), ("a/2/b", b"two"), ("$a/1", b"special"), ("a", b"root")):
        sender.send(Publish(topic, payload, 0, True, properties=held))
    await sender.publish("a/3", b"gone", 1, retain=True)
    await sender.publish("a/3", b"", 1, retain=True)
    reader = await client(dial)
    await reader.subscribe("a/#", qos=1)
    found = {one.topic: one for one in [await reader.receive() for _ in range(3)]}
    assert {topic: one.payload for topic, one in found.items()} == {"a": b"root", "a/1": b"new", "a/2/b": b"two"}
    assert all(one.retain and one.properties == held for one in found.values())
    await reader.expect_nothing()
    await reader.subscribe("#")
    assert {(await reader.receive()).topic for _ in range(3)} == {"a", "a/1", "a/2/b"}
    await reader.subscribe("+/1")
    assert (await reader.receive()).topic == "a/1"
    await reader.expect_nothing()


async def test_retain_handling_says_when_they_come(dial: Dial) -> None:
    peer = await client(dial)
    await peer.publish("a", b"x", 1, retain=True)
    await peer.subscribe("a", retain_handling=2)
    await peer.expect_nothing()
    await peer.subscribe("a", retain_handling=1)
    await peer.expect_nothing()
    await peer.subscribe("a", retain_handling=0)
    assert (await peer.receive()).retain
    await peer.subscribe("+", retain_handling=1)
    assert (await peer.receive()).retain


async def test_the_flag_is_kept_on_the_way_only_where_it_is_asked_for(dial: Dial) -> None:
    plain, keeping, sender = await client(dial), await client(dial), await client(dial)
    await plain.subscribe("a")
    await keeping.subscribe("a", retain_as_published=1)
    await sender.publish("a", b"x", 1, retain=True)
    assert not (await plain.receive()).retain
    assert (await keeping.receive()).retain


async def test_a_publisher_that_subscribes_afterwards_gets_its_message_once(dial: Dial) -> None:
    peer = await client(dial)
    peer.send(Publish("a", b"x", 0, True))
    await peer.subscribe("a")
    assert (await peer.receive()).retain
    await peer.expect_nothing()


async def test_a_hundred_retained_messages_come_as_fast_as_they_are_acknowledged(dial: Dial) -> None:
    peer = await dial()
    await peer.connect(properties={PropertyId.RECEIVE_MAXIMUM: 7})
    sender = await client(dial)
    for number in range(100):
        await sender.publish(f"a/{number}", b"x", 1, retain=True)
    await peer.subscribe("a/+", qos=1)
    assert {(await peer.receive()).topic for _ in range(100)} == {f"a/{number}" for number in range(100)}


async def test_the_counts_of_the_port_are_retained_below_sys_and_nobody_publishes_there(dial: Dial) -> None:
    peer = await client(dial)
    await peer.subscribe("$SYS/broker/clients/#")
    found = await peer.receive()
    assert (found.topic, found.payload, found.retain) == ("$SYS/broker/clients/connected", b"1", True)
    peer.send(Publish("$SYS/broker/version", b"x", 1, packet_id=1))
    assert (await peer.expect(Acknowledgement)).reason is ReasonCode.NOT_AUTHORIZED
