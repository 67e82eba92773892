"""An HTTP port over a broker in this process, and a client of it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import httpx
from memory_backend import MemoryBackend

from millstream.broker.broker import Broker, BrokerOptions
from millstream.model.clock import SystemClock
from millstream.model.topic import MessageType, TopicConfig
from millstream.proxy.backend import BrokerBackend
from millstream.proxy.http.server import HttpServer
from millstream.proxy.local import LocalBackend
from millstream.proxy.processor import Processor
from millstream.security.guard import Guard
from millstream.store.message_store import StoreOptions

__all__ = ["EVENT", "HttpGround", "http_ground", "memory_ground"]

EVENT = {"ce-specversion": "1.0", "ce-id": "A1", "ce-source": "/shop", "ce-type": "order.created"}
"""The headers of an event in the binary mode."""

_ANSWER_LIMIT_S = 60.0


@dataclass
class HttpGround:
    """What runs, and the client. Groups and topics stand in the paths of requests."""

    processor: Processor
    server: HttpServer
    port: int
    client: httpx.AsyncClient

    async def post(self, body: bytes | str, topic: str = "orders", **query: str) -> httpx.Response:
        """Post a plain body."""
        return await self.client.post(f"/v1/topics/{topic}/messages", content=body, params=query)

    async def receive(self, topic: str = "orders", group: str = "g", **query: str) -> list[dict[str, Any]]:
        """The messages of a receive, which waits for them."""
        query = {"wait": "20s", **query}
        answer = await self.client.post(f"/v1/groups/{group}/topics/{topic}/receive", params=query)
        assert answer.status_code == 200, answer.text
        messages: list[dict[str, Any]] = answer.json()["messages"]
        return messages

    async def settle(self, what: str, *handles: str, topic: str = "orders", **query: str) -> httpx.Response:
        """Ack, nack, extend or dead-letter deliveries of the group g."""
        path = f"/v1/groups/g/topics/{topic}/{what}"
        return await self.client.post(path, json={"handles": list(handles)}, params=query)


@asynccontextmanager
async def http_ground(
    directory: Path, *, guard: Guard | None = None, webhook_networks: Sequence[str] = ()
) -> AsyncIterator[HttpGround]:
    """A broker with the topics orders, ordered (FIFO) and later (DELAY) behind an HTTP port, until the block ends."""
    options = BrokerOptions(store=StoreOptions(segment_bytes=1 << 24, consume_queue_entries=10_000))
    broker = Broker(directory, options=options)
    await broker.start()
    for topic in (
        TopicConfig("orders", read_queues=2, write_queues=2),
        TopicConfig("ordered", MessageType.FIFO),
        TopicConfig("later", MessageType.DELAY),
    ):
        if broker.topics.find(topic.name) is None:
            broker.topics.create(topic)
    try:
        async with _http_port(LocalBackend(broker), guard, webhook_networks) as ground:
            yield ground
    finally:
        await broker.close()


@asynccontextmanager
async def memory_ground(*, guard: Guard | None = None, http_origins: Sequence[str] = ()) -> AsyncIterator[HttpGround]:
    """The same over a backend in memory, which starts at once."""
    topics = (TopicConfig("orders", read_queues=2, write_queues=2), TopicConfig("later", MessageType.DELAY))
    backend = MemoryBackend(SystemClock(), {topic.name: topic for topic in topics})
    async with _http_port(cast("BrokerBackend", backend), guard, http_origins=http_origins) as ground:
        yield ground


@asynccontextmanager
async def _http_port(
    backend: BrokerBackend,
    guard: Guard | None,
    webhook_networks: Sequence[str] = (),
    http_origins: Sequence[str] = (),
) -> AsyncIterator[HttpGround]:
    processor = Processor(backend)
    await processor.start()
    networks = {"webhook_networks": webhook_networks, "http_origins": http_origins}
    server = HttpServer(processor, backend, "127.0.0.1", 0, guard=guard, **networks)
    port = await server.start()
    try:
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=_ANSWER_LIMIT_S) as client:
            yield HttpGround(processor, server, port, client)
    finally:
        await server.close()
        await processor.close()
