"""A broker over a real store, and short words for what its clients do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from millstream.broker.broker import Broker, BrokerOptions
from millstream.model.clock import Clock, ManualClock
from millstream.model.filter import parse_tag_filter
from millstream.model.handles import ReceiptHandle
from millstream.model.message import OutgoingMessage
from millstream.model.operations import (
    AckRequest,
    ChangeInvisibleRequest,
    PoppedMessage,
    PopRequest,
    PullRequest,
    PullResult,
    SendReceipt,
)
from millstream.model.topic import MessageType, TopicConfig
from millstream.store.message_store import StoreOptions

MEMORY = Path("/dev/shm") if Path("/dev/shm").is_dir() else None
"""Where state machines keep their stores, which nobody cuts the power of: None is the usual place."""

SMALL_STORE = StoreOptions(segment_bytes=64 * 1024 * 1024, flush_interval_ms=50)


class Bench:
    """A broker with a clock of its own, one topic `t` and a group `g`."""

    def __init__(self, broker: Broker, clock: ManualClock) -> None:
        self.broker = broker
        self.clock = clock

    async def send(self, *bodies: str, topic: str = "t", queue_id: int | None = 0, **held: str) -> list[SendReceipt]:
        """Send one message for each body; `held` are its properties."""
        messages = [OutgoingMessage(topic, body.encode(), dict(held), queue_id=queue_id) for body in bodies]
        return await self.broker.delivery.send(messages)

    async def pull(self, queue_offset: int, *, expression: str = "*", queue_id: int = 0, **more: Any) -> PullResult:
        request = PullRequest("g", "t", queue_id, queue_offset, filter=parse_tag_filter(expression), **more)
        return await self.broker.queues.pull(request)

    async def pop(
        self, group: str = "g", *, topic: str = "t", expression: str = "*", invisible_ms: int = 60_000, **more: Any
    ) -> list[PoppedMessage]:
        request = PopRequest(group, topic, invisible_ms, filter=parse_tag_filter(expression), **more)
        return await self.broker.delivery.pop(request)

    def waiting_pop(self, group: str = "g", **more: Any) -> asyncio.Task[list[PoppedMessage]]:
        """A pop that waits for up to 30 s, as a task."""
        return asyncio.create_task(self.pop(group, wait_ms=30_000, **more))

    def ack(self, *popped: PoppedMessage, group: str = "g", topic: str = "t") -> None:
        for message in popped:
            self.broker.delivery.ack(AckRequest(group, topic, message.handle))

    def change(self, popped: PoppedMessage, invisible_ms: int, *, suspend: bool = False) -> ReceiptHandle:
        return self.broker.delivery.change_invisible(
            ChangeInvisibleRequest("g", "t", popped.handle, invisible_ms, suspend)
        )


def bodies(popped: Sequence[PoppedMessage]) -> list[str]:
    return [message.message.body.decode() for message in popped]


def attempts(popped: Sequence[PoppedMessage]) -> list[int]:
    return [message.delivery_attempt for message in popped]


async def settle() -> None:
    """Let every task that can run do so."""
    for _ in range(20):
        await asyncio.sleep(0)


@asynccontextmanager
async def running(directory: Path, *, clock: Clock | None = None, **settings: Any) -> AsyncIterator[Broker]:
    """A broker that is started, and closed in the end."""
    options = BrokerOptions(**{"store": SMALL_STORE, **settings})
    broker = Broker(directory, options=options, clock=clock)
    await broker.start()
    try:
        yield broker
    finally:
        await broker.close()


@asynccontextmanager
async def open_bench(
    directory: Path,
    *,
    clock: ManualClock | None = None,
    real_time: bool = False,
    takes: MessageType = MessageType.NORMAL,
    **settings: Any,
) -> AsyncIterator[Bench]:
    """A `Bench` in the directory, as often as wanted one after another. `real_time` for what wakes by itself."""
    clock = clock or ManualClock()
    async with running(directory, clock=None if real_time else clock, **settings) as broker:
        broker.topics.create(TopicConfig("t", takes))
        yield Bench(broker, clock)
