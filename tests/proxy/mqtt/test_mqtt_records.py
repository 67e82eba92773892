"""What is stored without a closer look, and encoded once for many, is what the general way makes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.broker.delivery.admission import MAX_USER_PROPERTIES_BYTES, check_message, is_plain
from millstream.model.message import MAX_BODY_BYTES, Address
from millstream.model.properties import encode_properties
from millstream.model.topic import TopicConfig
from millstream.protocol.mqtt.encoding import encode_publish
from millstream.protocol.mqtt.packet_types import ProtocolVersion
from millstream.protocol.mqtt.packets import Publish
from millstream.protocol.mqtt.properties import NO_PROPERTIES, Properties, PropertyId
from millstream.proxy.mqtt.application_message import ApplicationMessage
from millstream.proxy.mqtt.records import outgoing_record, plain_record

PEER = Address("192.0.2.7", 50312)
TOPICS = st.text(st.characters(exclude_characters="\0+#", exclude_categories=["Cs"]), min_size=1, max_size=12)
NAMES = st.one_of(
    st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=8),
    st.sampled_from(["KEYS", "TAGS", "INNER_MULTI_DISPATCH", "INNER_NUM", "mqtt_x", "__SHARDINGKEY", "TIMER_DELAY_MS"]),
)
MESSAGES = st.builds(
    ApplicationMessage,
    TOPICS,
    st.binary(max_size=30),
    st.integers(0, 2),
    retain=st.booleans(),
    publisher=NAMES,
    expires_ms=st.one_of(st.none(), st.integers(1, 1 << 45)),
    properties=st.one_of(
        st.just(NO_PROPERTIES),
        st.builds(
            Properties,
            st.just({PropertyId.CONTENT_TYPE: "text/plain", PropertyId.CORRELATION_DATA: b"\x00\xff"}),
            st.lists(st.tuples(NAMES, NAMES), max_size=3),
        ),
    ),
)


@given(MESSAGES, st.sampled_from(["", "", "abc234:9:1700000000000"]))
def test_a_plain_record_is_the_one_that_the_broker_would_admit(message: ApplicationMessage, mark: str) -> None:
    message.mark = mark
    plain = plain_record(message, "mqtt", 0, now_ms=5, peer=PEER)
    general = outgoing_record(message, "mqtt", now_ms=5, peer=PEER, queue_id=0)
    if plain is None:
        return
    check_message(general, TopicConfig("mqtt"))
    assert plain.properties == general.properties
    assert plain.stored_properties == encode_properties(general.properties)
    assert (plain.topic, plain.queue_id, plain.body) == (general.topic, general.queue_id, general.body)
    assert (plain.born_timestamp_ms, plain.born_host) == (general.born_timestamp_ms, general.born_host)


@pytest.mark.parametrize("excess", range(-400, 401, 25))
def test_a_mark_makes_no_record_plain_that_is_larger_than_records_may_be(excess: int) -> None:
    topic = "t" * ((MAX_USER_PROPERTIES_BYTES - 1024) + excess)
    message = ApplicationMessage(topic, b"x", 2, publisher="device-1")
    message.mark = "a" * 32 + ":9:1700000000000"
    plain = plain_record(message, "mqtt", 0, now_ms=5, peer=PEER)
    general = outgoing_record(message, "mqtt", now_ms=5, peer=PEER, queue_id=0)
    assert (plain is not None) is is_plain(general.properties, 0)
    if plain is not None:
        assert plain.properties == general.properties
        assert plain.stored_properties == encode_properties(general.properties)


def test_an_ordinary_message_is_plain_and_one_that_is_too_large_is_not() -> None:
    message = ApplicationMessage("factory/1/x", b"21.5", 1, publisher="device-1")
    assert plain_record(message, "mqtt", 0, now_ms=5, peer=PEER) is not None
    message.payload = bytes(MAX_BODY_BYTES + 1)
    assert plain_record(message, "mqtt", 0, now_ms=5, peer=PEER) is None


@given(MESSAGES, st.sampled_from(ProtocolVersion), st.integers(0, 2), st.booleans(), st.integers(1, 0xFFFF))
def test_what_is_encoded_once_for_many_is_the_publish_of_each(
    message: ApplicationMessage, version: ProtocolVersion, qos: int, retain: bool, packet_id: int
) -> None:
    message.expires_ms = None
    for number in (packet_id, 0xFFFF - packet_id + 1):
        packet = Publish(message.topic, message.payload, qos, retain, packet_id=number if qos else 0)
        if version is ProtocolVersion.V5:
            packet.properties = message.properties
        assert message.encode(version, qos, number, 0, retain=retain) == encode_publish(packet, version)
