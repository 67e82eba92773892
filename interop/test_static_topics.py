"""RocketMQ's admin tool and Java client (5.3) with static topics, whose queues move between our brokers."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from interop.admin_tool import AdminTool
from interop.driver import Driver, Missing
from interop.orders import bodies_of, send_all
from millstream.client.blocking import BlockingClient
from millstream.model.group import GroupConfig
from millstream.model.message import Message
from millstream.model.topic import TopicConfig
from millstream.server.child import RoleProcess

TOPIC = "static"
FOLLOW_S = 90.0
"""How long the Java client takes at most to follow a queue: it asks for routes every 30 s."""


@pytest.fixture
def nameserver(tmp_path: Path) -> Iterator[str]:
    """Its address; it has the brokers a, b and c."""
    with ExitStack() as running:
        process = RoleProcess("nameserver", tmp_path / "ns", options=("--port", "0"), log=tmp_path / "ns.log")
        address = running.enter_context(process).addresses["nameserver"]
        for name in "abc":
            options = ("--name", name, "--port", "0", "--nameservers", address)
            broker = RoleProcess("broker", tmp_path / name, options=options, log=tmp_path / f"{name}.log")
            running.enter_context(broker)
        yield address


@pytest.fixture(params=["nameserver", "proxy"])
def entrance(request: pytest.FixtureRequest, nameserver: str, tmp_path: Path) -> Iterator[str]:
    """Where the Java client asks for routes."""
    if request.param == "nameserver":
        yield nameserver
        return
    options = ("--grpc-port", "0", "--remoting-port", "0", "--nameservers", nameserver)
    with RoleProcess("proxy", tmp_path / "proxy", options=options, log=tmp_path / "proxy.log") as proxy:
        yield proxy.addresses["remoting"]


@pytest.fixture
def client(nameserver: str) -> Iterator[BlockingClient]:
    with BlockingClient(nameserver) as client:
        yield client


@pytest.fixture
def tool(nameserver: str, tmp_path: Path) -> Iterator[AdminTool]:
    try:
        started = AdminTool(nameserver, tmp_path / "home")
    except Missing as missing:
        pytest.skip(f"mqadmin cannot run here: {missing}")
    with started:
        yield started


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


def test_queues_move_by_either_tool_and_nothing_is_lost(tool: AdminTool, client: BlockingClient) -> None:
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


def test_the_java_client_follows_queues_that_move(
    entrance: str, client: BlockingClient, drivers: Callable[[str], Driver]
) -> None:
    java = drivers("java-5.3")
    client.create_static_topic(TopicConfig(TOPIC), 4, ["a"])
    client.create_group(GroupConfig("g"))
    java.order("open_producer", "sender", endpoint=entrance)
    java.order("open_push", "reader", endpoint=entrance, group="g", topic=TOPIC)
    sent = [str(number) for number in range(40)]
    send_all(java, "sender", TOPIC, sent[:20])
    java.wait_for("reader", 20, timeout_s=FOLLOW_S)
    client.remap_topic(TOPIC, ["a", "b"])
    client.remap_topic(TOPIC, ["b", "c"])
    send(client, 20, 30)
    give_up_s = time.monotonic() + FOLLOW_S
    while not set(bodies_of(java, "reader")) >= set(sent[:30]) and time.monotonic() < give_up_s:
        time.sleep(0.5)
    send_all(java, "sender", TOPIC, sent[30:])
    while not set(bodies_of(java, "reader")) >= set(sent) and time.monotonic() < give_up_s:
        time.sleep(0.5)
    assert sorted(set(bodies_of(java, "reader"))) == sorted(sent)
    for name in ("reader", "sender"):
        java.order("close", name)
