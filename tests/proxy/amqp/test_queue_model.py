"""A queue against a model of it: a sorted list of what is ready, and what is out with whom."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from amqp_ports import AmqpSite, running_amqp

pika = pytest.importorskip("pika")

_names = count()


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AmqpSite]:
    with running_amqp(tmp_path_factory.mktemp("amqp")) as running:
        yield running


@pytest.fixture(scope="module")
def connection(site: AmqpSite) -> Iterator[Any]:
    connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", site.port))
    yield connection
    connection.close()


class ModelQueue:
    """Messages by their numbers, which are their places."""

    def __init__(self) -> None:
        self.ready: list[int] = []
        self.seen: set[int] = set()
        self.out: dict[int, int] = {}
        self._numbers = count()

    def publish(self) -> int:
        number = next(self._numbers)
        self.ready.append(number)
        return number

    def get(self) -> tuple[int, bool] | None:
        """The next message and whether somebody has seen it before."""
        if not self.ready:
            return None
        number = self.ready.pop(0)
        was_seen = number in self.seen
        self.seen.add(number)
        return number, was_seen

    def put_back(self, tags: list[int]) -> None:
        self.ready = sorted([*self.ready, *[self.out.pop(tag) for tag in tags]])


OPERATIONS = st.lists(
    st.tuples(
        st.sampled_from(["publish", "publish", "get", "get", "ack", "nack", "drop", "reopen", "purge"]),
        st.integers(0, 5),
        st.booleans(),
    ),
    max_size=25,
)


class Players:
    """A channel and the model, which do the same."""

    def __init__(self, connection: Any) -> None:
        self.connection = connection
        self.name = f"model-{next(_names)}"
        self.model = ModelQueue()
        self.channel = self.open_channel()
        self.channel.queue_declare(self.name)

    def open_channel(self) -> Any:
        channel = self.connection.channel()
        channel.confirm_delivery()
        return channel

    def play(self, operation: str, pick: int, multiple: bool) -> None:
        tags = list(self.model.out)
        if operation in ("ack", "nack", "drop"):
            if tags:
                # One of those that are out, and with `multiple` those before it as well.
                place = pick % len(tags)
                self.settle(operation, tags[place], tags[: place + 1] if multiple else [tags[place]], multiple)
        elif operation == "publish":
            self.channel.basic_publish("", self.name, b"%d" % self.model.publish())
        elif operation == "get":
            self.get()
        elif operation == "reopen":
            self.channel.close()
            self.model.put_back(tags)
            self.channel = self.open_channel()
        else:
            assert self.channel.queue_purge(self.name).method.message_count == len(self.model.ready)
            self.model.ready.clear()

    def get(self) -> None:
        method, _, body = self.channel.basic_get(self.name)
        expected = self.model.get()
        assert (None if method is None else (int(body), method.redelivered)) == expected
        if method is not None and expected is not None:
            self.model.out[method.delivery_tag] = expected[0]
            assert method.message_count == len(self.model.ready)

    def settle(self, operation: str, tag: int, taken: list[int], multiple: bool) -> None:
        if operation == "ack":
            self.channel.basic_ack(tag, multiple=multiple)
        else:
            self.channel.basic_nack(tag, multiple=multiple, requeue=operation == "nack")
        if operation == "nack":
            self.model.put_back(taken)
        else:
            for one in taken:
                del self.model.out[one]


@example([("publish", 0, False), ("get", 0, False), ("nack", 0, False), ("get", 0, False), ("reopen", 0, False)])
@given(OPERATIONS)
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_queue_does_as_its_model(connection: Any, operations: list[tuple[str, int, bool]]) -> None:
    players = Players(connection)
    for operation in operations:
        players.play(*operation)
    players.play("reopen", 0, False)
    for _ in range(len(players.model.ready) + 1):
        players.get()
    players.channel.queue_delete(players.name)
    players.channel.close()
