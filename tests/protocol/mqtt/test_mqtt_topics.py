"""Topic names and filters."""

from __future__ import annotations

import pytest

from millstream.protocol.mqtt.errors import PacketRefused
from millstream.protocol.mqtt.reason_codes import ReasonCode
from millstream.protocol.mqtt.topics import (
    MAX_TOPIC_BYTES,
    MAX_TOPIC_LEVELS,
    SharedFilter,
    check_topic_filter,
    check_topic_name,
    filter_matches,
    parse_shared_filter,
)


@pytest.mark.parametrize("topic_filter", ["", "a#", "#/a", "a/#/b", "+a", "a/b+", "a/+b/c", "##"])
def test_a_filter_that_can_match_nothing_is_refused(topic_filter: str) -> None:
    with pytest.raises(PacketRefused) as refusal:
        check_topic_filter(topic_filter)
    assert refusal.value.reason is ReasonCode.TOPIC_FILTER_INVALID


@pytest.mark.parametrize("topic_filter", ["#", "+", "/", "a/+/#", "+/+", "/+", "a//b", "$SYS/#", "a b/ü"])
def test_every_other_filter_is_legal(topic_filter: str) -> None:
    check_topic_filter(topic_filter)


@pytest.mark.parametrize("topic", ["", "a/+", "#", "a" * (MAX_TOPIC_BYTES + 1), "/" * MAX_TOPIC_LEVELS])
def test_a_name_that_is_none_is_refused(topic: str) -> None:
    with pytest.raises(PacketRefused) as refusal:
        check_topic_name(topic)
    assert refusal.value.reason is ReasonCode.TOPIC_NAME_INVALID


@pytest.mark.parametrize(
    ("topic_filter", "topic", "matches"),
    [
        ("sport/tennis/player1/#", "sport/tennis/player1", True),
        ("sport/tennis/player1/#", "sport/tennis/player1/score/wimbledon", True),
        ("sport/#", "sport", True),
        ("#", "a/b", True),
        ("#", "$SYS/a", False),
        ("+/monitor/Clients", "$SYS/monitor/Clients", False),
        ("$SYS/#", "$SYS/a", True),
        ("$SYS/monitor/+", "$SYS/monitor/Clients", True),
        ("sport/tennis/+", "sport/tennis/player1", True),
        ("sport/tennis/+", "sport/tennis/player1/ranking", False),
        ("sport/+", "sport", False),
        ("sport/+", "sport/", True),
        ("+/+", "/finance", True),
        ("/+", "/finance", True),
        ("+", "/finance", False),
        ("ACCOUNTS", "Accounts", False),
    ],
)
def test_the_examples_of_the_specification_match_as_it_says(topic_filter: str, topic: str, matches: bool) -> None:
    assert filter_matches(topic_filter, topic) is matches


def test_a_shared_subscription_has_a_group_and_a_filter() -> None:
    assert parse_shared_filter("$share/g/a/+/#") == SharedFilter("g", "a/+/#")
    assert parse_shared_filter("a/$share") is None


@pytest.mark.parametrize("topic_filter", ["$share/", "$share/g", "$share/g/", "$share//a", "$share/g+/a", "$share/#/a"])
def test_a_shared_subscription_without_one_of_them_is_refused(topic_filter: str) -> None:
    with pytest.raises(PacketRefused) as refusal:
        parse_shared_filter(topic_filter)
    assert refusal.value.reason is ReasonCode.TOPIC_FILTER_INVALID
