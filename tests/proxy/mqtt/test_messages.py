"""Messages between clients of MQTT, and their records."""

from __future__ import annotations

import pytest
from mqtt_peer import Peer

from millstream.protocol.mqtt.packet_types import ProtocolVersion
from millstream.protocol.mqtt.packets import Publish
from millstream.protocol.mqtt.properties import Properties, PropertyId
from millstream.protocol.mqtt.reason_codes import ReasonCode

V4, V5 = ProtocolVersion.V3_1_1, ProtocolVersion.V5


@pytest.mark.parametrize("version", [ProtocolVersion.V3_1, V4, V5])
@pytest.mark.parametrize("qos", [0, 1, 2])
async def test_a_message_comes_to_who_has_subscribed_with_its_qos(dial, version: ProtocolVersion, qos: int) -> None:
    peer: Peer = await dial(version)
    assert (await peer.connect("c")).reason is ReasonCode.SUCCESS
    suback = await peer.subscribe("factory/+/x", qos=2)
    assert suback.reasons == [ReasonCode.GRANTED_QOS_2]
    other: Peer = await dial(V5)
    await other.connect("d")
    await other.publish("factory/1/x", b"payload", qos)
    await other.publish("factory/1/y", b"not wanted", qos)
    await other.publish("factory/2/x", b"", qos)
    for topic, payload in (("factory/1/x", b"payload"), ("factory/2/x", b"")):
        found = await peer.receive()
        assert (found.topic, found.payload, found.qos, found.retain) == (topic, payload, qos, False)
    await peer.expect_nothing()


async def test_all_fields_of_a_message_come_through_the_store(dial) -> None:
    peer: Peer = await dial()
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
