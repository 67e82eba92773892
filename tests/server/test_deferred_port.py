"""A port whose adapter is loaded when it is needed."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Sequence
from typing import cast

import pytest

from millstream.model.errors import NameRefused, StartRefused
from millstream.model.state_topics import AMQP_TOPIC
from millstream.proxy.backend import BrokerBackend
from millstream.server import deferred_port
from millstream.server.deferred_port import DeferredPort
from millstream.telemetry.metrics import MetricsPage

WAIT_S = 30.0


class Topics:
    """A backend of which the topics alone are known."""

    def __init__(self) -> None:
        self.names: set[str] = set()
        self.looked = asyncio.Event()

    async def route(self, topic: str) -> None:
        self.looked.set()
        if topic not in self.names:
            raise NameRefused("TOPIC_NOT_FOUND", f"There is no topic {topic}.")


class Adapter:
    """Accepts one connection on the sockets that it is given, and says what it was sent."""

    def __init__(self, fails: bool = False) -> None:
        self.fails = fails
        self.listening: Sequence[socket.socket] = ()
        self.started = asyncio.Event()
        self.is_closed = False

    async def start(self, listening: Sequence[socket.socket] = ()) -> int:
        self.started.set()
        if self.fails:
            raise RuntimeError("no")
        self.listening = listening
        return int(listening[0].getsockname()[1])

    async def close(self) -> None:
        self.is_closed = True
        for one in self.listening:
            one.close()

    def add_metrics(self, page: MetricsPage) -> None:
        page.add("millstream_port_connections", 5, "amqp", node_type="proxy")


class Case:
    def __init__(self, fails: bool = False) -> None:
        self.topics = Topics()
        self.adapter = Adapter(fails)
        self.port = DeferredPort("amqp", "127.0.0.1", 0, cast("BrokerBackend", self.topics), lambda: self.adapter)


@pytest.fixture
async def case() -> AsyncIterator[Case]:
    made = Case()
    yield made
    await made.port.close()


def connections(port: DeferredPort) -> str:
    page = MetricsPage(cluster="c", node_id="n")
    port.add_metrics(page)
    return next(line for line in page.text().splitlines() if line.startswith("millstream_port_connections{"))[-1]


async def test_the_first_client_has_the_adapter_made_and_what_it_said_is_there(case: Case) -> None:
    number = await case.port.start()
    await case.topics.looked.wait()
    assert (case.adapter.started.is_set(), connections(case.port)) == (False, "0")
    with socket.create_connection(("127.0.0.1", number)) as client:
        client.sendall(b"AMQP")
        async with asyncio.timeout(WAIT_S):
            await case.adapter.started.wait()
        taken, _ = case.adapter.listening[0].accept()
        with taken:
            assert taken.recv(4) == b"AMQP"
    assert (case.adapter.started.is_set(), connections(case.port)) == (True, "5")
    await case.port.close()
    assert case.adapter.is_closed


async def test_state_of_the_protocol_has_the_adapter_made_without_a_client(case: Case) -> None:
    case.topics.names.add(AMQP_TOPIC)
    await case.port.start()
    async with asyncio.timeout(WAIT_S):
        await case.adapter.started.wait()


async def test_state_that_comes_later_is_noticed(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deferred_port, "STATE_INTERVAL_S", 0.01)
    await case.port.start()
    await case.topics.looked.wait()
    assert not case.adapter.started.is_set()
    case.topics.names.add(AMQP_TOPIC)
    async with asyncio.timeout(WAIT_S):
        await case.adapter.started.wait()


async def test_a_port_that_nobody_needed_is_free_again_once_it_is_closed(case: Case) -> None:
    number = await case.port.start()
    await case.port.close()
    assert not case.adapter.started.is_set()
    with socket.create_server(("127.0.0.1", number)):
        pass


async def test_a_port_that_somebody_has_refuses_the_start() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        number = taken.getsockname()[1]
        port = DeferredPort("amqp", "127.0.0.1", number, cast("BrokerBackend", Topics()), Adapter)
        with pytest.raises(StartRefused) as refusal:
            await port.start()
    assert refusal.value.name == "PORT_IN_USE"
    await port.close()


async def test_an_adapter_that_does_not_start_closes_the_port_and_is_told_of(caplog: pytest.LogCaptureFixture) -> None:
    case = Case(fails=True)
    number = await case.port.start()
    with socket.create_connection(("127.0.0.1", number)) as client:
        client.settimeout(WAIT_S)
        async with asyncio.timeout(WAIT_S):
            await case.adapter.started.wait()
        assert await asyncio.to_thread(_is_ended, client)
    assert "the port for amqp cannot be served" in caplog.text
    await case.port.close()


def _is_ended(client: socket.socket) -> bool:
    try:
        return client.recv(1) == b""
    except ConnectionResetError:
        return True
