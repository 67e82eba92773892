"""The client's conversations without any socket."""

from __future__ import annotations

from typing import TypeVar

import pytest

from millstream.client import requests
from millstream.client.conversations import RETRY_DELAY_S, Ask, Conversation, Conversations, parse_addresses
from millstream.client.values import QueueAddress, Sent
from millstream.model.errors import MillstreamError, TimedOut, Unreachable
from millstream.protocol.remoting.bodies import BrokerData, QueueData, TopicRouteData, encode_body
from millstream.protocol.remoting.command import RemotingCommand

T = TypeVar("T")
QUEUE = QueueAddress("t", "b", 1, "old:1")
SENT = RemotingCommand(0, {"msgId": "ID", "queueId": "1", "queueOffset": "7"})
BUSY = RemotingCommand(2, remark="busy")
Step = RemotingCommand | MillstreamError


def route(address: str) -> RemotingCommand:
    return RemotingCommand(0, body=encode_body(TopicRouteData([BrokerData("b", {0: address})], [QueueData("b", 4, 4)])))


def play(conversation: Conversation[T], steps: list[Step]) -> tuple[T | MillstreamError, list[Ask]]:
    """The result, and what was asked, where each ask is answered by the next step."""
    asked: list[Ask] = []
    try:
        ask = next(conversation)
        for step in steps:
            asked.append(ask)
            ask = conversation.throw(step) if isinstance(step, MillstreamError) else conversation.send(step)
    except StopIteration as end:
        return end.value, asked
    except MillstreamError as error:
        return error, asked
    raise AssertionError(f"it asks on: {ask}")


def send(conversations: Conversations) -> Conversation[list[Sent]]:
    return conversations.send(QUEUE, requests.send_batch(QUEUE, [b""], group="g"), ["m"])


def gone(address: str = "old:1") -> Unreachable:
    return Unreachable(f"{address} is gone.")


def test_a_send_goes_to_the_brokers_new_address_after_it_was_unreachable() -> None:
    result, asked = play(send(Conversations(["ns:1"])), [gone(), route("new:1"), SENT])
    assert isinstance(result, list)
    assert result == [Sent("m", QueueAddress("t", "b", 1, "new:1"), 7, "ID")]
    assert [ask.address for ask in asked] == ["old:1", "ns:1", "new:1"]


def test_a_busy_broker_is_asked_again_later_and_three_times_in_all() -> None:
    result, asked = play(send(Conversations(["ns:1"])), [BUSY, route("old:1"), BUSY, route("old:1"), BUSY])
    assert isinstance(result, MillstreamError)
    assert result.name == "TOO_MANY_REQUESTS"
    assert [ask.delay_s for ask in asked if ask.address == "old:1"] == [0, RETRY_DELAY_S, 2 * RETRY_DELAY_S]


def test_a_send_is_tried_again_also_while_no_nameserver_answers() -> None:
    result, asked = play(send(Conversations(["ns:1"])), [gone(), gone("ns:1"), SENT])
    assert isinstance(result, list)
    assert [ask.address for ask in asked] == ["old:1", "ns:1", "old:1"]


@pytest.mark.parametrize(
    "failure", [TimedOut("late"), RemotingCommand(17, remark="no"), RemotingCommand(13, remark="no")]
)
def test_a_send_that_may_have_been_stored_or_was_refused_is_not_repeated(failure: Step) -> None:
    result, asked = play(send(Conversations(["ns:1"])), [failure])
    assert isinstance(result, MillstreamError)
    assert len(asked) == 1


def test_a_route_is_asked_once_and_again_when_it_was_forgotten() -> None:
    conversations = Conversations(["ns:1"])
    assert len(play(conversations.queues("t"), [route("h:1")])[1]) == 1
    assert len(play(conversations.queues("t"), [])[1]) == 0
    conversations.forget_route("t")
    assert len(play(conversations.queues("t"), [route("h:1")])[1]) == 1


def test_a_nameserver_that_failed_is_asked_last_from_then_on() -> None:
    conversations = Conversations(["ns1:1", "ns2:1"])
    _, first = play(conversations.queues("t"), [gone("ns1:1"), route("h:1")])
    _, second = play(conversations.queues("u"), [route("h:1")])
    assert [ask.address for ask in first + second] == ["ns1:1", "ns2:1", "ns2:1"]


def test_when_all_nameservers_fail_the_first_failure_is_told() -> None:
    result, _ = play(Conversations(["ns1:1", "ns2:1"]).queues("t"), [gone("ns1:1"), gone("ns2:1")])
    assert isinstance(result, Unreachable)
    assert "ns1:1" in result.message


def test_a_nameserver_that_says_no_is_believed() -> None:
    result, asked = play(Conversations(["ns1:1", "ns2:1"]).queues("t"), [RemotingCommand(17, remark="no")])
    assert isinstance(result, MillstreamError)
    assert (result.name, len(asked)) == ("TOPIC_NOT_FOUND", 1)


def test_queues_of_brokers_without_a_master_are_left_out() -> None:
    data = TopicRouteData(
        [BrokerData("a", {1: "x:1"}), BrokerData("b", {0: "h:1"})], [QueueData("a", 1, 1), QueueData("b", 1, 1)]
    )
    result, _ = play(Conversations(["ns:1"]).queues("t"), [RemotingCommand(0, body=encode_body(data))])
    assert isinstance(result, list)
    assert [queue.broker_name for queue in result] == ["b"]


def test_a_long_poll_may_take_as_much_longer_as_it_waits() -> None:
    conversation = Conversations(["ns:1"]).pull(QUEUE, 0, wait_ms=15_000)
    assert next(conversation).extra_wait_s == 15


@pytest.mark.parametrize("ext", [{}, {"offset": "five"}])
def test_an_answer_without_its_number_is_a_protocol_violation(ext: dict[str, str]) -> None:
    result, _ = play(Conversations(["ns:1"]).offset_by_time(QUEUE, 0), [RemotingCommand(0, ext)])
    assert isinstance(result, MillstreamError)
    assert result.name == "PROTOCOL_VIOLATION"


def test_addresses_are_separated_by_semicolon_or_comma() -> None:
    assert parse_addresses(" a:1; b:2,[::1]:3 ;") == ("a:1", "b:2", "[::1]:3")
