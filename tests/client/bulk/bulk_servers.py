"""A broker with a topic that takes bulk messages, and one that does not."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from millstream.client.client import Client
from millstream.model.topic import TopicConfig
from servers import Servers, running_servers

__all__ = ["BULK", "PLAIN", "bulk_client", "bulk_topic"]

BULK, PLAIN = "bulk", "plain"


def bulk_topic(name: str = BULK, queues: int = 1) -> TopicConfig:
    """A topic whose queues take bulk messages."""
    return TopicConfig(name, read_queues=queues, write_queues=queues, attributes={"queue.type": "BatchCQ"})


@asynccontextmanager
async def bulk_client(directory: Path, *, queues: int = 1) -> AsyncIterator[tuple[Client, Servers]]:
    """A client of a new broker with both topics."""
    async with running_servers(directory) as servers, Client(servers.nameserver) as client:
        await client.create_topic(bulk_topic(queues=queues))
        await client.create_topic(TopicConfig(PLAIN, read_queues=queues, write_queues=queues))
        yield client, servers
