"""The official Python client's retries, by its group's settings; dead letters sent again; resets while it consumes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from official import Collector, drain, message, producer, push_consumer, simple_consumer

from millstream.client.blocking import BlockingClient
from millstream.client.group_operations import DeadLetterOperations
from millstream.model.group import ExponentialBackoff, FirstPosition, GroupConfig
from millstream.model.operations import DeadLetterQuery
from millstream.model.topic import TopicConfig
from millstream.server.child import ServerProcess

pytestmark = pytest.mark.official


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    directory: Path = tmp_path_factory.mktemp("retries")
    with ServerProcess(directory / "data") as process:
        yield process


@pytest.fixture
def port(served: ServerProcess) -> int:
    return int(served.addresses.grpc.rpartition(":")[2])


@pytest.fixture
def admin(served: ServerProcess) -> Iterator[BlockingClient]:
    with BlockingClient(served.addresses.nameserver, timeout_s=10) as client:
        yield client


def test_a_message_is_retried_by_its_groups_steps_then_dies_and_is_sent_again(port: int, admin: BlockingClient) -> None:
    admin.create_topic(TopicConfig("orders", read_queues=1, write_queues=1))
    admin.create_group(GroupConfig("billing", max_attempts=3, backoff_s=(1, 2)))
    mended = False
    listener = Collector(lambda one: mended or one.body != b"bad")
    letters = DeadLetterOperations(admin.conversations)
    (address,) = admin.run(letters.brokers())
    with push_consumer(port, "billing", "orders", listener), producer(port, "orders") as sender:
        sent = sender.send(message("orders", b"bad"))
        sender.send(message("orders", b"good"))
        listener.wait_for(4)
        dead = drain_letters(admin, letters, address, "billing")
        assert [(letter.message_id, letter.origin_topic, letter.attempts) for letter in dead] == [
            (sent.message_id, "orders", 3)
        ]
        assert dead[0].reason == "attempts used up"
        mended = True
        result = admin.run(letters.redrive(address, DeadLetterQuery("billing"), None))
        assert [one.message_id for one in result.results] == [sent.message_id]
        listener.wait_for(5)
    bad = [(attempt, at_s) for body, attempt, at_s in listener.seen if body == b"bad"]
    assert [attempt for attempt, _ in bad] == [1, 2, 3, 1]
    # The steps of the group, not those of the client: 1 s and 2 s at least.
    assert bad[1][1] - bad[0][1] >= 0.9
    assert bad[2][1] - bad[1][1] >= 1.9


def drain_letters(admin: BlockingClient, letters: DeadLetterOperations, address: str, group: str) -> list:
    """The dead letters of the group, once there are any."""
    give_up_s = time.monotonic() + 20
    while not (page := admin.run(letters.page(address, DeadLetterQuery(group)))).letters:
        assert time.monotonic() < give_up_s
        time.sleep(0.05)
    return list(page.letters)


def test_a_consumer_of_a_group_with_exponential_backoff_starts_and_retries(port: int, admin: BlockingClient) -> None:
    admin.create_topic(TopicConfig("curved", read_queues=1, write_queues=1))
    admin.create_group(GroupConfig("curve", exponential=ExponentialBackoff(500, 4_000, 2)))
    listener = Collector(lambda one: one.delivery_attempt > 2)
    with push_consumer(port, "curve", "curved", listener), producer(port, "curved") as sender:
        sender.send(message("curved", b"try"))
        listener.wait_for(3)
    assert [attempt for _, attempt, _ in listener.seen] == [1, 2, 3]


def test_a_reset_gives_a_running_consumer_the_messages_again(port: int, admin: BlockingClient) -> None:
    admin.create_topic(TopicConfig("again", read_queues=1, write_queues=1))
    listener = Collector()
    with push_consumer(port, "rereader", "again", listener), producer(port, "again") as sender:
        for body in (b"a", b"b", b"c"):
            sender.send(message("again", body))
        listener.wait_for(3)
        (item,) = admin.group_progress("rereader", "again")
        admin.reset_offset("rereader", item, 1)
        listener.wait_for(5)
    assert sorted(listener.bodies) == [b"a", b"b", b"b", b"c", b"c"]


def test_a_group_that_begins_at_the_end_gets_no_history(port: int, admin: BlockingClient) -> None:
    admin.create_topic(TopicConfig("history", read_queues=2, write_queues=2))
    admin.create_group(GroupConfig("newcomer", first_position=FirstPosition.LAST))
    with producer(port, "history") as sender:
        sender.send(message("history", b"old"))
        with simple_consumer(port, "newcomer", "history", await_s=1) as consumer:
            assert consumer.receive(32, 10) == []
            sender.send(message("history", b"new"))
            assert [one.body for one in drain(consumer, 1)] == [b"new"]


def test_a_group_that_is_switched_off_is_refused_until_it_is_on_again(port: int, admin: BlockingClient) -> None:
    admin.create_topic(TopicConfig("paused", read_queues=1, write_queues=1))
    admin.create_group(GroupConfig("pauser", enabled=False))
    with producer(port, "paused") as sender, simple_consumer(port, "pauser", "paused", await_s=1) as consumer:
        sender.send(message("paused", b"a"))
        with pytest.raises(Exception, match="MS-2204"):
            consumer.receive(32, 10)
        admin.update_group(GroupConfig("pauser"))
        assert [one.body for one in drain(consumer, 1)] == [b"a"]
