"""Packets of both versions: what is written is read, however it is cut, and nothing that arrives breaks the reader."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packet_strategies import packets, versions

from millstream.protocol.mqtt.decoding import MAX_FILTERS, decode_packet
from millstream.protocol.mqtt.encoding import encode_packet
from millstream.protocol.mqtt.errors import PacketRefused
from millstream.protocol.mqtt.frames import PacketFrames
from millstream.protocol.mqtt.packet_types import ProtocolVersion
from millstream.protocol.mqtt.packets import Connect, Packet, Publish, Subscribe, TopicSubscription
from millstream.protocol.mqtt.properties import MAX_USER_PROPERTIES, Properties, PropertyId
from millstream.protocol.mqtt.reason_codes import ReasonCode, connect_return_code

V4, V5 = ProtocolVersion.V3_1_1, ProtocolVersion.V5
ROOM = 1 << 20
MALFORMED, VIOLATION = ReasonCode.MALFORMED_PACKET, ReasonCode.PROTOCOL_ERROR
UNKNOWN_VERSION = ReasonCode.UNSUPPORTED_PROTOCOL_VERSION


def read(data: bytes, version: ProtocolVersion) -> list[Packet]:
    decoder = PacketFrames(ROOM)
    found = [decode_packet(first, body, version) for first, body in decoder.feed(data)]
    assert decoder.failure is None
    assert not decoder.held_bytes
    return found


@given(st.data())
def test_what_is_written_is_read(data: st.DataObject) -> None:
    version = data.draw(versions)
    packet = data.draw(packets(version))
    assert read(encode_packet(packet, version), version) == [packet]


@given(st.data())
def test_packets_are_the_same_however_their_bytes_are_cut(data: st.DataObject) -> None:
    version = data.draw(versions)
    written = data.draw(st.lists(packets(version), min_size=1, max_size=4))
    stream = b"".join(encode_packet(packet, version) for packet in written)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=5)))
    decoder, found = PacketFrames(ROOM), []
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        found += decoder.feed(stream[start:end])
    assert [decode_packet(first, body, version) for first, body in found] == written


def test_a_packet_that_comes_byte_by_byte_is_read_once() -> None:
    packet = Publish("a/b", b"x" * 300, 1, packet_id=7)
    decoder, found = PacketFrames(ROOM), []
    for byte in encode_packet(packet, V4):
        found += decoder.feed(bytes((byte,)))
    assert [decode_packet(first, body, V4) for first, body in found] == [packet]


@given(st.data())
def test_bytes_that_were_changed_are_read_or_refused(data: st.DataObject) -> None:
    version = data.draw(versions)
    stream = bytearray(encode_packet(data.draw(packets(version)), version))
    for _ in range(data.draw(st.integers(1, 3))):
        stream[data.draw(st.integers(0, len(stream) - 1))] = data.draw(st.integers(0, 255))
    look_at_anything(bytes(stream), version)


@given(st.binary(max_size=60), versions)
def test_any_bytes_are_read_or_refused(stream: bytes, version: ProtocolVersion) -> None:
    look_at_anything(stream, version)


@given(st.data())
def test_a_packet_that_ends_too_early_is_refused(data: st.DataObject) -> None:
    version = data.draw(versions)
    (frame,) = PacketFrames(ROOM).feed(encode_packet(data.draw(packets(version)), version))
    first, body = frame
    for end in range(len(body)):
        look_at_frame(first, body[:end], version)


def look_at_anything(stream: bytes, version: ProtocolVersion) -> None:
    decoder = PacketFrames(ROOM)
    for first, body in decoder.feed(stream):
        look_at_frame(first, body, version)


def look_at_frame(first: int, body: bytes, version: ProtocolVersion) -> None:
    try:
        packet = decode_packet(first, body, version)
    except PacketRefused:
        return
    told = packet.version if isinstance(packet, Connect) else version
    assert read(encode_packet(packet, told), told) == [packet]


CONNECT_HEAD = b"\x00\x04MQTT"


@pytest.mark.parametrize(
    ("stream", "reason", "case"),
    [
        (b"\x00\x00", MALFORMED, "type 0"),
        (b"\x36\x05\x00\x01a\x00\x01", MALFORMED, "QoS 3"),
        (b"\x38\x04\x00\x01a\x00", MALFORMED, "DUP with QoS 0"),
        (b"\x32\x06\x00\x01a\x00\x00\x00", MALFORMED, "packet identifier 0"),
        (b"\x30\x04\x00\x01#\x00", ReasonCode.TOPIC_NAME_INVALID, "wildcard in a topic name"),
        (b"\x30\x05\x00\x02\xc3\x28\x00", MALFORMED, "no UTF-8"),
        (b"\x30\x06\x00\x03\xed\xa0\x80\x00", MALFORMED, "a surrogate"),
        (b"\x30\x04\x00\x01\x00\x00", MALFORMED, "U+0000"),
        (b"\x60\x02\x00\x01", MALFORMED, "PUBREL without its flag"),
        (b"\x80\x06\x00\x01\x00\x00\x01a", MALFORMED, "SUBSCRIBE without its flag"),
        (b"\x82\x03\x00\x01\x00", VIOLATION, "SUBSCRIBE without filters"),
        (b"\x82\x07\x00\x01\x00\x00\x01a\x03", MALFORMED, "SUBSCRIBE with QoS 3"),
        (b"\x82\x07\x00\x01\x00\x00\x01a\x30", VIOLATION, "retain handling 3"),
        (b"\x82\x07\x00\x01\x00\x00\x01a\x40", MALFORMED, "reserved option"),
        (b"\x82\x07\x00\x00\x00\x00\x01a\x00", VIOLATION, "SUBSCRIBE with identifier 0"),
        (b"\xa2\x03\x00\x01\x00", VIOLATION, "UNSUBSCRIBE without filters"),
        (b"\xc0\x01\x00", MALFORMED, "PINGREQ with something in it"),
        (b"\x40\x04\x00\x01\x05\x00", MALFORMED, "unknown reason"),
        (b"\x30\x09\x00\x01a\x05\x23\x00\x01\x7f\x00", MALFORMED, "unknown property"),
        (b"\x30\x07\x00\x01a\x03\x21\x00\x01", MALFORMED, "property of another packet"),
        (b"\x30\x08\x00\x01a\x04\x01\x01\x01\x01", VIOLATION, "property twice"),
        (b"\x30\x06\x00\x01a\x02\x01\x02", VIOLATION, "flag that is 2"),
        (b"\x30\x06\x00\x01a\x09\x01\x01", MALFORMED, "properties beyond the packet"),
        (b"\x30\x06\x00\x01a\x02\x0b\x00", VIOLATION, "subscription identifier 0"),
        (b"\x30\x08\x00\x01a\x04\x08\x00\x01#", VIOLATION, "wildcard in a response topic"),
        (b"\x30\x05\x00\x01a\x80\x00", MALFORMED, "number longer than it must be"),
        (b"\x10\x0d" + CONNECT_HEAD + b"\x06\x02\x00\x00\x00\x00\x00", UNKNOWN_VERSION, "version 6"),
        (b"\x10\x0d\x00\x04mqtt\x05\x02\x00\x00\x00\x00\x00", UNKNOWN_VERSION, "other protocol"),
        (b"\x10\x0d" + CONNECT_HEAD + b"\x05\x03\x00\x00\x00\x00\x00", MALFORMED, "reserved flag"),
        (b"\x10\x0d" + CONNECT_HEAD + b"\x05\x22\x00\x00\x00\x00\x00", MALFORMED, "will retain, no will"),
        (b"\x10\x0d" + CONNECT_HEAD + b"\x05\x0a\x00\x00\x00\x00\x00", MALFORMED, "will QoS, no will"),
        (b"\x10\x10\x00\x04MQTT\x05\x02\x00\x00\x03\x21\x00\x00\x00\x00", VIOLATION, "receive maximum 0"),
    ],
)  # fmt: skip
def test_a_malformed_packet_is_refused_with_the_reason_of_the_specification(
    stream: bytes, reason: ReasonCode, case: str
) -> None:
    decoder = PacketFrames(ROOM)
    ((first, body),) = decoder.feed(stream)
    with pytest.raises(PacketRefused) as refusal:
        decode_packet(first, body, V5)
    assert refusal.value.reason is reason, case


def test_a_password_without_a_user_name_is_refused_from_clients_of_3_1_1_alone() -> None:
    body = b"\x00\x04MQTT\x04\x42\x00\x00\x00\x01c\x00\x01p"
    with pytest.raises(PacketRefused, match="password"):
        decode_packet(0x10, body, V5)
    packet = Connect("c", V5, password=b"p")
    assert read(encode_packet(packet, V5), V5) == [packet]


def test_a_packet_over_the_limit_is_refused_before_it_is_received_and_those_before_it_are_read() -> None:
    decoder = PacketFrames(10)
    frames = decoder.feed(b"\xc0\x00" + b"\x30\x0b")
    assert frames == [(0xC0, b"")]
    assert decoder.failure is not None
    assert decoder.failure.reason is ReasonCode.PACKET_TOO_LARGE
    assert decoder.feed(b"\xc0\x00") == []


def test_a_length_of_more_than_four_bytes_is_malformed() -> None:
    decoder = PacketFrames(ROOM)
    assert decoder.feed(b"\x30\xff\xff\xff\xff") == []
    assert decoder.failure is not None
    assert decoder.failure.reason is ReasonCode.MALFORMED_PACKET


def test_lists_of_a_packet_have_their_limits() -> None:
    many = [TopicSubscription(f"t/{number}") for number in range(MAX_FILTERS + 1)]
    pairs = Properties(user=[("a", "b")] * (MAX_USER_PROPERTIES + 1))
    for packet in (Subscribe(1, many), Publish("t", b"", properties=pairs)):
        with pytest.raises(PacketRefused) as refusal:
            read(encode_packet(packet, V5), V5)
        assert refusal.value.reason is ReasonCode.QUOTA_EXCEEDED


def test_user_properties_keep_their_order_and_their_doubles() -> None:
    user = [("b", "1"), ("a", "2"), ("b", "1"), ("b", "3")]
    packet = Publish("t", b"x", properties=Properties({PropertyId.TOPIC_ALIAS: 3}, user, [7, 5]))
    (found,) = read(encode_packet(packet, V5), V5)
    assert isinstance(found, Publish)
    assert (found.properties.user, found.properties.subscription_ids) == (user, [7, 5])


@pytest.mark.parametrize(
    ("reason", "code"),
    [
        (ReasonCode.SUCCESS, 0),
        (ReasonCode.UNSUPPORTED_PROTOCOL_VERSION, 1),
        (ReasonCode.CLIENT_IDENTIFIER_NOT_VALID, 2),
        (ReasonCode.SERVER_BUSY, 3),
        (ReasonCode.BAD_USER_NAME_OR_PASSWORD, 4),
        (ReasonCode.NOT_AUTHORIZED, 5),
    ],
)
def test_older_clients_are_told_the_return_code_that_fits_best(reason: ReasonCode, code: int) -> None:
    assert connect_return_code(reason) == code


def test_what_came_of_a_packet_is_forgotten_with_its_connection() -> None:
    decoder = PacketFrames(ROOM)
    decoder.feed(bytes((0x30, 100, 0, 1)))
    assert decoder.held_bytes
    decoder.forget()
    assert (decoder.held_bytes, decoder.missing_bytes) == (0, 0)
