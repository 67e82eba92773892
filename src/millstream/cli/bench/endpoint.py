"""What a load goes through: sends and receives of one topic, over remoting by our own client."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final, Protocol

from millstream.client.client import Client
from millstream.client.producer import Producer
from millstream.client.puller import Puller
from millstream.client.values import QueueAddress
from millstream.model.message import Message
from millstream.model.operations import PullStatus

__all__ = ["POLL_MS", "Endpoint", "RemotingEndpoint"]

POLL_MS: Final = 1000
"""How long a receive waits for messages."""


class Endpoint(Protocol):
    """One protocol's way to the topic. A lane is one receiver; each is used by one task at a time."""

    @property
    def lanes(self) -> int:
        """Receivers that there can be at once."""
        ...

    async def send(self, body: bytes) -> None:
        """Store one message."""
        ...

    async def receive(self, lane: int, *, wait_ms: int) -> Sequence[bytes]:
        """The next bodies of a lane, acknowledged where the protocol has it; none after `wait_ms` without any."""
        ...

    async def rewind(self, lane: int) -> bool:
        """Begin again at the first message; False where that cannot be done."""
        ...

    async def close(self) -> None:
        """Give back what it holds."""
        ...


class RemotingEndpoint:
    """Sends of one message each, and pulls of up to `batch` messages, one lane for each queue."""

    def __init__(self, client: Client, topic: str, batch: int, starts: Sequence[tuple[QueueAddress, int]]) -> None:
        self._client = client
        self._producer = Producer(client)
        self._puller = Puller(client)
        self._topic = topic
        self._batch = batch
        self._starts = starts
        self._positions = [offset for _, offset in starts]

    @property
    def lanes(self) -> int:
        """One for each queue."""
        return len(self._starts)

    async def send(self, body: bytes) -> None:
        """See `Endpoint`."""
        await self._producer.send(Message(self._topic, body))

    async def receive(self, lane: int, *, wait_ms: int) -> Sequence[bytes]:
        """See `Endpoint`. The messages are decoded, as an application would have it."""
        queue, position = self._starts[lane][0], self._positions[lane]
        batch = await self._puller.pull(queue, position, max_messages=self._batch, wait_ms=wait_ms)
        self._positions[lane] = batch.next_offset
        return [message.body for message in batch.messages()] if batch.status is PullStatus.FOUND else ()

    async def rewind(self, lane: int) -> bool:
        """See `Endpoint`."""
        await asyncio.sleep(0)
        self._positions[lane] = self._starts[lane][1]
        return True

    async def close(self) -> None:
        """See `Endpoint`."""
        await self._client.close()
