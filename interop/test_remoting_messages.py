"""Messages of remoting clients: sent in each way, consumed, failed, set aside, filtered, in order, delayed."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from interop.driver import ClientError, Driver
from interop.orders import bodies_of, drain, remoting_producer, remoting_push, send_all, simple, wait_for_topic
from interop.server import Server

MESSAGE: dict[str, Any] = {
    "body": "hello",
    "tag": "blue",
    "keys": ["k1", "k2"],
    "properties": {"price": "15", "farbe": "grün"},
}


def test_a_message_is_consumed_as_it_was_sent(remoting: Driver, door: Server) -> None:
    topic, group = door.topic(), door.group(remoting.name)
    sender = remoting_producer(remoting, door)
    sent = remoting.order("send", sender, message={"topic": topic, **MESSAGE})
    consumer = remoting_push(remoting, door, topic, group)
    (message,) = remoting.wait_for(consumer, 1)
    assert sent["queue_offset"] == message["queue_offset"] == 0
    assert (message["body"], message["tag"], message["keys"]) == ("hello", "blue", ["k1", "k2"])
    assert message["properties"].items() >= MESSAGE["properties"].items()
    assert message["attempt"] == 1
    remoting.order("close", consumer)
    remoting.order("close", sender)


def test_each_message_is_consumed_once_by_a_group_and_goes_on_where_a_closed_one_stopped(
    remoting: Driver, door: Server
) -> None:
    topic, group = door.topic(), door.group(remoting.name)
    sender = remoting_producer(remoting, door)
    consumer = remoting_push(remoting, door, topic, group)
    send_all(remoting, sender, topic, [f"a{number}" for number in range(20)])
    remoting.wait_for(consumer, 20)
    remoting.order("close", consumer)
    send_all(remoting, sender, topic, [f"b{number}" for number in range(20)])
    second = remoting_push(remoting, door, topic, group)
    remoting.wait_for(second, 20)
    time.sleep(1)
    assert sorted(bodies_of(remoting, second)) == sorted(f"b{number}" for number in range(20))
    remoting.order("close", second)
    remoting.order("close", sender)


def test_what_fails_comes_again_with_one_attempt_more_and_is_set_aside_at_last(remoting: Driver, door: Server) -> None:
    topic, group = door.topic(), door.group(remoting.name, max_attempts=3)
    consumer = remoting_push(remoting, door, topic, group, fail={"once": 1, "always": 99}, attempts=3)
    sender = remoting_producer(remoting, door)
    send_all(remoting, sender, topic, ["once", "always", "never"], tag="blue", keys=["k"])
    told = remoting.wait_for(consumer, 6, timeout_s=90)
    assert sorted((message["body"], message["attempt"]) for message in told) == [
        ("always", 1), ("always", 2), ("always", 3), ("never", 1), ("once", 1), ("once", 2),
    ]  # fmt: skip
    assert {(message["topic"], message["tag"]) for message in told} == {(topic, "blue")}
    wait_for_topic(door, f"%DLQ%{group}")
    reader = remoting_push(remoting, door, f"%DLQ%{group}", door.group(remoting.name))
    (letter,) = remoting.wait_for(reader, 1)
    assert (letter["body"], letter["tag"]) == ("always", "blue")
    for client in (consumer, reader, sender):
        remoting.order("close", client)


@pytest.mark.parametrize("filters", [{"filter": "blue || red"}, {"sql": "price > 10 AND TAGS IS NOT NULL"}])
def test_a_remoting_filter_lets_through_what_it_asks_for(
    remoting: Driver, door: Server, filters: dict[str, str]
) -> None:
    topic, group = door.topic(), door.group(remoting.name)
    sender = remoting_producer(remoting, door)
    for body, tag, price in (("yes", "blue", "11"), ("no", "green", "9"), ("ja", "red", "12")):
        message = {"topic": topic, "body": body, "tag": tag, "properties": {"price": price}}
        remoting.order("send", sender, message=message)
    consumer = remoting_push(remoting, door, topic, group, **filters)
    remoting.wait_for(consumer, 2)
    time.sleep(0.5)
    assert sorted(bodies_of(remoting, consumer)) == ["ja", "yes"]
    remoting.order("close", consumer)
    remoting.order("close", sender)


def test_every_consumer_of_a_broadcast_gets_everything(remoting: Driver, door: Server) -> None:
    topic, group = door.topic(), door.group(remoting.name)
    consumers = [remoting_push(remoting, door, topic, group, model="broadcast") for _ in range(2)]
    sender = remoting_producer(remoting, door)
    time.sleep(3)
    send_all(remoting, sender, topic, [f"m{number}" for number in range(10)])
    for consumer in consumers:
        remoting.wait_for(consumer, 10)
        assert sorted(bodies_of(remoting, consumer)) == sorted(f"m{number}" for number in range(10))
        remoting.order("close", consumer)
    remoting.order("close", sender)


def test_a_message_delayed_by_a_level_comes_after_it(remoting: Driver, door: Server) -> None:
    topic, group = door.topic("MIXED"), door.group(remoting.name)
    consumer = remoting_push(remoting, door, topic, group)
    sender = remoting_producer(remoting, door)
    began_s = time.monotonic()
    remoting.order("send", sender, message={"topic": topic, "body": "late", "level": 2})
    remoting.wait_for(consumer, 1)
    assert time.monotonic() - began_s >= 5
    remoting.order("close", consumer)
    remoting.order("close", sender)


def test_a_topic_that_is_not_there_is_told_to_the_sender(remoting: Driver, door: Server) -> None:
    sender = remoting_producer(remoting, door)
    with pytest.raises(ClientError) as refused:
        remoting.order("send", sender, message={"topic": "no-such-topic", "body": "x"})
    assert refused.value.code in (17, 10005, None)
    remoting.order("close", sender)


def test_batches_and_oneway_messages_arrive(java: Driver, door: Server) -> None:
    topic, group = door.topic(queues=1), door.group(java.name)
    sender = remoting_producer(java, door)
    batch = [{"topic": topic, "body": f"b{number}", "tag": "t"} for number in range(10)]
    assert java.order("send", sender, messages=batch)["status"] == "SEND_OK"
    java.order("send", sender, message={"topic": topic, "body": "quiet"}, oneway=True)
    consumer = remoting_push(java, door, topic, group)
    java.wait_for(consumer, 11)
    assert sorted(bodies_of(java, consumer)) == sorted([*(f"b{number}" for number in range(10)), "quiet"])
    java.order("close", consumer)
    java.order("close", sender)


def test_a_lite_pull_consumer_polls_and_commits(java: Driver, door: Server) -> None:
    topic, group = door.topic(), door.group(java.name)
    sender = remoting_producer(java, door)
    send_all(java, sender, topic, [f"m{number}" for number in range(12)])
    found: list[str] = []
    for expected in (12, 0):
        name = f"pull-{group}-{expected}"
        java.order("open_pull", name, endpoint=door.remoting, group=group, topic=topic)
        taken: list[str] = []
        for _ in range(8):
            taken += [message["body"] for message in java.order("receive", name, await_s=1)["messages"]]
            if expected and len(taken) >= expected:
                break
        assert len(taken) == expected
        found += taken
        java.order("close", name)
    assert sorted(found) == sorted(f"m{number}" for number in range(12))
    java.order("close", sender)


@pytest.mark.parametrize(("ending", "arrive"), [("commit", ["half"]), ("rollback", [])])
def test_a_remoting_transaction_ends_as_its_listener_says(
    java: Driver, door: Server, ending: str, arrive: list[str]
) -> None:
    topic, group = door.topic("MIXED"), door.group(java.name)
    sender = remoting_producer(java, door, check="unknown")
    java.order("send", sender, message={"topic": topic, "body": "half"}, transaction=ending)
    consumer = remoting_push(java, door, topic, group)
    time.sleep(5)
    assert bodies_of(java, consumer) == arrive
    java.order("close", consumer)
    java.order("close", sender)


def test_a_remoting_producer_that_says_nothing_is_asked(java: Driver, door: Server) -> None:
    topic, group = door.topic("MIXED"), door.group(java.name)
    sender = remoting_producer(java, door, check="commit")
    java.order("send", sender, message={"topic": topic, "body": "half"}, transaction="leave")
    (asked,) = java.wait_for(sender, 1, "check", timeout_s=90)
    assert asked["body"] == "half"
    consumer = remoting_push(java, door, topic, group)
    java.wait_for(consumer, 1)
    java.order("close", consumer)
    java.order("close", sender)


def test_a_request_gets_its_reply(drivers: Callable[[str], Driver], door: Server) -> None:
    """By 4.9: the client of 5.3.3 gives up once its request is stored, with RocketMQ's own broker too."""
    java = drivers("java-4.9")
    topic, group = door.topic(), door.group(java.name)
    answering = remoting_producer(java, door)
    consumer = remoting_push(java, door, topic, group, reply=answering)
    asking = remoting_producer(java, door)
    time.sleep(3)
    answer = java.order("request", asking, message={"topic": topic, "body": "question"})
    assert answer["body"] == "answer to question"
    for client in (consumer, asking, answering):
        java.order("close", client)


def test_a_traced_producer_leaves_its_trace(java: Driver, door: Server) -> None:
    topic, group = door.topic(), door.group(java.name)
    sender = remoting_producer(java, door, trace=True)
    sent = java.order("send", sender, message={"topic": topic, "body": "followed", "keys": ["k"]})
    reader = remoting_push(java, door, "RMQ_SYS_TRACE_TOPIC", group)
    java.wait_until(
        lambda: any(sent["id"] in body for body in bodies_of(java, reader)), 40, lambda: bodies_of(java, reader)
    )
    java.order("close", reader)
    java.order("close", sender)


@pytest.mark.parametrize("orderly", [False, True])
def test_a_pop_consumer_gets_everything_once_and_failures_again(
    drivers: Callable[[str], Driver], door: Server, orderly: bool
) -> None:
    driver: Driver = drivers("java-5.3")
    topic, group = door.topic("MIXED"), door.group("java-5.3", fifo=orderly)
    sender = remoting_producer(driver, door)
    consumer = remoting_push(driver, door, topic, group, pop=True, orderly=orderly, fail={"m3": 1})
    everything = [f"m{number}" for number in range(10)]
    send_all(driver, sender, topic, everything)
    driver.wait_for(consumer, 11, timeout_s=90)
    assert Counter(bodies_of(driver, consumer)) == Counter([*everything, "m3"])
    driver.order("close", consumer)
    driver.order("close", sender)


def test_grpc_and_remoting_give_each_other_equal_messages(
    remoting: Driver, drivers: Callable[[str], Driver], door: Server
) -> None:
    grpc: Driver = drivers("python")
    topic = door.topic()
    sender = remoting_producer(remoting, door)
    remoting.order("send", sender, message={"topic": topic, **MESSAGE})
    consumer = simple(grpc, door, topic, door.group("python"))
    (received,) = drain(grpc, consumer, 1)
    assert {name: received[name] for name in ("body", "tag", "properties")} == {
        name: MESSAGE[name] for name in ("body", "tag", "properties")
    }
    assert set(received["keys"]) == {"k1", "k2"}
    back = door.topic()
    other = f"producer-{back}"
    grpc.order("open_producer", other, endpoint=door.endpoint, topics=[back])
    grpc.order("send", other, message={"topic": back, **MESSAGE})
    reader = remoting_push(remoting, door, back, door.group(remoting.name))
    (message,) = remoting.wait_for(reader, 1)
    assert (message["body"], message["tag"], set(message["keys"])) == ("hello", "blue", {"k1", "k2"})
    assert message["properties"].items() >= MESSAGE["properties"].items()
    for driver, client in ((grpc, consumer), (grpc, other), (remoting, sender), (remoting, reader)):
        driver.order("close", client)
