"""The official client sends to and consumes from queues that move between brokers behind its proxy."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from official import Collector, message, producer, push_consumer

from broker_cluster import BrokerCluster, running_cluster
from millstream.client.client import Client
from millstream.client.static_topics import StaticTopicOperations
from millstream.model.group import GroupConfig
from millstream.model.topic import MessageType, TopicConfig
from millstream.proxy.grpc.server import GrpcServer
from millstream.proxy.processor import Processor
from millstream.proxy.remote.backend import RemoteBackend

pytestmark = pytest.mark.official

TOPIC = "moving"
QUEUES = 4
WAIT_S = 60


@dataclass
class Running:
    """Brokers and a proxy on a loop of another thread; `do` runs something there."""

    port: int
    client: Client
    loop: asyncio.AbstractEventLoop

    def do(self, work: Awaitable[Any]) -> Any:
        async def done() -> Any:
            return await work

        return asyncio.run_coroutine_threadsafe(done(), self.loop).result(WAIT_S)

    def remap(self, *brokers: str) -> None:
        self.do(self.client.run(StaticTopicOperations(self.client.conversations).remap(TOPIC, brokers)))


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    loop, started, ending = asyncio.new_event_loop(), threading.Event(), asyncio.Event()
    found: dict[str, Any] = {}

    async def run() -> None:
        async with running_cluster(tmp_path, ["a", "b", "c"]) as cluster, Client(cluster.nameserver) as client:
            await serve(cluster, client)

    async def serve(cluster: BrokerCluster, client: Client) -> None:
        backend = RemoteBackend(cluster.nameserver)
        await backend.start()
        processor = Processor(backend)
        await processor.start()
        server = GrpcServer(processor, "127.0.0.1", 0)
        try:
            found.update(port=await server.start(), client=client)
            started.set()
            await ending.wait()
        finally:
            await server.close(0.5)
            await processor.close()
            await backend.close()

    def work() -> None:
        try:
            loop.run_until_complete(run())
        finally:
            started.set()

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    assert started.wait(WAIT_S)
    yield Running(found["port"], found["client"], loop)
    loop.call_soon_threadsafe(ending.set)
    thread.join(WAIT_S)


@pytest.mark.parametrize("fifo", [True, False], ids=["in order", "in any order"])
def test_nothing_is_lost_while_queues_move_under_the_official_client(running: Running, fifo: bool) -> None:
    kind = MessageType.FIFO if fifo else MessageType.NORMAL
    static = StaticTopicOperations(running.client.conversations)
    running.do(running.client.run(static.create(TopicConfig(TOPIC, kind), QUEUES, ["a"])))
    running.do(running.client.create_group(GroupConfig("g", fifo=fifo)))
    listener, sent = Collector(), []
    with push_consumer(running.port, "g", TOPIC, listener), producer(running.port, TOPIC) as sender:
        for brokers in (["a"], ["a", "b"], ["c"], ["b", "a"]):
            moving = threading.Thread(target=running.remap, args=brokers)
            moving.start()
            for _ in range(15):
                for key in ("x", "y", "z"):
                    sent.append(b"%s %d" % (key.encode(), len(sent)))
                    sender.send(message(TOPIC, sent[-1], group=key if fifo else ""))
            moving.join(WAIT_S)
        listener.wait_for(len(sent), WAIT_S)
    assert sorted(listener.bodies) == sorted(sent)
    if fifo:
        for key in (b"x", b"y", b"z"):
            assert [body for body in listener.bodies if body[:1] == key] == [body for body in sent if body[:1] == key]
