"""Normal messages: sent, received, acknowledged, received again, set aside, filtered; by every official client."""

from __future__ import annotations

import pytest

from interop.driver import LACKS, ClientError, Driver, Missing
from interop.orders import drain, producer, push, simple, wait_for_topic
from interop.server import Server

MESSAGE = {"body": "hello", "tag": "blue", "keys": ["k1", "k2"], "properties": {"price": "15", "farbe": "grün"}}


def test_a_message_arrives_whole_once_and_is_gone_when_acknowledged(driver: Driver, server: Server) -> None:
    topic, group = server.topic(), server.group(driver.name)
    sender = producer(driver, server, topic)
    sent = driver.order("send", sender, message={"topic": topic, **MESSAGE})
    consumer = simple(driver, server, topic, group)
    (message,) = drain(driver, consumer, 1)
    assert message["id"] == sent["id"]
    assert {name: message[name] for name in ("body", "tag", "properties")} == {
        name: MESSAGE[name] for name in ("body", "tag", "properties")
    }
    assert set(message["keys"]) == {"k1", "k2"}
    assert message["attempt"] == 1
    assert driver.order("receive", consumer, max=16, invisible_s=10)["messages"] == []
    driver.order("close", consumer)
    driver.order("close", sender)


def test_a_changed_invisible_time_brings_the_message_again_with_one_attempt_more(
    driver: Driver, server: Server
) -> None:
    topic, group = server.topic(), server.group(driver.name)
    sender = producer(driver, server, topic)
    driver.order("send", sender, message={"topic": topic, "body": "again"})
    consumer = simple(driver, server, topic, group)
    (first,) = drain(driver, consumer, 1, ack=False)
    driver.order("change_invisible", consumer, id_of_message=first["id"], invisible_s=1)
    (second,) = drain(driver, consumer, 1)
    assert (first["attempt"], second["attempt"]) == (1, 2)
    assert first["id"] == second["id"]
    driver.order("close", consumer)
    driver.order("close", sender)


def test_push_consumers_get_everything_and_failures_come_again(driver: Driver, server: Server) -> None:
    topic, group = server.topic(), server.group(driver.name)
    consumer = push(driver, server, topic, group, fail={"bad": 1})
    sender = producer(driver, server, topic)
    for body in ("a", "b", "bad", "c"):
        driver.order("send", sender, message={"topic": topic, "body": body})
    told = driver.wait_for(consumer, 5)
    assert sorted((message["body"], message["attempt"]) for message in told) == [
        ("a", 1), ("b", 1), ("bad", 1), ("bad", 2), ("c", 1),
    ]  # fmt: skip
    driver.order("close", consumer)
    driver.order("close", sender)


def test_what_fails_every_time_goes_to_the_dead_letter_topic(driver: Driver, server: Server) -> None:
    topic, group = server.topic(), server.group(driver.name, max_attempts=2)
    consumer = push(driver, server, topic, group, fail={"bad": 99})
    sender = producer(driver, server, topic)
    driver.order("send", sender, message={"topic": topic, "body": "bad"})
    driver.wait_for(consumer, 2)
    wait_for_topic(server, f"%DLQ%{group}")
    letters = simple(driver, server, f"%DLQ%{group}", server.group(driver.name))
    (letter,) = drain(driver, letters, 1)
    assert letter["body"] == "bad"
    assert len(driver.events(consumer)) == 2
    for client in (consumer, letters, sender):
        driver.order("close", client)


@pytest.mark.parametrize("filters", [{"filter": "blue || red"}, {"sql": "price > 10 AND TAGS IS NOT NULL"}])
def test_a_filter_lets_through_what_it_asks_for(driver: Driver, server: Server, filters: dict[str, str]) -> None:
    topic, group = server.topic(), server.group(driver.name)
    sender = producer(driver, server, topic)
    for body, tag, price in (("yes", "blue", "11"), ("no", "green", "9"), ("ja", "red", "12")):
        message = {"topic": topic, "body": body, "tag": tag, "properties": {"price": price}}
        driver.order("send", sender, message=message)
    consumer = simple(driver, server, topic, group, **filters)
    assert sorted(message["body"] for message in drain(driver, consumer, 2)) == ["ja", "yes"]
    driver.order("close", consumer)
    driver.order("close", sender)


def test_a_condition_that_cannot_be_read_is_refused_with_its_code(driver: Driver, server: Server) -> None:
    if (end := "end of a start that is refused") in LACKS.get(driver.name, ()):
        raise Missing(f"it has no {end}")
    topic, group = server.topic(), server.group(driver.name)

    def receive() -> None:
        consumer = simple(driver, server, topic, group, sql="price >")
        driver.order("receive", consumer, max=1, invisible_s=10)

    with pytest.raises(ClientError) as refused:
        receive()
    # The Java client wraps the reason of a failed start and loses the code.
    assert refused.value.code in (40010, None)
