"""The official Python client's lite consumers, and its messages with a priority."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from composition import Running
from official import Collector, configuration, drain, message, producer, simple_consumer, started
from rocketmq import ConsumeResult
from rocketmq.v5.consumer.push.lite_push_consumer import LitePushConsumer
from rocketmq.v5.consumer.simple.lite_simple_consumer import LiteSimpleConsumer

pytestmark = pytest.mark.official

Names = Callable[[str], str]


def lite_message(topic: str, lite_topic: str, body: bytes) -> Any:
    built = message(topic, body)
    built.lite_topic = lite_topic
    return built


def lite_simple_consumer(port: int, group: str, topic: str) -> Any:
    return started(LiteSimpleConsumer(topic, configuration(port), group, await_duration=2))


def subscribed(consumer: Any, *lite_topics: str) -> None:
    """The client learns its quota from the settings, for which this kind of client does not wait.

    Client 5.1.2 sends the name of a new lite topic letter by letter; what it says of all of them, every 30 s or when it
    is told to, is right.
    """
    give_up_s = time.monotonic() + 10
    while True:
        try:
            for lite_topic in lite_topics:
                consumer.subscribe_lite(lite_topic)
            consumer.subscribe_lite_all()
            return
        except Exception:
            if time.monotonic() > give_up_s:
                raise
            time.sleep(0.05)


def test_a_lite_simple_consumer_gets_what_it_subscribed_to_in_order(anywhere: Running, new_name: Names) -> None:
    topic = new_name("sessions")
    anywhere.create_topic(topic, "LITE")
    with (
        producer(anywhere.port, topic) as sender,
        lite_simple_consumer(anywhere.port, new_name("group"), topic) as consumer,
    ):
        subscribed(consumer, "ann", "bob")
        for number in range(5):
            for lite_topic in ("ann", "bob", "eve"):
                sender.send(lite_message(topic, lite_topic, f"{lite_topic}{number}".encode()))
        found = drain(consumer, 10)
        for lite_topic in ("ann", "bob"):
            own = [one.body.decode() for one in found if one.lite_topic == lite_topic]
            assert own == [f"{lite_topic}{number}" for number in range(5)]
        consumer.unsubscribe_lite("bob")
        sender.send(lite_message(topic, "bob", b"unheard"))
        subscribed(consumer, "eve")
        assert [one.body for one in drain(consumer, 5)] == [f"eve{number}".encode() for number in range(5)]


def test_a_lite_push_consumer_gets_messages_that_fail_again_and_no_other_lite_topic_waits(
    program: Running, new_name: Names
) -> None:
    topic, group = new_name("sessions"), new_name("group")
    program.create_topic(topic, "LITE")
    failed = threading.Event()

    class Failing(Collector):
        def consume(self, message: Any) -> ConsumeResult:
            super().consume(message)
            if message.lite_topic == "ann" and not failed.is_set():
                failed.set()
                return ConsumeResult.FAILURE
            return ConsumeResult.SUCCESS

    listener = Failing()
    consumer = LitePushConsumer(configuration(program.port), group, topic, listener)
    with producer(program.port, topic) as sender, started(consumer):
        subscribed(consumer, "ann", "bob")
        for body in (b"1", b"2"):
            for lite_topic in ("ann", "bob"):
                sender.send(lite_message(topic, lite_topic, lite_topic.encode() + body))
        listener.wait_for(5)
    own = [body for body in listener.bodies if body.startswith(b"ann")]
    assert own == [b"ann1", b"ann1", b"ann2"]
    assert [body for body in listener.bodies if body.startswith(b"bob")] == [b"bob1", b"bob2"]


def test_a_quota_is_known_to_the_client(program: Running, new_name: Names) -> None:
    topic = new_name("sessions")
    program.create_topic(topic, "LITE")
    with lite_simple_consumer(program.port, new_name("group"), topic) as consumer:
        subscribed(consumer, "ann")
        with pytest.raises(Exception, match="exceeded max length 64"):
            consumer.subscribe_lite("x" * 65)


def test_messages_with_a_higher_priority_come_first(program: Running, new_name: Names) -> None:
    topic = new_name("urgent")
    program.create_topic(topic, "PRIORITY")
    with producer(program.port, topic) as sender:
        for priority in (0, 2, 1, 3):
            built = message(topic, b"%d" % priority)
            built.priority = priority
            sender.send(built)
    with simple_consumer(program.port, new_name("group"), topic) as consumer:
        found = drain(consumer, 4)
    assert [one.priority for one in found] == [3, 2, 1, 0]
