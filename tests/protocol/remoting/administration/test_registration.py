from __future__ import annotations

import contextlib
import json
import struct
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.model.errors import MessageRefused
from millstream.model.topic import MessageType, Permission, TopicConfig
from millstream.protocol.remoting.administration import registration as module
from millstream.protocol.remoting.administration.registration import (
    BrokerIdentity,
    decode_registration,
    pack_registration,
)
from millstream.protocol.remoting.administration.settings import topic_data, topics_of
from millstream.protocol.remoting.bodies import RegisterBrokerBody, TopicConfigTable

topics = st.builds(
    TopicConfig,
    st.from_regex(r"[%|a-zA-Z0-9_-]{1,40}", fullmatch=True),
    st.sampled_from(MessageType),
    st.integers(1, 1024),
    st.integers(1, 1024),
    st.sampled_from([Permission.READ, Permission.READ | Permission.WRITE]),
    st.dictionaries(st.sampled_from(["queue.type", "reserve.time"]), st.text("ab c=,{}", max_size=9)),
)


@given(st.lists(topics, unique_by=lambda topic: topic.name), st.integers(0, 9))
def test_a_registration_tells_the_same_topics_plain_and_compressed(found: list[TopicConfig], limit: int) -> None:
    who = BrokerIdentity("c", "b", "h:10911")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_MAX_PLAIN_TOPICS", limit)
        command = who.registration(found, whole=True)
    is_compressed = command.ext["compressed"] == "true"
    assert is_compressed == (len(found) > limit)
    assert int(command.ext["bodyCrc32"]) == zlib.crc32(command.body) & 0x7FFFFFFF
    body = decode_registration(command.body, is_compressed=is_compressed)
    assert topics_of(body.topic_config_serialize_wrapper) == found


def java_made(*topics: str) -> bytes:
    """As RocketMQ lays it out: the data version, the topics, the filter servers, one mapping of a static topic."""
    parts = [part(b'{"counter":3,"stateVersion":0,"timestamp":7}'), struct.pack(">i", len(topics))]
    parts += [part(topic.encode()) for topic in topics]
    parts += [part(b"[]"), struct.pack(">i", 1), part(b'{"topic":"t","totalQueues":8}')]
    return zlib.compress(b"".join(parts))


def part(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


def test_a_registration_that_rocketmq_compressed_is_read() -> None:
    compressed = java_made('t 8 4 6 SINGLE_TAG {"+message.type":"FIFO","message.type":"FIFO"}', "u 1 1 4 SINGLE_TAG")
    table = decode_registration(compressed, is_compressed=True).topic_config_serialize_wrapper
    assert table.data_version == {"counter": 3, "stateVersion": 0, "timestamp": 7}
    first, second = topics_of(table)
    assert (first.name, first.read_queues, first.write_queues, first.message_type) == ("t", 8, 4, MessageType.FIFO)
    assert (second.name, second.permission, second.attributes) == ("u", Permission.READ, {})


@pytest.mark.parametrize(
    "body",
    [
        b"\x00",
        java_made("t")[:-4],
        java_made("only a"),
        java_made("t x 4 6 SINGLE_TAG"),
        java_made("t 4 4 6 SINGLE_TAG [1]"),
        zlib.compress(struct.pack(">i", -1)),
        zlib.compress(struct.pack(">i", 1 << 30)),
        zlib.compress(part(b"{") + struct.pack(">i", 0)),
    ],
)
def test_a_compressed_registration_that_is_none_is_refused(body: bytes) -> None:
    with pytest.raises(MessageRefused, match="compressed registration"):
        decode_registration(body, is_compressed=True)


def test_a_registration_that_unpacks_to_too_much_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_REGISTRATION_BYTES", 100)
    table = TopicConfigTable({str(number): topic_data(TopicConfig(str(number))) for number in range(50)})
    with pytest.raises(MessageRefused, match="100 bytes"):
        decode_registration(pack_registration(RegisterBrokerBody(table)), is_compressed=True)


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(body: bytes) -> None:
    for given_body in (body, zlib.compress(body)):
        with contextlib.suppress(MessageRefused):
            decode_registration(given_body, is_compressed=True)


def test_an_empty_body_tells_no_topics() -> None:
    assert decode_registration(b"", is_compressed=False) == RegisterBrokerBody()
    assert json.loads(module.encode_body(RegisterBrokerBody()))["filterServerList"] is None
