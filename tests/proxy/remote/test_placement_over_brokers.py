"""Which queue a message goes to when many brokers hold its topic."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.model.errors import NameRefused
from millstream.model.message import OutgoingMessage
from millstream.model.topic import MessageType
from millstream.protocol.remoting.bodies import BrokerData, QueueData, TopicRouteData
from millstream.proxy.remote.routes import KnownRoute, known_route
from millstream.proxy.remote.sender import AVOID_S, BrokerQueueSelector


def route(*brokers: tuple[str, int], kind: MessageType = MessageType.NORMAL) -> KnownRoute:
    data = TopicRouteData(
        [BrokerData(name, {0: f"{name}:1"}) for name, _ in brokers],
        [QueueData(name, count, count) for name, count in brokers],
    )
    return known_route("t", data, kind)


def message(**held: str) -> OutgoingMessage:
    return OutgoingMessage("t", b"x", held)


def test_queues_take_turns_over_all_brokers() -> None:
    placement, known = BrokerQueueSelector(), route(("a", 2), ("b", 1))
    places = [placement.next(known, 0.0) for _ in range(6)]
    assert {(one.broker_name, one.queue_id): places.count(one) for one in places} == {
        ("a", 0): 2,
        ("a", 1): 2,
        ("b", 0): 2,
    }


def test_a_broker_that_failed_is_passed_over_for_a_while() -> None:
    placement, known = BrokerQueueSelector(), route(("a", 2), ("b", 1))
    placement.avoid("a", 0.0)
    assert {placement.next(known, AVOID_S - 0.1).broker_name for _ in range(6)} == {"b"}
    assert {placement.next(known, AVOID_S).broker_name for _ in range(6)} == {"a", "b"}


def test_where_all_brokers_failed_one_is_tried_all_the_same() -> None:
    placement, known = BrokerQueueSelector(), route(("a", 1), ("b", 1))
    placement.avoid("a", 0.0)
    placement.avoid("b", 0.0)
    assert {placement.next(known, 1.0).broker_name for _ in range(4)} == {"a", "b"}


@given(st.text(min_size=1), st.lists(st.integers(1, 8), min_size=1, max_size=5))
def test_a_message_group_has_one_queue_whatever_else_happens(group: str, counts: list[int]) -> None:
    known = route(*((f"b{number}", count) for number, count in enumerate(counts)), kind=MessageType.FIFO)
    first, second = BrokerQueueSelector(), BrokerQueueSelector()
    second.next(known, 0.0)
    second.avoid("b0", 0.0)
    held = {"__SHARDINGKEY": group}
    assert first.places(known, [message(**held)], 0.0) == second.places(
        known,
        [
            message(**held),
        ],
        0.0,
    )


def test_a_lite_topic_has_one_broker() -> None:
    known = route(("a", 4), ("b", 4), kind=MessageType.LITE)
    chosen = {
        BrokerQueueSelector().places(known, [message(__LITE_TOPIC=f"l{number}")], 0.0)[0][0] for number in range(40)
    }
    assert {(one.broker_name, one.queue_id) for one in chosen} == {("a", 0), ("b", 0)}


def test_messages_of_one_send_share_a_queue_but_for_those_of_message_groups() -> None:
    known = route(("a", 2), ("b", 2))
    placement = BrokerQueueSelector()
    mixed = [message(), message(__SHARDINGKEY="g"), message(), message(__SHARDINGKEY="g")]
    places = placement.places(known, mixed, 0.0)
    assert sorted(sorted(positions) for _, positions in places) in ([[0, 2], [1, 3]], [[0, 1, 2, 3]])


def test_where_nothing_can_be_written_the_refusal_says_so() -> None:
    data = TopicRouteData([BrokerData("a", {0: "a:1"})], [QueueData("a", 2, 2, perm=4)])
    with pytest.raises(NameRefused) as refusal:
        BrokerQueueSelector().places(known_route("t", data, MessageType.NORMAL), [message()], 0.0)
    assert refusal.value.name == "FORBIDDEN"


def test_a_topic_without_a_master_has_no_route() -> None:
    data = TopicRouteData([BrokerData("a", {1: "a:1"})], [QueueData("a", 2, 2)])
    with pytest.raises(NameRefused) as refusal:
        known_route("t", data, MessageType.NORMAL)
    assert refusal.value.name == "TOPIC_NOT_FOUND"
