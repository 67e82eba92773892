"""Which replica a client reads from, and when it asks the master: without sockets and clocks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import pytest

from millstream.client.operations import ClientOperation, ClientOperations
from millstream.client.replica_reads import AVOID_S, MAX_AVOIDED, ReadableReplicas, ReadFrom
from millstream.client.topic_operations import TopicOperations
from millstream.client.values import PullBatch, QueueAddress
from millstream.model.errors import MillstreamError, NameRefused, TimedOut, Unreachable
from millstream.model.operations import PullStatus, QueueRange
from millstream.protocol.remoting.bodies import (
    BrokerData,
    QueueData,
    TopicRouteData,
    encode_body,
    encode_topic_statistics,
)
from millstream.protocol.remoting.codes import RequestCode, ResponseCode
from millstream.protocol.remoting.command import RemotingCommand

NAMESERVER, MASTER, SECOND, THIRD = "n:1", "a:1", "b:1", "c:1"
BROKER = BrokerData("broker-a", {0: MASTER, 2: SECOND, 3: THIRD}, "cluster")
QUEUE = QueueAddress("orders", "broker-a", 0, MASTER)
T = TypeVar("T")
Answers = dict[str, Callable[[RemotingCommand], RemotingCommand]]


def records(command: RemotingCommand, *, code: int = ResponseCode.SUCCESS, end: int = 9) -> RemotingCommand:
    offset = int(command.ext["queueOffset"])
    following = offset + 1 if code == ResponseCode.SUCCESS else min(offset, end)
    ext = {"nextBeginOffset": str(following), "minOffset": "0", "maxOffset": str(end)}
    return command.response(code, ext=ext)


def at_end(command: RemotingCommand) -> RemotingCommand:
    return records(command, code=ResponseCode.PULL_NOT_FOUND)


def too_far(command: RemotingCommand) -> RemotingCommand:
    return records(command, code=ResponseCode.PULL_OFFSET_MOVED, end=0)


def refuse(command: RemotingCommand) -> RemotingCommand:
    return command.response(ResponseCode.SERVICE_NOT_AVAILABLE, remark="[NOT_MASTER] no reads here")


def silent(_: RemotingCommand) -> RemotingCommand:
    raise TimedOut("no answer")


def dead(_: RemotingCommand) -> RemotingCommand:
    raise Unreachable("closed")


def carry_out(
    operation: ClientOperation[T], servers: Answers, *, routes: Sequence[BrokerData] = (BROKER,)
) -> tuple[T, list[str]]:
    """The result, and who was asked for messages; `routes` are told one after the other, the last one from then on."""
    asked: list[str] = []
    told = list(routes)
    try:
        step = next(operation)
        while True:
            if step.address == NAMESERVER:
                route = TopicRouteData([told.pop(0) if len(told) > 1 else told[0]], [QueueData("broker-a", 4, 4, 6)])
                step = operation.send(step.command.response(body=encode_body(route)))
                continue
            asked.append(step.address)
            try:
                answer = servers[step.address](step.command)
            except MillstreamError as error:
                step = operation.throw(error)
            else:
                step = operation.send(answer)
    except StopIteration as end:
        return end.value, asked


def pull(
    client: ClientOperations, servers: Answers, *, wait_ms: int = 0, queue: QueueAddress = QUEUE
) -> tuple[PullBatch, list[str]]:
    return carry_out(client.pull(queue, 5, wait_ms=wait_ms, read_from=ReadFrom.REPLICA), servers)


def client_of() -> ClientOperations:
    return ClientOperations([NAMESERVER])


def test_queues_are_spread_over_the_replicas_and_each_stays_at_its_own() -> None:
    replicas = ReadableReplicas()
    assert [replicas.of(BROKER, number, 0.0)[0] for number in range(4)] == [SECOND, THIRD, SECOND, THIRD]
    assert replicas.of(BROKER, 1, 5.0) == [THIRD, SECOND]


def test_the_master_is_no_replica_under_whichever_id_it_stands() -> None:
    moved = BrokerData("broker-a", {0: SECOND, 2: SECOND, 3: THIRD}, "cluster")
    assert ReadableReplicas().of(moved, 0, 0.0) == [THIRD]


def test_who_did_not_answer_is_left_alone_for_a_while() -> None:
    replicas = ReadableReplicas()
    replicas.avoid(SECOND, 100.0)
    assert replicas.of(BROKER, 0, 100.0 + AVOID_S - 0.1) == [THIRD]
    assert replicas.of(BROKER, 0, 100.0 + AVOID_S) == [SECOND, THIRD]


def test_the_memory_of_those_who_did_not_answer_is_bounded() -> None:
    replicas = ReadableReplicas()
    for number in range(MAX_AVOIDED + 1):
        replicas.avoid(f"x:{number}", 0.0)
    assert not replicas.is_avoided("x:0", 0.0)
    assert replicas.is_avoided(f"x:{MAX_AVOIDED}", 0.0)


def test_a_replica_that_has_records_answers_alone() -> None:
    batch, asked = pull(client_of(), {SECOND: records})
    assert (batch.next_offset, asked) == (6, [SECOND])


def test_a_reader_of_the_master_asks_no_replica() -> None:
    operation = client_of().pull(QUEUE, 5)
    assert carry_out(operation, {MASTER: records})[1] == [MASTER]


@pytest.mark.parametrize("answer", [at_end, too_far])
def test_where_a_replica_is_behind_the_master_is_asked(answer: Callable[[RemotingCommand], RemotingCommand]) -> None:
    client = client_of()
    batch, asked = pull(client, {SECOND: answer, MASTER: records})
    assert (batch.status, asked) == (PullStatus.FOUND, [SECOND, MASTER])
    # It is as good as before: it was only behind.
    assert pull(client, {SECOND: records})[1] == [SECOND]


@pytest.mark.parametrize("answer", [refuse, silent, dead])
def test_a_replica_that_gives_nothing_is_passed_over_by_the_next_reads(
    answer: Callable[[RemotingCommand], RemotingCommand],
) -> None:
    client = client_of()
    assert pull(client, {SECOND: answer, THIRD: records})[1] == [SECOND, THIRD]
    assert pull(client, {THIRD: records})[1] == [THIRD]


def test_without_a_replica_that_answers_the_master_is_asked() -> None:
    assert pull(client_of(), {SECOND: dead, THIRD: refuse, MASTER: records})[1] == [SECOND, THIRD, MASTER]


def test_who_waits_for_messages_waits_at_the_master() -> None:
    waits: list[tuple[str, str]] = []

    def note(place: str, answer: Callable[[RemotingCommand], RemotingCommand]) -> Callable[..., RemotingCommand]:
        def noted(command: RemotingCommand) -> RemotingCommand:
            waits.append((place, command.ext["suspendTimeoutMillis"]))
            return answer(command)

        return noted

    pull(client_of(), {SECOND: note(SECOND, at_end), MASTER: note(MASTER, at_end)}, wait_ms=700)
    assert waits == [(SECOND, "0"), (MASTER, "700")]


def ranges(command: RemotingCommand, end: int = 7) -> RemotingCommand:
    return command.response(body=encode_topic_statistics("orders", "broker-a", [QueueRange(0, 0, end, 1)]))


def ends(
    servers: Answers, *, client: ClientOperations | None = None, routes: Sequence[BrokerData] = (BROKER,)
) -> tuple[list[int], list[str]]:
    operation = (client or client_of()).queue_ranges("orders", read_from=ReadFrom.REPLICA)
    found, asked = carry_out(operation, servers, routes=routes)
    return [one.range.max_offset for one in found], asked


def test_the_master_says_where_queues_end() -> None:
    assert ends({MASTER: ranges}) == ([7], [MASTER])


@pytest.mark.parametrize("answer", [refuse, silent, dead])
def test_where_the_master_is_silent_a_replica_says_where_queues_end(
    answer: Callable[[RemotingCommand], RemotingCommand],
) -> None:
    client = client_of()
    assert ends({MASTER: answer, SECOND: ranges}, client=client) == ([7], [MASTER, SECOND])
    # Nobody waits for it again soon.
    assert ends({SECOND: ranges}, client=client) == ([7], [SECOND])


def test_replicas_that_the_route_lists_since_the_master_fell_silent_are_asked() -> None:
    alone = BrokerData("broker-a", {0: MASTER}, "cluster")
    assert ends({MASTER: silent, SECOND: ranges}, routes=[alone, BROKER]) == ([7], [MASTER, SECOND])
    operation = client_of().pull(QUEUE, 5, read_from=ReadFrom.REPLICA)
    batch, asked = carry_out(operation, {MASTER: silent, SECOND: records}, routes=[alone, BROKER])
    assert (batch.status, asked) == (PullStatus.FOUND, [MASTER, SECOND])


def test_the_next_master_is_asked_before_replicas() -> None:
    elected = BrokerData("broker-a", {0: THIRD, 2: SECOND}, "cluster")
    assert ends({MASTER: silent, THIRD: ranges}, routes=[BROKER, elected]) == ([7], [MASTER, THIRD])


def test_what_the_master_refuses_no_replica_is_asked_for() -> None:
    def unknown(command: RemotingCommand) -> RemotingCommand:
        return command.response(ResponseCode.TOPIC_NOT_EXIST, remark="[TOPIC_NOT_FOUND] no such topic")

    with pytest.raises(NameRefused):
        ends({MASTER: unknown})


def test_where_nobody_answers_the_first_failure_is_told() -> None:
    with pytest.raises(TimedOut):
        ends({MASTER: silent, SECOND: dead, THIRD: dead})


def test_a_broker_without_a_master_is_not_left_out_of_the_ends() -> None:
    """Its queues would look as if they held nothing."""
    orphan = BrokerData("broker-a", {2: SECOND}, "cluster")
    client = ClientOperations([NAMESERVER], failover_s=0.0)
    with pytest.raises(Unreachable, match="broker-a has no master"):
        carry_out(client.queue_ranges("orders"), {}, routes=[orphan])
    assert ends({SECOND: ranges}, routes=[orphan]) == ([7], [SECOND])


def test_a_topic_is_deleted_at_masters_alone() -> None:
    asked: list[str] = []
    operation = TopicOperations(client_of()).delete("orders")
    try:
        step = next(operation)
        while True:
            code = step.command.code
            if code == RequestCode.GET_ROUTE_BY_TOPIC:
                route = TopicRouteData([BROKER], [QueueData("broker-a", 4, 4, 6)])
                step = operation.send(step.command.response(body=encode_body(route)))
                continue
            if code == RequestCode.DELETE_TOPIC_IN_BROKER:
                asked.append(step.address)
            step = operation.send(step.command.response())
    except StopIteration:
        pass
    assert asked == [MASTER]
