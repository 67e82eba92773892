"""Short ways to use the official client."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rocketmq import (
    ClientConfiguration,
    ConsumeResult,
    Credentials,
    FilterExpression,
    Message,
    MessageListener,
    Producer,
    PushConsumer,
    SimpleConsumer,
)
from rocketmq.grpc_protocol import FilterType

ALL = FilterExpression("*")


def sql(condition: str) -> FilterExpression:
    return FilterExpression(condition, FilterType.SQL)


def configuration(port: int) -> ClientConfiguration:
    return ClientConfiguration(f"127.0.0.1:{port}", Credentials())


def message(topic: str, body: bytes, *, tag: str = "", group: str = "", **properties: str) -> Message:
    built = Message()
    built.topic = topic
    built.body = body
    if tag:
        built.tag = tag
    if group:
        built.message_group = group
    for name, value in properties.items():
        built.add_property(name, value)
    return built


@contextmanager
def started(client: Any) -> Iterator[Any]:
    client.startup()
    try:
        yield client
    finally:
        client.shutdown()


def producer(port: int, *topics: str) -> Any:
    return started(Producer(configuration(port), topics))


def simple_consumer(
    port: int, group: str, topic: str, expression: str | FilterExpression = "*", *, await_s: int = 3
) -> Any:
    """`expression` as text is a filter by tag."""
    filters = {topic: FilterExpression(expression) if isinstance(expression, str) else expression}
    return started(SimpleConsumer(configuration(port), group, filters, await_duration=await_s))


class Collector(MessageListener):
    """Keeps what it was given, with the time; `judge` says whether a message is consumed."""

    def __init__(self, judge: Callable[[Any], bool] = lambda _: True) -> None:
        self.seen: list[tuple[bytes, int, float]] = []
        self._judge = judge
        self._more = threading.Condition()

    def consume(self, message: Any) -> ConsumeResult:
        with self._more:
            self.seen.append((message.body, message.delivery_attempt, time.monotonic()))
            self._more.notify_all()
        return ConsumeResult.SUCCESS if self._judge(message) else ConsumeResult.FAILURE

    @property
    def bodies(self) -> list[bytes]:
        return [body for body, _, _ in self.seen]

    def wait_for(self, amount: int, timeout_s: float = 20) -> None:
        with self._more:
            assert self._more.wait_for(lambda: len(self.seen) >= amount, timeout_s), self.seen


def push_consumer(
    port: int, group: str, topic: str, listener: MessageListener, expression: str | FilterExpression = "*"
) -> Any:
    """`expression` as text is a filter by tag."""
    filters = {topic: FilterExpression(expression) if isinstance(expression, str) else expression}
    return started(PushConsumer(configuration(port), group, listener, filters))


def drain(consumer: Any, amount: int, *, ack: bool = True, invisible_s: int = 30, timeout_s: float = 20) -> list[Any]:
    """At least `amount` messages, received (and acknowledged) one batch after the other."""
    found: list[Any] = []
    give_up_s = time.monotonic() + timeout_s
    while len(found) < amount and time.monotonic() < give_up_s:
        for one in consumer.receive(32, invisible_s):
            if ack:
                consumer.ack(one)
            found.append(one)
    return found
