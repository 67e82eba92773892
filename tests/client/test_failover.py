"""What the client's operations do while a broker's master changes its address, without any socket."""

from __future__ import annotations

import pytest
from operation_plays import Step, play, route

from millstream.client import failover, requests
from millstream.client.failover import FAILOVER_BACKOFF
from millstream.client.operations import ClientOperation, ClientOperations, RequestStep
from millstream.client.values import PullBatch, QueueAddress, SendResult
from millstream.model.errors import MillstreamError, NotConnected, TimedOut, Unreachable
from millstream.protocol.remoting.command import RemotingCommand

QUEUE = QueueAddress("t", "b", 1, "old:1")
SENT = RemotingCommand(0, {"msgId": "ID", "queueId": "1", "queueOffset": "7"})
PULLED = RemotingCommand(19, {"nextBeginOffset": "0", "minOffset": "0", "maxOffset": "0"})
REPLICA = RemotingCommand(14, remark="This broker is a replica.")
REFUSED = NotConnected("old:1 cannot be reached.")
CLOSED = Unreachable("old:1 closed the connection.")


def send(operations: ClientOperations, *, may_move: bool = False) -> ClientOperation[list[SendResult]]:
    return operations.send(QUEUE, requests.send_batch(QUEUE, [b""], group="g"), ["m"], may_move=may_move)


def places(asked: list[RequestStep]) -> list[str]:
    return [ask.address for ask in asked]


@pytest.fixture
def operations() -> ClientOperations:
    return ClientOperations(["ns:1"], failover_s=1000.0)


@pytest.mark.parametrize("failure", [REPLICA, REFUSED])
def test_a_send_that_no_master_took_is_tried_until_the_route_names_one(
    operations: ClientOperations, failure: Step
) -> None:
    steps: list[Step] = [failure, *[route("old:1"), failure] * 5, route("new:1"), SENT]
    result, asked = play(send(operations), steps)
    assert isinstance(result, list)
    assert places(asked) == ["old:1", *["ns:1", "old:1"] * 5, "ns:1", "new:1"]
    assert all(0 < ask.delay_s <= FAILOVER_BACKOFF.longest_s for ask in asked[2:-2:2])
    assert asked[-1].delay_s == 0


@pytest.mark.parametrize("failure", [CLOSED, TimedOut("late")])
def test_a_send_that_may_have_been_stored_is_not_repeated_at_the_new_master(
    operations: ClientOperations, failure: MillstreamError
) -> None:
    play(operations.route("t"), [route("old:1")])
    result, asked = play(send(operations, may_move=True), [failure, route("new:1")])
    assert result is failure
    assert places(asked)[0] == "old:1"
    assert "new:1" not in places(asked)


def test_a_send_whose_connection_closed_may_go_to_another_broker(operations: ClientOperations) -> None:
    result, asked = play(send(operations, may_move=True), [CLOSED, route("new:1", "other:1"), SENT])
    assert isinstance(result, list)
    assert places(asked)[-1] == "other:1"


def test_a_send_ends_with_its_failure_when_no_master_comes_in_time() -> None:
    result, asked = play(send(ClientOperations(["ns:1"], failover_s=0.0)), [REPLICA])
    assert isinstance(result, MillstreamError)
    assert (result.name, len(asked)) == ("NOT_MASTER", 1)


@pytest.mark.parametrize("failure", [REPLICA, REFUSED, CLOSED])
def test_a_pull_goes_on_at_the_new_master(operations: ClientOperations, failure: Step) -> None:
    result, asked = play(operations.pull(QUEUE, 0), [failure, route("old:1"), failure, route("new:1"), PULLED])
    assert isinstance(result, PullBatch)
    assert places(asked) == ["old:1", "ns:1", "old:1", "ns:1", "new:1"]
    assert [ask.delay_s for ask in asked[:3]] == [0, 0, 0]
    assert asked[3].delay_s > 0


def test_who_still_has_the_old_address_reads_and_sends_at_the_new_one(operations: ClientOperations) -> None:
    play(operations.pull(QUEUE, 0), [REFUSED, route("new:1"), PULLED])
    assert places(play(operations.pull(QUEUE, 0), [PULLED])[1]) == ["new:1"]
    assert places(play(send(operations), [SENT])[1]) == ["new:1"]


def test_a_commit_of_an_offset_is_repeated_at_the_new_master(operations: ClientOperations) -> None:
    result, asked = play(operations.commit_offset("g", QUEUE, 5), [CLOSED, route("new:1"), RemotingCommand(0)])
    assert result is None
    assert places(asked) == ["old:1", "ns:1", "new:1"]


def test_a_read_that_timed_out_is_not_repeated_but_the_next_one_asks_for_the_route(
    operations: ClientOperations,
) -> None:
    play(operations.route("t"), [route("old:1")])
    late = TimedOut("late")
    assert play(operations.pull(QUEUE, 0), [late])[0] is late
    result, _ = play(operations.queues("t"), [route("new:1")])
    assert isinstance(result, list)
    assert {queue.broker_address for queue in result} == {"new:1"}


def test_a_broker_whose_replicas_elect_a_master_keeps_its_queues(
    operations: ClientOperations,
) -> None:
    before, _ = play(operations.queues("t"), [route("old:1")])
    operations.doubt_route("t")
    between, _ = play(operations.queues("t"), [route("replica:1", ids=(2,))])
    assert between == before
    operations.doubt_route("t")
    after, _ = play(operations.queues("t"), [route("new:1")])
    assert isinstance(after, list)
    assert {queue.broker_address for queue in after} == {"new:1"}


def test_tries_end_when_the_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = [100.0]
    monkeypatch.setattr(failover.time, "monotonic", lambda: now_s[0])
    operation = ClientOperations(["ns:1"], failover_s=5.0).query_offset("g", QUEUE)
    next(operation)
    assert operation.throw(CLOSED).address == "ns:1"
    assert operation.send(route("old:1")).address == "old:1"
    now_s[0] = 105.0
    with pytest.raises(Unreachable):
        operation.throw(CLOSED)
