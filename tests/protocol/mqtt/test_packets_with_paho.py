"""Properties and packets as paho-mqtt writes and reads them."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from packet_strategies import packets

from millstream.protocol.mqtt.decoding import decode_packet
from millstream.protocol.mqtt.encoding import encode_packet
from millstream.protocol.mqtt.frames import PacketFrames
from millstream.protocol.mqtt.packet_types import PacketType, ProtocolVersion
from millstream.protocol.mqtt.packets import Connect, Publish
from millstream.protocol.mqtt.properties import NO_PROPERTIES, PropertyId, decode_properties, encode_properties
from millstream.protocol.mqtt.reason_codes import ReasonCode
from millstream.protocol.mqtt.wire import FieldReader

properties = pytest.importorskip("paho.mqtt.properties", reason="paho-mqtt is not installed")
reasons = pytest.importorskip("paho.mqtt.reasoncodes", reason="paho-mqtt is not installed")

V5 = ProtocolVersion.V5
MAX_PACKET_BYTES = 268_435_455


@given(st.data())
def test_paho_reads_the_properties_that_are_written_and_writes_those_that_are_read(data: st.DataObject) -> None:
    packet = data.draw(packets(V5).filter(lambda one: getattr(one, "properties", NO_PROPERTIES) is not NO_PROPERTIES))
    # paho refuses this one as it reads; here the connection does, when it resolves the alias.
    assume(packet.properties.values.get(PropertyId.TOPIC_ALIAS) != 0)
    # The specification sets no upper bound (3.1.2.11.4); paho takes the largest packet that can be written for one.
    assume(packet.properties.values.get(PropertyId.MAXIMUM_PACKET_SIZE, 1) <= MAX_PACKET_BYTES)
    kind = PacketType(encode_packet(packet, V5)[0] >> 4)
    written = encode_properties(packet.properties)
    theirs = properties.Properties(int(kind))
    theirs.unpack(written)
    assert decode_properties(FieldReader(theirs.pack()), kind) == packet.properties


@pytest.mark.parametrize("reason", list(ReasonCode))
def test_every_reason_code_is_one_of_pahos(reason: ReasonCode) -> None:
    assert int(reason) in reasons.ReasonCode(15, identifier=24).names


def test_a_connect_and_a_publish_of_pahos_client_are_read() -> None:
    client_module = pytest.importorskip("paho.mqtt.client", reason="paho-mqtt is not installed")
    sent = bytearray()
    client = client_module.Client(client_module.CallbackAPIVersion.VERSION2, "c", protocol=5)
    client._packet_queue = lambda _command, packet, *_: sent.extend(packet) or 0
    client.username_pw_set("user", "secret")
    client.will_set("will", b"gone", 2, True)
    client._send_connect(60)
    client._sock = object()
    client._send_publish(7, b"a/b", b"payload", 1, False, False)
    client._sock = None
    connect, publish = [decode_packet(*frame, V5) for frame in PacketFrames(1 << 16).feed(bytes(sent))]
    assert isinstance(connect, Connect)
    assert isinstance(publish, Publish)
    assert (connect.client_id, connect.user_name, connect.password, connect.keep_alive_s) == (
        "c",
        "user",
        b"secret",
        60,
    )
    assert connect.will is not None
    assert (connect.will.topic, connect.will.payload, connect.will.qos, connect.will.retain) == (
        "will",
        b"gone",
        2,
        True,
    )
    assert (publish.topic, publish.payload, publish.qos, publish.packet_id) == ("a/b", b"payload", 1, 7)
