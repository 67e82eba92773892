"""The official Python client's Producer and SimpleConsumer against our server."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import grpc
import pytest
from composition import Running
from official import drain, message, producer, simple_consumer, sql
from rocketmq.grpc_protocol.definition_pb2 import Message, Resource
from rocketmq.grpc_protocol.service_pb2 import SendMessageRequest
from rocketmq.grpc_protocol.service_pb2_grpc import MessagingServiceStub

pytestmark = pytest.mark.official

Names = Callable[[str], str]


def test_what_is_sent_is_received_once_with_all_that_was_said_and_acknowledged(
    anywhere: Running, new_name: Names
) -> None:
    topic = new_name("orders")
    anywhere.create_topic(topic, "NORMAL")
    bodies = {b"body %d" % number for number in range(100)}
    with producer(anywhere.port, topic) as sender:
        receipts = [sender.send(message(topic, body, tag="new", colour="blue")) for body in bodies]
    assert len({receipt.message_id for receipt in receipts}) == 100
    with simple_consumer(anywhere.port, new_name("group"), topic, await_s=1) as consumer:
        found = drain(consumer, 100)
        assert {one.body for one in found} == bodies
        assert {one.message_id for one in found} == {receipt.message_id for receipt in receipts}
        assert {(one.topic, one.tag, one.delivery_attempt) for one in found} == {(topic, "new", 1)}
        assert found[0].properties == {"colour": "blue"}
        assert consumer.receive(32, 10) == []


def test_a_message_that_is_not_acknowledged_comes_again_after_its_invisible_time(
    program: Running, new_name: Names
) -> None:
    topic = new_name("orders")
    program.create_topic(topic, "NORMAL")
    with producer(program.port, topic) as sender, simple_consumer(program.port, new_name("group"), topic) as consumer:
        sender.send(message(topic, b"again"))
        (first,) = drain(consumer, 1, ack=False, invisible_s=10)
        received_s = time.monotonic()
        (second,) = drain(consumer, 1)
        assert time.monotonic() - received_s > 9
        assert (second.body, second.delivery_attempt) == (b"again", 2)
        assert first.message_id == second.message_id


def test_a_changed_invisible_time_counts_from_then(program: Running, new_name: Names) -> None:
    topic = new_name("orders")
    program.create_topic(topic, "NORMAL")
    with producer(program.port, topic) as sender, simple_consumer(program.port, new_name("group"), topic) as consumer:
        sender.send(message(topic, b"sooner"))
        (first,) = drain(consumer, 1, ack=False, invisible_s=60)
        old_handle = first.receipt_handle
        consumer.change_invisible_duration(first, 1)
        assert first.receipt_handle != old_handle
        changed_s = time.monotonic()
        (second,) = drain(consumer, 1)
        assert 0.8 < time.monotonic() - changed_s < 5
        assert second.delivery_attempt == 2


def test_every_group_gets_every_message(program: Running, new_name: Names) -> None:
    topic, groups = new_name("orders"), [new_name("group"), new_name("group")]
    program.create_topic(topic, "NORMAL")
    bodies = [b"%d" % number for number in range(20)]
    with producer(program.port, topic) as sender:
        for body in bodies:
            sender.send(message(topic, body))
    for group in groups:
        with simple_consumer(program.port, group, topic) as consumer:
            assert sorted(one.body for one in drain(consumer, 20)) == sorted(bodies)


@pytest.mark.parametrize(
    ("expression", "wanted"),
    [("red", {b"red"}), ("red || blue", {b"red", b"blue"}), ("*", {b"red", b"blue", b"plain"})],
)
def test_a_tag_filter_passes_only_its_tags(
    program: Running, new_name: Names, expression: str, wanted: set[bytes]
) -> None:
    topic = new_name("orders")
    program.create_topic(topic, "NORMAL")
    with producer(program.port, topic) as sender:
        for tag in ("red", "", "blue"):
            sender.send(message(topic, tag.encode() or b"plain", tag=tag))
    with simple_consumer(program.port, new_name("group"), topic, expression, await_s=1) as consumer:
        assert {one.body for one in drain(consumer, len(wanted))} == wanted
        assert consumer.receive(32, 10) == []


def test_a_condition_passes_only_the_messages_for_which_it_is_true(program: Running, new_name: Names) -> None:
    topic = new_name("orders")
    program.create_topic(topic, "NORMAL")
    with producer(program.port, topic) as sender:
        for price, tag in (("5", "red"), ("15", "red"), ("25", "blue"), ("dear", "red")):
            sender.send(message(topic, price.encode(), tag=tag, price=price))
    wanted = sql("price >= 15 AND TAGS = 'red' OR price = 'dear'")
    with simple_consumer(program.port, new_name("group"), topic, wanted, await_s=1) as consumer:
        assert {one.body for one in drain(consumer, 2)} == {b"15", b"dear"}
        assert consumer.receive(32, 10) == []


def test_a_waiting_consumer_gets_a_new_message_at_once(program: Running, new_name: Names) -> None:
    topic, found = new_name("orders"), []
    program.create_topic(topic, "NORMAL")
    group = new_name("group")
    with producer(program.port, topic) as sender, simple_consumer(program.port, group, topic, await_s=15) as consumer:
        sender.send(message(topic, b"first"))
        drain(consumer, 1)

        def wait() -> None:
            found.append((drain(consumer, 1), time.monotonic()))

        waiting = threading.Thread(target=wait)
        waiting.start()
        time.sleep(1)
        sent_s = time.monotonic()
        sender.send(message(topic, b"second"))
        waiting.join(10)
    ((received, received_s),) = found
    assert [one.body for one in received] == [b"second"]
    assert received_s - sent_s < 1


def test_an_empty_topic_answers_after_the_time_that_the_consumer_waits(program: Running, new_name: Names) -> None:
    topic = new_name("orders")
    program.create_topic(topic, "NORMAL")
    with simple_consumer(program.port, new_name("group"), topic, await_s=2) as consumer:
        began_s = time.monotonic()
        assert consumer.receive(32, 10) == []
        assert 1.8 < time.monotonic() - began_s < 4


def test_acknowledging_with_a_replaced_handle_is_told(program: Running, new_name: Names) -> None:
    topic = new_name("orders")
    program.create_topic(topic, "NORMAL")
    with producer(program.port, topic) as sender, simple_consumer(program.port, new_name("group"), topic) as consumer:
        sender.send(message(topic, b"once"))
        (first,) = drain(consumer, 1, ack=False)
        old_handle = first.receipt_handle
        consumer.change_invisible_duration(first, 30)
        first.receipt_handle = old_handle
        with pytest.raises(Exception, match="MS-3201"):
            consumer.ack(first)


def test_a_body_of_four_mebibytes_makes_the_round_trip(program: Running, new_name: Names) -> None:
    topic, body = new_name("orders"), bytes(range(256)) * 16384
    program.create_topic(topic, "NORMAL")
    with producer(program.port, topic) as sender, simple_consumer(program.port, new_name("group"), topic) as consumer:
        sender.send(message(topic, body))
        (received,) = drain(consumer, 1)
        assert received.body == body


def rejection(send: Callable[[], Any]) -> str:
    with pytest.raises(Exception) as told:  # noqa: PT011 - the client's own classes; the words are what counts
        send()
    return str(told.value)


def test_the_client_tells_clearly_what_is_refused(
    program: Running, new_name: Names, caplog: pytest.LogCaptureFixture
) -> None:
    topic, missing = new_name("orders"), new_name("missing")
    program.create_topic(topic, "NORMAL")
    with producer(program.port, topic) as sender:
        assert "max size=4194304" in rejection(lambda: sender.send(message(topic, bytes(4 * 1024 * 1024 + 1))))
        assert "body" in rejection(lambda: sender.send(message(topic, b""))).lower()
        assert "FIFO" in rejection(lambda: sender.send(message(topic, b"x", group="customer-7")))
        assert missing in rejection(lambda: sender.send(message(missing, b"x")))
    assert f"CODE: 17  DESC: No topic route info in name server for the topic: {missing}" in caplog.text


@pytest.mark.parametrize(
    ("body", "group", "code"),
    [(b"", "", 41302), (bytes(4 * 1024 * 1024 + 1), "", 41301), (b"x", "customer-7", 40014), (b"x", "", 20000)],
    ids=["empty", "too large", "wrong type", "fine"],
)
def test_what_the_client_does_not_check_the_server_refuses(
    program: Running, new_name: Names, body: bytes, group: str, code: int
) -> None:
    topic = new_name("orders")
    program.create_topic(topic, "NORMAL")
    sent = Message(topic=Resource(name=topic), body=body)
    sent.system_properties.message_id = "01ABC"
    if group:
        sent.system_properties.message_group = group
    with grpc.insecure_channel(f"127.0.0.1:{program.port}") as channel:
        send = MessagingServiceStub(channel).SendMessage
        answer = send(SendMessageRequest(messages=[sent]), metadata=(("x-mq-client-id", "c"),), timeout=10)
    assert answer.status.code == code
