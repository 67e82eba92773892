"""Requests that come behind one that is under way, on the same connection."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from millstream.transport.http_port import MAX_PIPELINED_REQUESTS, AsgiPort
from patience import eventually, within_patience
from websocket_peer import handshake


class Numbers:
    """An application that answers each request with its path and its body, once it may."""

    def __init__(self) -> None:
        self.may_go_on = asyncio.Event()
        self.asked = 0

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        self.asked += 1
        await self.may_go_on.wait()
        body, more = scope["raw_path"] + b" ", True
        while more:
            message = await receive()
            body, more = body + message["body"], message["more_body"]
        headers = [(b"content-length", b"%d" % len(body))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})


class Ground:
    def __init__(self) -> None:
        self.numbers = Numbers()
        self.port = AsgiPort(self.numbers)
        self.number = 0

    @property
    def waiting(self) -> int:
        """Requests that are parsed and wait."""
        return sum(len(one.pipeline) for one in self.port._connections)  # type: ignore[union-attr]


@pytest.fixture
async def ground() -> AsyncIterator[Ground]:
    made = Ground()
    made.number = await made.port.start()
    yield made
    await made.port.close(0.0)


async def answer_of(reader: asyncio.StreamReader) -> bytes:
    head = await within_patience(reader.readuntil(b"\r\n\r\n"))
    length = int(head.split(b"content-length: ")[1].split(b"\r\n")[0])
    return await within_patience(reader.readexactly(length))


async def test_a_flood_of_requests_is_parsed_no_further_than_they_are_answered_and_answered_whole(
    ground: Ground,
) -> None:
    count = 20_000
    reader, writer = await asyncio.open_connection("127.0.0.1", ground.number)
    writer.write(b"".join([b"GET /%d HTTP/1.1\r\n\r\n" % number for number in range(count)]))
    await eventually(lambda: ground.waiting >= MAX_PIPELINED_REQUESTS)
    most = 0
    ground.numbers.may_go_on.set()
    for number in range(count):
        assert await answer_of(reader) == b"/%d " % number
        most = max(most, ground.waiting)
    # Those of one piece, and those that waited before it.
    assert most < 300
    writer.close()


async def test_a_body_behind_requests_that_wait_comes_whole(ground: Ground) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", ground.number)
    body = bytes(range(256)) * 1000
    posts = b"".join(
        [b"POST /%d HTTP/1.1\r\ncontent-length: %d\r\n\r\n" % (number, len(body)) + body for number in range(40)]
    )
    writer.write(posts)
    await eventually(lambda: ground.numbers.asked)
    ground.numbers.may_go_on.set()
    for number in range(40):
        assert await answer_of(reader) == b"/%d " % number + body
    writer.close()


async def test_what_cannot_be_parsed_behind_requests_that_wait_is_refused_when_it_is_reached(ground: Ground) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", ground.number)
    count = 1000
    writer.write(b"".join([b"GET /%d HTTP/1.1\r\n\r\n" % number for number in range(count)]) + b"nonsense\r\n\r\n")
    await eventually(lambda: ground.waiting >= MAX_PIPELINED_REQUESTS)
    ground.numbers.may_go_on.set()
    assert await answer_of(reader) == b"/0 "
    rest = await within_patience(reader.read())
    assert rest.count(b"HTTP/1.1 200") < count
    await eventually(lambda: not ground.waiting)
    writer.close()


async def test_a_client_that_goes_while_its_requests_wait_leaves_none(ground: Ground) -> None:
    _, writer = await asyncio.open_connection("127.0.0.1", ground.number)
    writer.write(b"GET / HTTP/1.1\r\n\r\n" * 20_000)
    await eventually(lambda: ground.waiting >= MAX_PIPELINED_REQUESTS)
    writer.transport.abort()
    ground.numbers.may_go_on.set()
    await eventually(lambda: not ground.port.connections)
    assert ground.numbers.asked < 300


@pytest.mark.parametrize("size", [1, 10, 4096, 10_000])
async def test_what_follows_a_request_for_a_websocket_behind_others_is_kept(ground: Ground, size: int) -> None:
    _, writer = await asyncio.open_connection("127.0.0.1", ground.number)
    writer.write(b"GET /a HTTP/1.1\r\n\r\n" * 3 + handshake("/b") + b"x" * size)
    await eventually(lambda: early_bytes(ground) == b"x" * size)
    writer.close()


def early_bytes(ground: Ground) -> bytes | None:
    return next((one._early for one in ground.port._connections), None)  # type: ignore[union-attr]


async def test_a_request_that_goes_on_for_ever_learns_that_its_client_went_behind_others_that_wait() -> None:
    ended = asyncio.Event()

    async def listen(scope: dict[str, Any], receive: Any, send: Any) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        ended.set()

    port = AsgiPort(listen)
    number = await port.start()
    try:
        for behind in (b"", b"GET /behind HTTP/1.1\r\n\r\n"):
            ended.clear()
            _, writer = await asyncio.open_connection("127.0.0.1", number)
            writer.write(b"GET / HTTP/1.1\r\n\r\n" + behind)
            await eventually(lambda: port.connections)
            writer.close()
            await within_patience(ended.wait())
            await eventually(lambda: not port.connections)
    finally:
        await port.close(0.0)
