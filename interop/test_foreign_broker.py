"""A broker of RocketMQ 5.3 at our nameserver: its topics have routes, and a broker of ours by its name is refused."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from interop.driver import Missing
from interop.reference.servers import ReferenceServers
from millstream.client.blocking import BlockingClient
from millstream.model.message import Message
from millstream.model.topic import TopicConfig
from millstream.server.child import RoleProcess

TOPIC = "orders"
NAME = "broker-a"
"""The name by which the reference broker registers."""


@pytest.fixture
def running() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def nameserver(running: ExitStack, tmp_path: Path) -> str:
    process = RoleProcess("nameserver", tmp_path / "ns", options=("--port", "0"), log=tmp_path / "ns.log")
    return running.enter_context(process).addresses["nameserver"]


@pytest.fixture
def foreign(running: ExitStack, nameserver: str, tmp_path: Path) -> ReferenceServers:
    try:
        return running.enter_context(ReferenceServers(tmp_path / "reference", nameserver=nameserver))
    except Missing as missing:
        pytest.skip(f"the reference broker cannot run here: {missing}")


def test_its_topics_are_found_and_what_is_sent_there_is_read(foreign: ReferenceServers, nameserver: str) -> None:
    with BlockingClient(nameserver) as client:
        client.create_topic(TopicConfig(TOPIC, read_queues=2, write_queues=2))
        sent = [client.send(Message(TOPIC, f"order {number}".encode())) for number in range(20)]
        assert {queue.broker_address for queue in client.queues(TOPIC)} == {foreign.broker}
        read = [message.body for queue in client.queues(TOPIC) for message in client.pull(queue, 0).messages()]
    assert len(sent) == 20
    assert sorted(read) == sorted(f"order {number}".encode() for number in range(20))


def test_a_broker_of_ours_by_the_same_name_is_refused_while_it_lives(
    foreign: ReferenceServers, nameserver: str, tmp_path: Path
) -> None:
    options = ("--name", NAME, "--port", "0", "--nameservers", nameserver)
    with (
        RoleProcess("broker", tmp_path / "twin", options=options, log=tmp_path / "twin.log"),
        BlockingClient(nameserver) as client,
    ):
        client.create_topic(TopicConfig(TOPIC, read_queues=1, write_queues=1))
        assert {queue.broker_address for queue in client.queues(TOPIC)} == {foreign.broker}
    assert "MS-2350" in (tmp_path / "twin.log").read_text()
