"""The official Python client's PushConsumer against our server."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest
from composition import Running
from official import Collector, drain, message, producer, push_consumer, simple_consumer, sql

pytestmark = pytest.mark.official

Names = Callable[[str], str]


def test_every_message_is_consumed_once_and_none_is_left(anywhere: Running, new_name: Names) -> None:
    topic, group = new_name("orders"), new_name("group")
    anywhere.create_topic(topic, "NORMAL")
    bodies = [b"%d" % number for number in range(60)]
    listener = Collector()
    with push_consumer(anywhere.port, group, topic, listener), producer(anywhere.port, topic) as sender:
        for body in bodies:
            sender.send(message(topic, body))
        listener.wait_for(60)
        time.sleep(0.5)
    assert sorted(listener.bodies) == sorted(bodies)
    with simple_consumer(anywhere.port, group, topic, await_s=1) as consumer:
        assert consumer.receive(32, 10) == []


def test_a_message_that_failed_comes_again_after_the_groups_first_step(program: Running, new_name: Names) -> None:
    topic, group = new_name("orders"), new_name("group")
    program.create_topic(topic, "NORMAL")
    listener = Collector(lambda one: one.delivery_attempt > 1)
    with push_consumer(program.port, group, topic, listener), producer(program.port, topic) as sender:
        sender.send(message(topic, b"try"))
        listener.wait_for(2)
        time.sleep(1.5)
    assert [(body, attempt) for body, attempt, _ in listener.seen] == [(b"try", 1), (b"try", 2)]
    (_, _, first_s), (_, _, second_s) = listener.seen
    assert 0.9 < second_s - first_s < 5


def test_two_consumers_of_a_group_share_its_messages(program: Running, new_name: Names) -> None:
    topic, group = new_name("orders"), new_name("group")
    program.create_topic(topic, "NORMAL")
    one, other = Collector(), Collector()
    with push_consumer(program.port, group, topic, one), push_consumer(program.port, group, topic, other):
        with producer(program.port, topic) as sender:
            for number in range(100):
                sender.send(message(topic, b"%d" % number))
        give_up_s = time.monotonic() + 20
        while len(one.seen) + len(other.seen) < 100 and time.monotonic() < give_up_s:
            time.sleep(0.05)
    assert sorted(one.bodies + other.bodies) == sorted(b"%d" % number for number in range(100))


def test_a_fifo_group_gets_the_messages_of_a_message_group_in_order(program: Running, new_name: Names) -> None:
    topic, group = new_name("ordered"), new_name("fifo")
    program.create_topic(topic, "FIFO")
    program.create_fifo_group(group, 17)
    listener = Collector()
    with push_consumer(program.port, group, topic, listener), producer(program.port, topic) as sender:
        for number in range(20):
            for customer in ("a", "b"):
                sender.send(message(topic, f"{customer}{number:02}".encode(), group=customer))
        listener.wait_for(40)
    for customer in (b"a", b"b"):
        own = [body for body in listener.bodies if body.startswith(customer)]
        assert own == sorted(own)
        assert len(own) == 20


def test_an_ordered_message_that_fails_every_time_is_set_aside_and_the_next_one_follows(
    program: Running, new_name: Names
) -> None:
    topic, group = new_name("ordered"), new_name("fifo")
    program.create_topic(topic, "FIFO")
    program.create_fifo_group(group, 2)
    listener = Collector(lambda one: one.body != b"bad")
    with push_consumer(program.port, group, topic, listener), producer(program.port, topic) as sender:
        sender.send(message(topic, b"bad", group="customer"))
        sender.send(message(topic, b"good", group="customer"))
        listener.wait_for(3)
        with simple_consumer(program.port, new_name("group"), f"%DLQ%{group}") as consumer:
            (dead,) = drain(consumer, 1)
    assert listener.bodies == [b"bad", b"bad", b"good"]
    assert dead.body == b"bad"


def test_what_a_consumer_holds_when_it_ends_goes_to_another_soon(program: Running, new_name: Names) -> None:
    topic, group = new_name("orders"), new_name("group")
    program.create_topic(topic, "NORMAL")
    stuck = threading.Event()
    holder = Collector(lambda _: not stuck.wait(10))
    with producer(program.port, topic) as sender:
        with push_consumer(program.port, group, topic, holder):
            sender.send(message(topic, b"held"))
            holder.wait_for(1)
            ending = threading.Timer(0.2, stuck.set)
            ending.start()
        ended_s = time.monotonic()
        with simple_consumer(program.port, group, topic) as consumer:
            (received,) = drain(consumer, 1)
    assert received.body == b"held"
    assert time.monotonic() - ended_s < 10


def test_a_push_consumer_gets_only_the_messages_for_which_its_condition_is_true(
    program: Running, new_name: Names
) -> None:
    topic, collector = new_name("orders"), Collector()
    program.create_topic(topic, "NORMAL")
    with push_consumer(program.port, new_name("group"), topic, collector, sql("price > 10")):
        with producer(program.port, topic) as sender:
            for price in ("5", "15", "dear", "25"):
                sender.send(message(topic, price.encode(), price=price))
        collector.wait_for(2)
    assert sorted(collector.bodies) == [b"15", b"25"]
