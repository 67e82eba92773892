"""The client's conversations without any socket."""

from __future__ import annotations

import pytest
from operation_plays import Step, play, route

from millstream.client import operations as module
from millstream.client import requests
from millstream.client.operations import RETRY_DELAY_S, ClientOperation, ClientOperations, parse_addresses
from millstream.client.routes import DENIAL_GRACE_S, ROUTE_LIFETIME_S, ROUTE_RETRY_S
from millstream.client.values import QueueAddress, SendResult
from millstream.model.errors import MillstreamError, NotConnected, TimedOut, Unreachable
from millstream.protocol.remoting.bodies import BrokerData, QueueData, TopicRouteData, encode_body
from millstream.protocol.remoting.command import RemotingCommand

QUEUE = QueueAddress("t", "b", 1, "old:1")
SENT = RemotingCommand(0, {"msgId": "ID", "queueId": "1", "queueOffset": "7"})
BUSY = RemotingCommand(2, remark="busy")


def send(conversations: ClientOperations) -> ClientOperation[list[SendResult]]:
    return conversations.send(QUEUE, requests.send_batch(QUEUE, [b""], group="g"), ["m"])


def gone(address: str = "old:1") -> NotConnected:
    return NotConnected(f"{address} is gone.")


def test_a_send_goes_to_the_brokers_new_address_after_it_was_unreachable() -> None:
    result, asked = play(send(ClientOperations(["ns:1"])), [gone(), route("new:1"), SENT])
    assert isinstance(result, list)
    assert result == [SendResult("m", QueueAddress("t", "b", 1, "new:1"), 7, "ID")]
    assert [ask.address for ask in asked] == ["old:1", "ns:1", "new:1"]


def test_a_busy_broker_is_asked_again_later_and_three_times_in_all() -> None:
    result, asked = play(send(ClientOperations(["ns:1"])), [BUSY, route("old:1"), BUSY, route("old:1"), BUSY])
    assert isinstance(result, MillstreamError)
    assert result.name == "TOO_MANY_REQUESTS"
    assert [ask.delay_s for ask in asked if ask.address == "old:1"] == [0, RETRY_DELAY_S, 2 * RETRY_DELAY_S]


def test_a_send_is_tried_again_also_while_no_nameserver_answers() -> None:
    result, asked = play(send(ClientOperations(["ns:1"])), [gone(), gone("ns:1"), SENT])
    assert isinstance(result, list)
    assert [ask.address for ask in asked] == ["old:1", "ns:1", "old:1"]


@pytest.mark.parametrize(
    "failure", [TimedOut("late"), RemotingCommand(17, remark="no"), RemotingCommand(13, remark="no")]
)
def test_a_send_that_may_have_been_stored_or_was_refused_is_not_repeated(failure: Step) -> None:
    result, asked = play(send(ClientOperations(["ns:1"])), [failure])
    assert isinstance(result, MillstreamError)
    assert len(asked) == 1


def test_a_route_is_asked_once_and_again_when_it_was_forgotten() -> None:
    conversations = ClientOperations(["ns:1"])
    assert len(play(conversations.queues("t"), [route("h:1")])[1]) == 1
    assert len(play(conversations.queues("t"), [])[1]) == 0
    conversations.forget_route("t")
    assert len(play(conversations.queues("t"), [route("h:1")])[1]) == 1


def test_a_nameserver_that_failed_is_asked_last_from_then_on() -> None:
    conversations = ClientOperations(["ns1:1", "ns2:1"])
    _, first = play(conversations.queues("t"), [gone("ns1:1"), route("h:1")])
    _, second = play(conversations.queues("u"), [route("h:1")])
    assert [ask.address for ask in first + second] == ["ns1:1", "ns2:1", "ns2:1"]


def test_when_all_nameservers_fail_the_first_failure_is_told() -> None:
    result, _ = play(ClientOperations(["ns1:1", "ns2:1"]).queues("t"), [gone("ns1:1"), gone("ns2:1")])
    assert isinstance(result, Unreachable)
    assert "ns1:1" in result.message


def test_a_nameserver_that_says_no_is_believed() -> None:
    result, asked = play(ClientOperations(["ns1:1", "ns2:1"]).queues("t"), [RemotingCommand(17, remark="no")])
    assert isinstance(result, MillstreamError)
    assert (result.name, len(asked)) == ("TOPIC_NOT_FOUND", 1)


def test_queues_of_brokers_without_a_master_are_left_out() -> None:
    data = TopicRouteData(
        [BrokerData("a", {1: "x:1"}), BrokerData("b", {0: "h:1"})], [QueueData("a", 1, 1), QueueData("b", 1, 1)]
    )
    result, _ = play(ClientOperations(["ns:1"]).queues("t"), [RemotingCommand(0, body=encode_body(data))])
    assert isinstance(result, list)
    assert [queue.broker_name for queue in result] == ["b"]


def test_a_long_poll_may_take_as_much_longer_as_it_waits() -> None:
    conversation = ClientOperations(["ns:1"]).pull(QUEUE, 0, wait_ms=15_000)
    assert next(conversation).extra_wait_s == 15


@pytest.mark.parametrize("ext", [{}, {"offset": "five"}])
def test_an_answer_without_its_number_is_a_protocol_violation(ext: dict[str, str]) -> None:
    result, _ = play(ClientOperations(["ns:1"]).offset_by_time(QUEUE, 0), [RemotingCommand(0, ext)])
    assert isinstance(result, MillstreamError)
    assert result.name == "PROTOCOL_VIOLATION"


def test_addresses_are_separated_by_semicolon_or_comma() -> None:
    assert parse_addresses(" a:1; b:2,[::1]:3 ;") == ("a:1", "b:2", "[::1]:3")


def brokers(*names: str, permission: int = 6) -> RemotingCommand:
    data = TopicRouteData(
        [BrokerData(name, {0: f"{name}:1"}) for name in names],
        [QueueData(name, 4, 4, permission if name == names[-1] else 6) for name in names],
    )
    return RemotingCommand(0, body=encode_body(data))


def test_a_send_that_may_move_goes_to_another_broker_after_its_own_was_unreachable() -> None:
    request = requests.send_batch(QUEUE, [b""], group="g")
    sending = ClientOperations(["ns:1"]).send(QUEUE, request, ["m"], may_move=True)
    result, asked = play(sending, [gone(), brokers("b", "c"), SENT])
    assert isinstance(result, list)
    assert [(one.queue.broker_name, one.queue.queue_id) for one in result] == [("c", 1)]
    assert (asked[-1].address, asked[-1].command.ext["n"], asked[-1].command.ext["e"]) == ("c:1", "c", "1")


def test_a_send_that_a_drained_broker_refuses_goes_elsewhere() -> None:
    drained = RemotingCommand(16, remark="The broker b is drained. [MS-2110]")
    result, asked = play(send(ClientOperations(["ns:1"])), [drained, brokers("c", "b", permission=4), SENT])
    assert isinstance(result, list)
    assert asked[-1].address == "c:1"


def test_messages_of_a_message_group_stay_with_their_broker_while_it_is_unreachable() -> None:
    result, asked = play(send(ClientOperations(["ns:1"])), [gone(), brokers("b", "c"), SENT])
    assert isinstance(result, list)
    assert asked[-1].address == "b:1"


def later(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    now_s = module.time.monotonic() + seconds
    monkeypatch.setattr(module.time, "monotonic", lambda: now_s)


def test_the_last_route_is_used_while_all_nameservers_are_down(monkeypatch: pytest.MonkeyPatch) -> None:
    conversations = ClientOperations(["ns1:1", "ns2:1"])
    play(conversations.route("t"), [route("h:1")])
    later(monkeypatch, ROUTE_LIFETIME_S)
    down, asked = play(conversations.route("t"), [gone("ns1:1"), gone("ns2:1")])
    assert isinstance(down, TopicRouteData)
    assert [ask.address for ask in asked] == ["ns1:1", "ns2:1"]
    assert len(play(conversations.route("t"), [])[1]) == 0
    later(monkeypatch, ROUTE_RETRY_S)
    up, asked = play(conversations.route("t"), [route("new:1")])
    assert isinstance(up, TopicRouteData)
    assert up.broker_datas[0].broker_addrs == {0: "new:1"}


def test_a_failed_send_does_not_lose_the_last_route() -> None:
    conversations = ClientOperations(["ns:1"])
    play(conversations.route("t"), [route("old:1")])
    result, asked = play(send(conversations), [gone(), gone("ns:1"), SENT])
    assert isinstance(result, list)
    assert [ask.address for ask in asked] == ["old:1", "ns:1", "old:1"]


def test_a_nameserver_that_was_just_started_and_knows_nothing_is_not_believed_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    conversations = ClientOperations(["ns:1"])
    play(conversations.route("t"), [route("h:1")])
    unknown = RemotingCommand(17, remark="no")
    later(monkeypatch, ROUTE_LIFETIME_S)
    assert isinstance(play(conversations.route("t"), [unknown])[0], TopicRouteData)
    later(monkeypatch, DENIAL_GRACE_S)
    assert isinstance(play(conversations.route("t"), [unknown])[0], MillstreamError)


def test_a_topic_that_its_broker_does_not_know_is_believed_to_be_gone() -> None:
    conversations = ClientOperations(["ns:1"])
    play(conversations.route("t"), [route("old:1")])
    play(send(conversations), [RemotingCommand(17, remark="no")])
    assert isinstance(play(conversations.route("t"), [gone("ns:1")])[0], Unreachable)
