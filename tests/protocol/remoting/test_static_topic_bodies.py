"""Mappings of static topics on the wire, as RocketMQ's tools write and read them."""

from __future__ import annotations

import json

import pytest

from millstream.model.errors import MessageRefused, NameRefused
from millstream.model.filter import parse_tag_filter
from millstream.model.logic_queue import LogicQueue, MappingItem, TopicMapping
from millstream.model.operations import PopRequest
from millstream.model.topic import MessageType, TopicConfig
from millstream.protocol.remoting.administration.registration import BrokerIdentity, decode_registration
from millstream.protocol.remoting.administration.static_topics import (
    decode_mapping,
    decode_topic_state,
    encode_mapping,
    encode_topic_state,
    leaders,
    mapping_info,
    parse_static_topic,
    static_topic_fields,
)
from millstream.protocol.remoting.bodies import TopicMappingInfo
from millstream.protocol.remoting.codes import RequestCode
from millstream.protocol.remoting.command import RemotingCommand
from millstream.protocol.remoting.messages.popped import parse_pop, pop_fields

QUEUE = LogicQueue(0, (MappingItem(0, "a", 2, 0), MappingItem(1, "b", 0, 70, start_ms=5)))
MAPPING = TopicMapping("t", "a", 2, 9, {0: QUEUE, 1: LogicQueue(1, (MappingItem(0, "a", 3, 0),))})


def test_a_mapping_has_the_names_of_the_protocol() -> None:
    body = json.loads(encode_mapping(MAPPING))
    assert {name: value for name, value in body.items() if name != "hostedQueues"} == {
        "topic": "t",
        "scope": "__global__",
        "totalQueues": 2,
        "bname": "a",
        "epoch": 9,
        "dirty": False,
        "currIdMap": {"1": 3},
    }
    assert body["hostedQueues"]["0"][1] == {
        "gen": 1,
        "queueId": 0,
        "bname": "b",
        "logicOffset": 70,
        "startOffset": 0,
        "endOffset": -1,
        "timeOfStart": 5,
        "timeOfEnd": -1,
    }


def test_a_mapping_comes_back_as_it_was() -> None:
    assert decode_mapping(encode_mapping(MAPPING)) == MAPPING


def test_a_mapping_with_bare_numbers_as_keys_is_read() -> None:
    body = b'{"bname":"a","epoch":3,"hostedQueues":{0:[{"bname":"a","gen":0,"queueId":4}]},"topic":"t","totalQueues":1}'
    assert decode_mapping(body) == TopicMapping("t", "a", 1, 3, {0: LogicQueue(0, (MappingItem(0, "a", 4, 0),))})


@pytest.mark.parametrize("body", [b"", b"{}", b'{"topic":"t","totalQueues":1}', b'{"hostedQueues":7}', b"\xff"])
def test_a_body_that_is_no_mapping_is_refused(body: bytes) -> None:
    with pytest.raises(MessageRefused):
        decode_mapping(body)


def test_a_mapping_that_contradicts_itself_is_refused() -> None:
    with pytest.raises(NameRefused, match="MS-2342"):
        decode_mapping(encode_mapping(TopicMapping("t", "a", 1, 9, {1: MAPPING.queues[1]})))


def test_a_topic_and_its_mapping_come_back_as_they_were() -> None:
    config = TopicConfig("t", MessageType.FIFO, 0, 0, attributes={"reserve.time": "5"})
    state = decode_topic_state(encode_topic_state(config, MAPPING))
    assert (state.config, state.mapping) == (config, MAPPING)
    assert decode_topic_state(encode_topic_state(config, None)).mapping is None
    assert parse_static_topic(static_topic_fields(config)) == config


def test_a_tool_that_names_no_type_makes_a_topic_of_ordinary_messages() -> None:
    assert parse_static_topic({"topic": "t", "writeQueueNums": "2"}) == TopicConfig("t", read_queues=0, write_queues=2)


def test_the_highest_epoch_says_who_stores_a_queue() -> None:
    infos = {
        "a": TopicMappingInfo(total_queues=3, epoch=5, curr_id_map={0: 0, 1: 1}),
        "b": TopicMappingInfo(total_queues=3, epoch=6, curr_id_map={1: 0}),
    }
    assert leaders(infos) == {0: "a", 1: "b", 2: None}


@pytest.mark.parametrize("count", [1, 300], ids=["plain", "compressed"])
def test_a_registration_tells_the_mappings_of_its_topics(count: int) -> None:
    topics = [TopicConfig(f"t{number}" if number else "t") for number in range(count)]
    other = TopicMapping("gone", "a", 1, 1)
    command = BrokerIdentity("c", "a", "h:1").registration(topics, whole=True, mappings=[MAPPING, other])
    body = decode_registration(command.body, is_compressed=command.ext["compressed"] == "true")
    assert body.topic_config_serialize_wrapper.topic_queue_mapping_info_map == {"t": mapping_info(MAPPING)}


def test_a_pop_of_a_peer_comes_back_as_it_was() -> None:
    request = PopRequest("g", "t", 5000, 3, 7, parse_tag_filter("a || b"), attempt_id="x")
    ext = {**pop_fields(request), "topic": "t", "queueId": "3"}
    assert parse_pop(RemotingCommand(RequestCode.SEGMENT_POP, ext)) == request
