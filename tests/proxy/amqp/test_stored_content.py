"""AMQP messages become records and AMQP messages again."""

from __future__ import annotations

import zlib
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.model import properties as names
from millstream.model.message import Address, StoredMessage, SystemFlag
from millstream.model.properties import encode_properties as encode_stored
from millstream.model.properties import parse_properties
from millstream.protocol.amqp.content import NO_PROPERTIES, ContentProperties, decode_properties, encode_properties
from millstream.protocol.amqp.field_table import Timestamp, decode_table, encode_table, join_table
from millstream.protocol.amqp.reply_codes import ChannelFailure, ReplyCode
from millstream.proxy.amqp.dead_letters import MAX_DEATHS, with_death
from millstream.proxy.amqp.stored_content import (
    MAX_READABLE_BYTES,
    place_of,
    routing_of,
    stored_body,
    view_content,
    wire_properties,
)
from millstream.proxy.stored_body import body_of

HEADERS = st.dictionaries(
    st.text(max_size=12), st.none() | st.booleans() | st.integers(-(2**40), 2**40) | st.text(max_size=20), max_size=5
)


def record(held: dict[str, str], body: bytes = b"x", topic: str = "t") -> StoredMessage:
    """What a reader finds, after its properties were text in between."""
    stored = parse_properties(encode_stored(held).decode())
    host = Address("127.0.0.1", 1)
    return StoredMessage(topic, 0, 0, 0, body, stored, 1_700_000_000_123, host, 1_700_000_000_456, host)


@given(
    HEADERS,
    st.none() | st.text(max_size=30),
    st.none() | st.text(max_size=30),
    st.none() | st.integers(0, 255),
)
def test_every_property_comes_back_with_the_same_bytes(
    headers: dict[str, object], message_id: str | None, content_type: str | None, priority: int | None
) -> None:
    sent = encode_properties(
        ContentProperties(
            headers=encode_table(headers), message_id=message_id, content_type=content_type, priority=priority
        )
    )
    held = {**view_content(sent).stored, **routing_of("e", "k")}
    assert wire_properties(record(held)) == sent
    assert not any("\x01" in text or "\x02" in text for pair in held.items() for text in pair)


@pytest.mark.parametrize("letter", [b"b\x05", b"s\x00\x05", b"I\x00\x00\x00\x05", b"l\x00\x00\x00\x00\x00\x00\x00\x05"])
def test_the_width_of_a_number_is_kept(letter: bytes) -> None:
    sent = encode_properties(ContentProperties(headers=join_table([("n", letter)])))
    held = dict(view_content(sent).stored)
    assert held["n"] == "5"
    assert wire_properties(record(held)) == sent


def test_readers_of_other_protocols_find_keys_tags_and_headers() -> None:
    content = ContentProperties(
        headers=encode_table({"colour": "blue", "yes": True, "table": {"a": 1}, "KEYS": "not mine", "bad\n": "x"}),
        message_id="m1",
        correlation_id="c1",
    )
    held = {**view_content(encode_properties(content)).stored, **routing_of("e", "a.b")}
    del held["amqp_properties"]
    assert held == {
        names.KEYS: "m1",
        "colour": "blue",
        "yes": "true",
        "amqp_correlation": "c1",
        names.TAGS: "a.b",
        "amqp_exchange": "e",
        "amqp_rk": "a.b",
    }


@pytest.mark.parametrize("key", ["a b|c", "", " a", "x" * 128, "a\tb"])
def test_a_routing_key_that_is_no_tag_is_kept_without_one(key: str) -> None:
    held = dict(routing_of("e", key))
    assert names.TAGS not in held
    assert place_of(record(held)) == ("e", key)


def test_headers_beyond_the_limit_are_kept_in_their_exact_form_alone() -> None:
    headers = {f"h{number}": "x" * 1000 for number in range(15)}
    sent = encode_properties(ContentProperties(headers=encode_table(headers)))
    stored = view_content(sent).stored
    readable = sum(len(name) + len(text) for name, text in stored.items() if name != "amqp_properties")
    assert readable <= MAX_READABLE_BYTES
    assert wire_properties(record(dict(stored))) == sent


def test_an_empty_body_is_noted_because_a_record_has_one() -> None:
    held: dict[str, str] = {}
    body = stored_body(b"", held)
    assert body
    assert body_of(record(held, body)) == b""
    assert body_of(record({}, b" ")) == b" "


def test_a_record_of_another_protocol_has_its_properties_as_headers() -> None:
    held = {names.KEYS: "k1", names.TAGS: "red", "colour": "crimson", "mqtt_response_topic": "answers"}
    message = record(held, topic="orders")
    content = decode_properties(wire_properties(message))
    assert decode_table(content.headers or b"")[0] == {"colour": "crimson"}
    assert (content.message_id, content.reply_to, content.timestamp) == ("k1", "answers", Timestamp(1_700_000_000))
    assert place_of(message) == ("orders", "red")


def test_a_message_of_mqtt_has_its_topic_with_dots_as_routing_key() -> None:
    held = {"mqtt_topic": "factory/3/temperature", names.TAGS: "factory"}
    assert place_of(record(held, topic="mqtt")) == ("mqtt", "factory.3.temperature")


def test_a_long_routing_key_of_others_is_cut_between_characters() -> None:
    _, key = place_of(record({"mqtt_topic": "é" * 200}))
    assert key == "é" * 127


@pytest.mark.parametrize("text", ["", "-1", "1.5", "soon", "99999999999", "١"])
def test_an_expiration_that_is_no_number_is_refused(text: str) -> None:
    with pytest.raises(ChannelFailure, match="invalid expiration") as error:
        view_content(encode_properties(ContentProperties(expiration=text)))
    assert error.value.code is ReplyCode.PRECONDITION_FAILED


def die(data: bytes, queue: str, reason: str, held: dict[str, str] | None = None) -> bytes | None:
    return with_death(data, record(held or dict(routing_of("e", "k"))), queue, reason, 1_700_000_000_000)


def deaths(data: bytes) -> list[dict[str, object]]:
    return list(decode_table(decode_properties(data).headers or b"")[0]["x-death"])


def test_deaths_are_counted_by_queue_and_reason_the_last_first() -> None:
    data: bytes | None = NO_PROPERTIES
    for queue, reason in (("a", "rejected"), ("b", "expired"), ("a", "rejected")):
        assert data is not None
        data = die(data, queue, reason)
    assert data is not None
    assert [(one["queue"], one["reason"], one["count"]) for one in deaths(data)] == [
        ("a", "rejected", 2),
        ("b", "expired", 1),
    ]
    headers = decode_table(decode_properties(data).headers or b"")[0]
    assert (headers["x-first-death-queue"], headers["x-last-death-queue"]) == ("a", "a")


def test_a_message_that_goes_round_without_being_rejected_is_dropped() -> None:
    once = die(NO_PROPERTIES, "a", "expired")
    assert once is not None
    twice = die(once, "b", "expired")
    assert twice is not None
    assert die(twice, "a", "expired") is None
    rejected = die(twice, "b", "rejected")
    assert rejected is not None
    assert die(rejected, "a", "expired") is not None


def test_deaths_are_bounded_and_other_headers_keep_their_bytes() -> None:
    mine = join_table([("mine", b"s\x00\x05")])
    data: bytes | None = encode_properties(ContentProperties(headers=mine, expiration="5"))
    for number in range(MAX_DEATHS + 5):
        assert data is not None
        data = die(data, f"q{number}", "rejected")
    assert data is not None
    assert len(deaths(data)) == MAX_DEATHS
    content = decode_properties(data)
    assert b"\x04mines\x00\x05" in (content.headers or b"")
    assert content.expiration is None


def test_what_amqp_has_a_field_for_comes_from_other_protocols() -> None:
    held = {
        names.PRIORITY: "700",
        names.EXPIRES_MS: "1700000060456",
        names.MESSAGE_GROUP: "g1",
        "content_type": "text/plain",
        "mqtt_correlation": "/w==",
    }
    content = decode_properties(wire_properties(record(held)))
    assert (content.priority, content.expiration, content.content_type) == (255, "60000", "text/plain")
    assert content.correlation_id is None
    headers = {"mqtt_correlation": "/w==", names.MESSAGE_GROUP: "g1"}
    assert decode_table(content.headers or b"")[0] == headers


@pytest.mark.parametrize("prefix", ["cloudEvents:", "cloudEvents_"])
def test_headers_of_an_event_are_stored_as_its_attributes(prefix: str) -> None:
    sent = {f"{prefix}id": "A1", f"{prefix}Not A Name": "x"}
    stored = view_content(encode_properties(ContentProperties(headers=encode_table(sent)))).stored
    assert (stored["CE_id"], stored[f"{prefix}Not A Name"]) == ("A1", "x")


def test_a_body_that_was_packed_is_delivered_unpacked() -> None:
    packed = replace(record({}, zlib.compress(b"body" * 1000)), system_flag=SystemFlag.COMPRESSED)
    assert body_of(packed) == b"body" * 1000
