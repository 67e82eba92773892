"""Many streams over many topics, of which half read nothing for a while."""

from __future__ import annotations

import asyncio
import gc
import json
import sys
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
from http_ground import HttpGround

from millstream.model.message import Address, StoredMessage
from millstream.model.topic import TopicConfig
from millstream.proxy.backend import BrokerBackend
from millstream.proxy.http import topic_tail
from millstream.proxy.http.request import HttpRequest, QueryParameters
from millstream.transport import late_answers
from patience import eventually, within_patience

TOPICS, STREAMS = 8, 32
WINDOW_BYTES = 64 * 1024


class Watcher:
    """The client of one stream: the subjects of what came, in their order."""

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.subjects: list[str] = []
        self._may_read = asyncio.Event()
        self._may_read.set()

    async def open(self, ground: HttpGround) -> None:
        # The reader takes little ahead, so that who stops reading is one who does not read.
        reader, self._writer = await asyncio.open_connection("127.0.0.1", ground.port, limit=16 * 1024)
        self._writer.write(f"GET /v1/topics/{self.topic}/stream HTTP/1.1\r\nhost: x\r\n\r\n".encode())
        await within_patience(reader.readuntil(b": still here\n\n"))
        self._reading = asyncio.create_task(self._read(reader))

    def stop(self) -> None:
        self._may_read.clear()

    def go(self) -> None:
        self._may_read.set()

    async def close(self) -> None:
        self._reading.cancel()
        self._writer.close()
        await asyncio.gather(self._reading, return_exceptions=True)

    async def _read(self, reader: asyncio.StreamReader) -> None:
        rest = b""
        while data := await reader.read(16 * 1024):
            await self._may_read.wait()
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                if line.startswith(b"data: "):
                    self.subjects.append(json.loads(line[6:])["subject"])


async def create_topics(backend: BrokerBackend) -> list[str]:
    names = [f"many-{number}" for number in range(TOPICS)]
    for name in names:
        await backend.declare_topic(TopicConfig(name, read_queues=1, write_queues=1))
    return names


async def test_half_of_many_streams_that_read_nothing_hold_nobody_up_and_miss_nothing(
    ground: HttpGround, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topic_tail, "MAX_TAILS_BYTES", TOPICS * WINDOW_BYTES)
    names = await create_topics(ground.processor.backend)
    watchers = [Watcher(names[number % TOPICS]) for number in range(STREAMS)]
    for one in watchers:
        await one.open(ground)
    assert ground.processor.feed.readers == TOPICS
    stuck, quick = watchers[: STREAMS // 2], watchers[STREAMS // 2 :]
    for one in stuck:
        one.stop()
    sent = [f"k{number}" for number in range(60)]
    for key in sent:
        for name in names:
            await ground.post(b"x" * 10_000, topic=name, key=key)
    for one in quick:
        await eventually(lambda one=one: len(one.subjects) == len(sent))
    assert not any(one.subjects[1:] for one in stuck)
    assert ground.server._streams.tails.size_bytes <= TOPICS * (WINDOW_BYTES + 20_000)
    for one in stuck:
        one.go()
    for one in watchers:
        await eventually(lambda one=one: len(one.subjects) == len(sent))
        assert one.subjects == sent
        await one.close()
    await eventually(lambda: not ground.processor.feed.readers)
    assert ground.server._streams.tails.size_bytes == 0


async def test_the_windows_of_quiet_topics_shrink_when_topics_come(
    ground: HttpGround, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topic_tail, "MAX_TAILS_BYTES", 2 * WINDOW_BYTES)
    monkeypatch.setattr(topic_tail, "MAX_TAIL_BYTES", WINDOW_BYTES)
    names = await create_topics(ground.processor.backend)
    tails = ground.server._streams.tails
    readers = []
    for name in names[:2]:
        readers.append((name, await tails.join(name)))
        for _ in range(20):
            await ground.post(b"x" * 5_000, topic=name)
        await eventually(lambda: tails.size_bytes > len(readers) * WINDOW_BYTES * 3 // 4)
    for name in names[2:]:
        readers.append((name, await tails.join(name)))
        assert tails.size_bytes <= 2 * WINDOW_BYTES
        assert all(
            tail.size_bytes <= tails.limit_bytes or tail.next - tail.first == 1 for tail in tails._tails.values()
        )
    for name, reader in readers:
        tails.leave(name, reader)


async def test_no_event_is_made_for_a_stream_whose_buffer_is_full(ground: HttpGround) -> None:
    sent: list[bytes] = []
    has_room = asyncio.Event()
    has_room.set()

    async def send(message: Mapping[str, Any]) -> None:
        """As a connection that is full with one event, and says so to who writes the next time."""
        await has_room.wait()
        if b"data: " in message.get("body", b""):
            sent.append(message["body"])
            has_room.clear()

    async def receive() -> Any:
        await asyncio.Event().wait()

    request = HttpRequest("GET", {}, QueryParameters({}), Address("127.0.0.1", 1), receive, send, is_read=True)
    streaming = asyncio.create_task(ground.server._streams.stream(request, "orders"))
    await eventually(lambda: ground.server._streams.streams == 1)
    for number in range(3):
        await ground.post(b"x" * 50_000, key=f"k{number}")
    await eventually(lambda: sent)
    for _ in range(20):
        await asyncio.sleep(0)
    assert ground.server._traffic.messages_out == len(sent) == 1
    has_room.set()
    await eventually(lambda: len(sent) == 2)
    streaming.cancel()
    await asyncio.gather(streaming, return_exceptions=True)


async def test_an_event_that_lies_in_a_full_buffer_is_not_kept_beside_it(ground: HttpGround) -> None:
    sent: list[bytes] = []
    is_full = asyncio.Event()

    async def send(message: Mapping[str, Any]) -> None:
        if is_full.is_set():
            await asyncio.Event().wait()
        if b"data: " in message.get("body", b""):
            sent.append(message["body"])
            is_full.set()

    async with open_stream(ground, send):
        await ground.post(b"x" * 50_000)
        await eventually(lambda: sent)
        for _ in range(20):
            await asyncio.sleep(0)
        references = sys.getrefcount(sent[0])
        # The list, and the call itself.
        assert references == 2


async def test_a_large_message_of_the_log_is_not_kept_while_its_stream_does_not_read(ground: HttpGround) -> None:
    sent: list[bytes] = []

    async def send(message: Mapping[str, Any]) -> None:
        if sent:
            await asyncio.Event().wait()
        if b"data: " in message.get("body", b""):
            sent.append(message["body"])

    for _ in range(3):
        await ground.post(b"x" * 200_000)
    async with open_stream(ground, send, {"from": "earliest"}):
        await eventually(lambda: sent)
        for _ in range(20):
            await asyncio.sleep(0)
        references = sys.getrefcount(sent[0])
        # The list, and the call itself.
        assert references == 2
        assert not [one for one in gc.get_objects() if isinstance(one, StoredMessage) and len(one.body) == 200_000]


async def test_a_large_event_is_written_to_a_few_of_many_streams_before_others_are_served(
    ground: HttpGround, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(late_answers, "LATE_AT_ONCE_BYTES", 100_000)
    turn, turns = 0, list[int]()

    async def send(message: Mapping[str, Any]) -> None:
        if b"data: " in message.get("body", b""):
            turns.append(turn)

    async with AsyncExitStack() as stack:
        for _ in range(20):
            await stack.enter_async_context(open_stream(ground, send))
        await eventually(lambda: ground.server._streams.streams == 20)
        await ground.post(b"x" * 40_000)
        async with asyncio.timeout(60):
            while len(turns) < 20:
                turn += 1
                await asyncio.sleep(0)
        assert max(Counter(turns).values()) <= 3


@asynccontextmanager
async def open_stream(
    ground: HttpGround, send: Any, parameters: Mapping[str, str] | None = None
) -> AsyncIterator[None]:
    """A stream of the topic orders to `send`, which is there."""

    async def receive() -> Any:
        await asyncio.Event().wait()

    query = QueryParameters(dict(parameters or {}))
    request = HttpRequest("GET", {}, query, Address("127.0.0.1", 1), receive, send, is_read=True)
    streaming = asyncio.create_task(ground.server._streams.stream(request, "orders"))
    await eventually(lambda: ground.server._streams.streams)
    yield
    streaming.cancel()
    await asyncio.gather(streaming, return_exceptions=True)
