"""RocketMQ's admin tool (5.3.3) creates static topics here and moves their queues, beside our own command."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from interop.admin_tool import AdminTool
from interop.driver import Missing
from millstream.client.blocking import BlockingClient
from millstream.model.message import Message
from millstream.server.child import RoleProcess

TOPIC = "static"


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[tuple[AdminTool, BlockingClient]]:
    with ExitStack() as running:
        process = RoleProcess("nameserver", tmp_path / "ns", options=("--port", "0"), log=tmp_path / "ns.log")
        nameserver = running.enter_context(process).addresses["nameserver"]
        for name in "abc":
            options = ("--name", name, "--port", "0", "--nameservers", nameserver)
            broker = RoleProcess("broker", tmp_path / name, options=options, log=tmp_path / f"{name}.log")
            running.enter_context(broker)
        try:
            tool = AdminTool(nameserver, tmp_path / "home")
        except Missing as missing:
            pytest.skip(f"mqadmin cannot run here: {missing}")
        yield running.enter_context(tool), running.enter_context(BlockingClient(nameserver))


def send(client: BlockingClient, first: int, last: int) -> None:
    client.conversations.forget_route(TOPIC)
    for number in range(first, last):
        client.send(Message(TOPIC, str(number).encode()))


def read(client: BlockingClient) -> list[int]:
    found = []
    for held in client.queue_ranges(TOPIC):
        for batch in client.read(held.queue, 0, held.range.max_offset):
            found += [int(message.body) for message in batch.messages()]
    return sorted(found)


def test_queues_move_by_either_tool_and_nothing_is_lost(cluster: tuple[AdminTool, BlockingClient]) -> None:
    tool, client = cluster
    tool.done("updateStaticTopic", t=TOPIC, qn=4, b="a,b")
    send(client, 0, 20)
    tool.done("remappingStaticTopic", t=TOPIC, b="b,c")
    send(client, 20, 40)
    assert read(client) == list(range(40))
    client.remap_topic(TOPIC, ["a", "b", "c"])
    send(client, 40, 60)
    tool.done("remappingStaticTopic", t=TOPIC, b="a")
    send(client, 60, 80)
    tool.done("updateStaticTopic", t=TOPIC, qn=6, b="a,b,c")
    send(client, 80, 100)
    assert len(client.queues(TOPIC)) == 6
    assert read(client) == list(range(100))
    client.remap_topic(TOPIC, ["c"])
    assert read(client) == list(range(100))
    assert TOPIC in tool.done("topicRoute", t=TOPIC)
