"""FIFO, delayed, transactional, priority and lite messages through every official client."""

from __future__ import annotations

import time

import pytest

from interop.driver import LACKS, ClientError, Driver, Missing
from interop.orders import drain, producer, push, simple
from interop.server import Server


def test_a_message_group_arrives_in_order_also_where_one_message_fails(driver: Driver, server: Server) -> None:
    topic, group = server.topic("FIFO"), server.group(driver.name, fifo=True, max_attempts=3)
    consumer = push(driver, server, topic, group, fail={"a02": 1, "b01": 1})
    sender = producer(driver, server, topic)
    for number in range(6):
        for customer in ("a", "b"):
            message = {"topic": topic, "body": f"{customer}{number:02}", "group": customer}
            driver.order("send", sender, message=message)
    driver.wait_until(
        lambda: {"a05", "b05"} <= {told["body"] for told in driver.events(consumer)},
        40,
        lambda: driver.events(consumer),
    )
    for customer, failing in (("a", "a02"), ("b", "b01")):
        bodies = [told["body"] for told in driver.events(consumer) if told["group"] == customer]
        # Python's client counts its own retries in silence, so that the listener fails once more.
        assert bodies.count(failing) >= 2
        assert bodies == sorted(bodies)
        assert set(bodies) == {f"{customer}{number:02}" for number in range(6)}
    driver.order("close", consumer)
    driver.order("close", sender)


def test_an_ordered_message_that_always_fails_is_set_aside_and_the_next_follows(driver: Driver, server: Server) -> None:
    topic, group = server.topic("FIFO"), server.group(driver.name, fifo=True, max_attempts=2)
    consumer = push(driver, server, topic, group, fail={"bad": 99})
    sender = producer(driver, server, topic)
    for body in ("bad", "good"):
        driver.order("send", sender, message={"topic": topic, "body": body, "group": "one"})
    told = driver.wait_for(consumer, 3)
    assert [message["body"] for message in told] == ["bad", "bad", "good"]
    driver.order("close", consumer)
    driver.order("close", sender)


def test_a_delayed_message_comes_when_it_is_due_and_says_when_that_was(driver: Driver, server: Server) -> None:
    topic, group = server.topic("DELAY"), server.group(driver.name)
    sender = producer(driver, server, topic)
    due_ms = int(time.time() + 4) * 1000
    sent = driver.order("send", sender, message={"topic": topic, "body": "later", "deliver_at_ms": due_ms})
    consumer = simple(driver, server, topic, group)
    (message,) = drain(driver, consumer, 1)
    assert time.time() * 1000 >= due_ms
    assert (message["id"], message["deliver_at_ms"]) == (sent["id"], due_ms)
    driver.order("close", consumer)
    driver.order("close", sender)


def require(driver: Driver, feature: str) -> None:
    """Skip a scenario that the client cannot begin without the feature."""
    if feature in LACKS.get(driver.name, ()):
        raise Missing(f"it has no {feature}")


def test_a_recalled_message_never_comes(driver: Driver, server: Server) -> None:
    require(driver, "recall")
    topic, group = server.topic("DELAY"), server.group(driver.name)
    consumer = push(driver, server, topic, group)
    sender = producer(driver, server, topic)
    due_ms = int(time.time() + 6) * 1000
    kept = driver.order("send", sender, message={"topic": topic, "body": "kept", "deliver_at_ms": due_ms})
    lost = driver.order("send", sender, message={"topic": topic, "body": "recalled", "deliver_at_ms": due_ms})
    assert lost["recall_handle"]
    assert driver.order("recall", sender, topic=topic, handle=lost["recall_handle"])["id"] == lost["id"]
    with pytest.raises(ClientError):
        driver.order("recall", sender, topic=topic, handle=lost["recall_handle"])
    (told,) = driver.wait_for(consumer, 1)
    assert told["id"] == kept["id"]
    assert time.time() * 1000 >= due_ms
    time.sleep(1.5)
    assert len(driver.events(consumer)) == 1
    driver.order("close", consumer)
    driver.order("close", sender)


def test_what_is_committed_arrives_and_what_is_rolled_back_does_not(driver: Driver, server: Server) -> None:
    topic, group = server.topic("TRANSACTION"), server.group(driver.name)
    sender = producer(driver, server, topic, check="unknown")
    for body, ending in (("kept", "commit"), ("dropped", "rollback"), ("also", "commit")):
        driver.order("send", sender, message={"topic": topic, "body": body}, transaction=ending)
    consumer = simple(driver, server, topic, group)
    assert sorted(message["body"] for message in drain(driver, consumer, 2)) == ["also", "kept"]
    assert driver.order("receive", consumer, max=16, invisible_s=10)["messages"] == []
    driver.order("close", consumer)
    driver.order("close", sender)


@pytest.mark.parametrize(("answer", "arrive"), [("commit", ["half"]), ("rollback", [])])
def test_a_producer_that_says_nothing_is_asked_and_its_word_holds(
    driver: Driver, server: Server, answer: str, arrive: list[str]
) -> None:
    topic, group = server.topic("TRANSACTION"), server.group(driver.name)
    sender = producer(driver, server, topic, check=answer)
    driver.order("send", sender, message={"topic": topic, "body": "half"}, transaction="leave")
    (asked,) = driver.wait_for(sender, 1, "check")
    assert asked["body"] == "half"
    consumer = simple(driver, server, topic, group)
    assert [message["body"] for message in drain(driver, consumer, 1)] == arrive
    driver.order("close", consumer)
    driver.order("close", sender)


def test_higher_priorities_are_received_first(driver: Driver, server: Server) -> None:
    require(driver, "priority")  # Clients that do not know the type of the topic open no producer for it.
    topic, group = server.topic("PRIORITY"), server.group(driver.name)
    sender = producer(driver, server, topic)
    for priority in (1, 3, 2):
        message = {"topic": topic, "body": f"p{priority}", "priority": priority}
        driver.order("send", sender, message=message)
    consumer = simple(driver, server, topic, group)
    found = drain(driver, consumer, 3)
    assert [message["body"] for message in found] == ["p3", "p2", "p1"]
    assert [message["priority"] for message in found] == [3, 2, 1]
    driver.order("close", consumer)
    driver.order("close", sender)


def test_a_lite_consumer_gets_the_lite_topics_that_it_asked_for(driver: Driver, server: Server) -> None:
    topic, group = server.topic("LITE"), server.group(driver.name)
    consumer = f"lite-{group}"
    driver.order(
        "open_lite_push", consumer, endpoint=server.endpoint, group=group, topic=topic, lite_topics=["one", "two"]
    )
    sender = producer(driver, server, topic)
    for name in ("one", "two", "three"):
        driver.order("send", sender, message={"topic": topic, "body": f"to {name}", "lite_topic": name})
    told = driver.wait_for(consumer, 2)
    time.sleep(1)
    assert sorted((message["body"], message["lite_topic"]) for message in driver.events(consumer)) == [
        ("to one", "one"), ("to two", "two"),
    ], told  # fmt: skip
    driver.order("close", consumer)
    driver.order("close", sender)


@pytest.mark.parametrize(
    ("kind", "message"),
    [("NORMAL", {"group": "g"}), ("FIFO", {}), ("NORMAL", {"deliver_at_ms": 4102444800000}), ("DELAY", {"group": "g"})],
)
def test_a_topic_refuses_messages_of_another_type(
    driver: Driver, server: Server, kind: str, message: dict[str, object]
) -> None:
    topic = server.topic(kind)
    sender = producer(driver, server, topic)
    with pytest.raises(ClientError):
        driver.order("send", sender, message={"topic": topic, "body": "x", **message})
    driver.order("close", sender)
