"""Pages over HTTP: what a stranger may send, and what comes back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from millstream.model.errors import StartRefused
from millstream.transport.http_pages import MAX_HEAD_BYTES, MAX_PAGE_CONNECTIONS, HttpPages, Page


async def fine() -> Page:
    return Page(200, "text/plain", "größer\n")


async def broken() -> Page:
    raise RuntimeError("a secret of the inside")


@pytest_asyncio.fixture
async def port() -> AsyncIterator[int]:
    pages = HttpPages({"/fine": fine, "/broken": broken}, "127.0.0.1", 0)
    yield await pages.start()
    await pages.close()


async def ask(port: int, request: bytes) -> tuple[str, bytes]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    writer.close()
    return head.decode(), body


async def test_a_page_is_given_with_its_length_in_bytes(port: int) -> None:
    head, body = await ask(port, b"GET /fine?x=1 HTTP/1.1\r\nHost: h\r\n\r\n")
    assert head.startswith("HTTP/1.1 200 OK")
    assert f"Content-Length: {len(body)}" in head
    assert body.decode() == "größer\n"


async def test_head_gives_the_head_alone(port: int) -> None:
    head, body = await ask(port, b"HEAD /fine HTTP/1.1\r\n\r\n")
    assert head.startswith("HTTP/1.1 200 OK")
    assert body == b""


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"POST /fine HTTP/1.1\r\n\r\n", "405"),
        (b"GET /other HTTP/1.1\r\n\r\n", "404"),
        (b"GET /broken HTTP/1.1\r\n\r\n", "500"),
        (b"nonsense\r\n\r\n", "400"),
        (b"\x16\x03\x01\x02\x00\x01\r\n\r\n", "400"),
        (b"GET /fine HTTP/1.1\r\nx: " + b"y" * MAX_HEAD_BYTES + b"\r\n\r\n", "400"),
    ],
)
async def test_what_is_not_offered_is_refused_with_its_status(port: int, request_bytes: bytes, status: str) -> None:
    head, body = await ask(port, request_bytes)
    assert head.split()[1] == status
    assert b"secret" not in body


async def test_silent_connections_give_way_to_one_that_asks(port: int) -> None:
    silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(MAX_PAGE_CONNECTIONS)]
    head, _ = await ask(port, b"GET /fine HTTP/1.1\r\n\r\n")
    assert head.startswith("HTTP/1.1 200")
    assert await silent[0][0].read() == b""
    for _, silent_writer in silent:
        silent_writer.close()


async def test_one_half_question_too_many_is_closed_and_the_others_are_served(port: int) -> None:
    asking = []
    for _ in range(MAX_PAGE_CONNECTIONS + 1):
        asking.append(await asyncio.open_connection("127.0.0.1", port))
        asking[-1][1].write(b"GET /fine HTTP/1.1\r\n")
        await asyncio.sleep(0.001)
    assert await asking[-1][0].read() == b""
    asking[0][1].write(b"\r\n")
    assert (await asking[0][0].read()).startswith(b"HTTP/1.1 200")
    for _, writer in asking:
        writer.close()


async def test_a_port_in_use_is_refused_by_name(port: int) -> None:
    with pytest.raises(StartRefused, match="MS-1001"):
        await HttpPages({}, "127.0.0.1", port).start()
