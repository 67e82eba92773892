from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.model.errors import MillstreamError, NameRefused
from millstream.model.group import ExponentialBackoff, FirstPosition, GroupConfig
from millstream.model.topic import MessageType, Permission, TopicConfig
from millstream.protocol.remoting.administration.settings import (
    decode_group,
    decode_group_table,
    decode_topic_table,
    encode_group,
    encode_group_table,
    encode_topic_table,
    parse_topic_fields,
    topic_fields,
)

topics = st.builds(
    TopicConfig,
    name=st.from_regex(r"[a-z]{1,9}", fullmatch=True),
    message_type=st.sampled_from(MessageType),
    read_queues=st.integers(1, 1024),
    write_queues=st.integers(1, 1024),
    permission=st.sampled_from([Permission.READ, Permission.WRITE, Permission.READ | Permission.WRITE]),
    attributes=st.dictionaries(st.sampled_from(["cleanup.policy", "queue.type"]), st.sampled_from(["DELETE", "1"])),
)
groups = st.builds(
    GroupConfig,
    name=st.from_regex(r"[a-z]{1,9}", fullmatch=True),
    fifo=st.booleans(),
    max_attempts=st.integers(1, 1000),
    backoff_s=st.lists(st.integers(0, 10_000), min_size=1, max_size=20).map(tuple),
    exponential=st.none()
    | st.builds(
        ExponentialBackoff, st.integers(0, 10**7), st.integers(0, 10**7), st.floats(1, 100, allow_subnormal=False)
    ),
    enabled=st.booleans(),
    first_position=st.just(FirstPosition.FIRST),
) | st.builds(
    GroupConfig,
    name=st.just("timed"),
    first_position=st.sampled_from([FirstPosition.LAST, FirstPosition.TIME]),
    first_time_ms=st.integers(0, 2**50),
    lite_exclusive=st.booleans(),
)


@given(topics)
def test_a_topic_reads_as_it_was_written_in_fields_and_in_a_table(topic: TopicConfig) -> None:
    assert parse_topic_fields(topic_fields(topic)) == topic
    assert decode_topic_table(encode_topic_table([topic])) == [topic]


@given(groups)
def test_a_group_reads_as_it_was_written_alone_and_in_a_table(group: GroupConfig) -> None:
    assert decode_group(encode_group(group)) == group
    assert decode_group_table(encode_group_table([group])) == [group]


def test_the_topic_type_travels_as_an_attribute_with_a_plus() -> None:
    assert topic_fields(TopicConfig("t", MessageType.FIFO))["attributes"] == "+message.type=FIFO"


def test_fields_of_an_admin_tool_make_a_topic() -> None:
    ext = {
        "topic": "t",
        "readQueueNums": "8",
        "writeQueueNums": "2",
        "perm": "6",
        "order": "true",
        "attributes": "+message.type=DELAY,+reserve.time=1",
    }
    made = TopicConfig("t", MessageType.DELAY, 8, 2, attributes={"reserve.time": "1"}, ordered=True)
    assert parse_topic_fields(ext) == made
    changed = parse_topic_fields(
        {"topic": "t", "readQueueNums": "8", "attributes": "-reserve.time,+queue.type=BatchCQ"}, made
    )
    assert changed == TopicConfig("t", MessageType.DELAY, 8, 4, attributes={"queue.type": "BatchCQ"})


def test_an_attribute_that_there_is_not_is_refused_with_the_one_that_is_meant() -> None:
    with pytest.raises(NameRefused, match=r"'reserve.tine'.*Did you mean reserve.time") as refused:
        parse_topic_fields({"topic": "t", "attributes": "+reserve.tine=1"})
    assert refused.value.name == "ILLEGAL_TOPIC"


def test_an_attribute_of_former_times_can_be_removed() -> None:
    made = TopicConfig("t", MessageType.DELAY, attributes={"owner": "me"})
    assert parse_topic_fields({"topic": "t", "attributes": "+reserve.time=1"}, made).attributes["owner"] == "me"
    assert parse_topic_fields({"topic": "t", "attributes": "-owner"}, made).attributes == {}


@pytest.mark.parametrize("attributes", ["a=1", "-a", "+", "=", "-=1"])
def test_attributes_that_neither_set_nor_remove_one_are_refused(attributes: str) -> None:
    with pytest.raises(NameRefused) as refused:
        parse_topic_fields({"topic": "t", "attributes": attributes})
    assert refused.value.name == "ILLEGAL_TOPIC"


@pytest.mark.parametrize(
    ("changed", "name"),
    [
        ({"topic": ""}, "ILLEGAL_TOPIC"),
        ({"readQueueNums": "many"}, "MESSAGE_MALFORMED"),
        ({"readQueueNums": "1025"}, "MESSAGE_MALFORMED"),
        ({"readQueueNums": "0", "writeQueueNums": "0"}, "MESSAGE_MALFORMED"),
        ({"writeQueueNums": "-1"}, "MESSAGE_MALFORMED"),
        ({"attributes": "+message.type=STRANGE"}, "MESSAGE_MALFORMED"),
    ],
)
def test_fields_that_make_no_topic_are_refused(changed: dict[str, str], name: str) -> None:
    with pytest.raises(MillstreamError) as refused:
        parse_topic_fields({**topic_fields(TopicConfig("t")), **changed})
    assert refused.value.name == name


def test_a_topic_without_a_type_takes_what_remoting_clients_send_to_any_topic() -> None:
    untyped = parse_topic_fields({"topic": "t", "readQueueNums": "4", "writeQueueNums": "4", "perm": "6"})
    assert untyped.message_type is MessageType.MIXED


def test_a_group_of_an_admin_tool_counts_its_retries_after_the_first_delivery() -> None:
    group = decode_group(
        b'{"groupName":"g","consumeMessageOrderly":true,"retryMaxTimes":3,"brokerId":0,"attributes":{}}'
    )
    assert (group.name, group.fifo, group.max_attempts) == ("g", True, 4)


def test_a_group_is_written_in_the_names_of_the_protocol() -> None:
    written = json.loads(encode_group(GroupConfig("g", max_attempts=5, backoff_s=(1, 2))))
    assert (written["groupName"], written["retryMaxTimes"]) == ("g", 4)
    assert written["groupRetryPolicy"] == {"type": "CUSTOMIZED", "customizedRetryPolicy": {"next": [1000, 2000]}}


def test_an_exponential_backoff_is_written_and_read_in_the_names_of_the_protocol() -> None:
    written = json.loads(encode_group(GroupConfig("g", exponential=ExponentialBackoff(100, 9_000, 3))))
    assert written["groupRetryPolicy"]["type"] == "EXPONENTIAL"
    assert written["groupRetryPolicy"]["exponentialRetryPolicy"] == {"initial": 100, "max": 9000, "multiplier": 3}
    read = decode_group(b'{"groupName":"g","groupRetryPolicy":{"type":"EXPONENTIAL"}}')
    assert read.exponential == ExponentialBackoff(5_000, 7_200_000, 2)


@pytest.mark.parametrize("position", ['{"consume.first.position":"soon"}', '{"consume.first.time":"noon"}'])
def test_a_first_position_that_means_nothing_is_refused(position: str) -> None:
    with pytest.raises(MillstreamError) as refused:
        decode_group(f'{{"groupName":"g","attributes":{position}}}'.encode())
    assert refused.value.name == "MESSAGE_MALFORMED"
