"""Clients of an HTTP port that do not read what they are sent, and the budget that all of them share."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import pytest

from millstream.transport.connection_memory import ConnectionMemory, UnreadAnswers
from millstream.transport.http_port import WEBSOCKET_EXTENSION, AsgiPort
from patience import eventually, within_patience
from websocket_peer import handshake

BUDGET_BYTES = 4 * 1024 * 1024
PIECE = b"x" * 400_000
ANSWER_BYTES = 3_000_000
ANSWER = b"GET /answer HTTP/1.1\r\nhost: x\r\n\r\n"
STREAM = b"GET /stream HTTP/1.1\r\nhost: x\r\n\r\n"


class Pieces:
    """An application that writes large pieces for ever, as a stream, over a WebSocket, or as one answer."""

    def __init__(self) -> None:
        self.openers: list[Any] = []
        self.sent = 0
        self.answer_bytes = ANSWER_BYTES

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        if scope["path"] == "/stream":
            await send({"type": "http.response.start", "status": 200, "headers": []})
            while True:
                await send({"type": "http.response.body", "body": PIECE, "more_body": True})
                await asyncio.sleep(0)
        if scope["path"] == "/answer":
            headers = [(b"content-length", b"%d" % self.answer_bytes)]
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            await send({"type": "http.response.body", "body": bytes(self.answer_bytes)})
            return
        self.openers.append(scope["extensions"][WEBSOCKET_EXTENSION])
        connection = self.openers[-1]({name.decode(): value.decode() for name, value in scope["headers"]})
        with suppress(ConnectionError):
            while True:
                await connection.send(PIECE)
                self.sent += 1
                await asyncio.sleep(0)


class Ground:
    def __init__(self) -> None:
        self.pieces = Pieces()
        self.memory = ConnectionMemory()
        self.memory.answers = UnreadAnswers(BUDGET_BYTES)
        self.port = AsgiPort(self.pieces, memory=self.memory)
        self.number = 0
        self.peers: list[socket.socket] = []

    async def open(self, said: bytes) -> socket.socket:
        """A client that reads nothing, for which the system keeps little."""
        peer = socket.socket()
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        peer.setblocking(False)
        loop = asyncio.get_running_loop()
        await loop.sock_connect(peer, ("127.0.0.1", self.number))
        await loop.sock_sendall(peer, said)
        self.peers.append(peer)
        return peer

    def stop_looking(self) -> None:
        """Look at the connections when the test says so, and not each second."""
        assert self.port._sweep is not None
        self.port._sweep.cancel()

    def held_bytes(self) -> int:
        """What lies in the buffers, but for those cut off: uvloop lets go of their bytes when the turn ends."""
        transports = [one.transport for one in self.port._connections]
        return sum(one.get_write_buffer_size() for one in transports if not one.is_closing())

    def is_full(self) -> bool:
        return any(one.unread.since_s is not None for one in self.port._connections)


@pytest.fixture
async def ground() -> AsyncIterator[Ground]:
    made = Ground()
    made.number = await made.port.start()
    yield made
    for peer in made.peers:
        peer.close()
    await made.port.close(0.0)


@pytest.mark.parametrize("said", [STREAM, handshake("/websocket")])
async def test_over_the_budget_of_unread_bytes_who_has_read_nothing_for_longest_is_cut_off(
    ground: Ground, said: bytes
) -> None:
    for number in range(60):
        await ground.open(said)
        await eventually(lambda number=number: ground.is_full() or number)
        assert ground.held_bytes() <= BUDGET_BYTES * 5 // 4
    await eventually(lambda: ground.port.connections < 60)
    assert ground.memory.answers.used_bytes >= BUDGET_BYTES // 2
    first, last = ground.peers[0], ground.peers[-1]
    assert await within_patience(is_cut_off(first))
    assert not await is_cut_off(last, wait_s=0.1)


async def is_cut_off(peer: socket.socket, wait_s: float | None = None) -> bool:
    """Whether the server ends the connection, once what it had sent before is read."""
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(wait_s):
            while await loop.sock_recv(peer, 4096 if wait_s else 1 << 20):
                if wait_s:
                    return False
            return True
    except TimeoutError:
        return False
    except ConnectionError:
        return True


@pytest.mark.parametrize("said", [STREAM, handshake("/websocket")])
async def test_nothing_counts_of_a_client_that_has_gone(ground: Ground, said: bytes) -> None:
    peer = await ground.open(said)
    await eventually(lambda: ground.memory.answers.used_bytes)
    peer.close()
    await eventually(lambda: not ground.port.connections)
    assert ground.memory.answers.used_bytes == 0


async def test_nothing_counts_of_an_answer_that_was_read(ground: Ground) -> None:
    ground.stop_looking()
    peer = await ground.open(ANSWER)
    loop, read = asyncio.get_running_loop(), 0
    await eventually(lambda: ground.memory.answers.used_bytes)
    while read < ANSWER_BYTES:
        read += len(await within_patience(loop.sock_recv(peer, 1 << 20)))
    await eventually(lambda: not ground.memory.answers.used_bytes)
    assert ground.port.connections == 1


async def test_what_a_slow_client_reads_of_a_full_buffer_is_told_at_the_next_look(ground: Ground) -> None:
    ground.stop_looking()
    # Far more than the system takes at a time.
    ground.pieces.answer_bytes = 30_000_000
    ground.memory.answers = UnreadAnswers(30_000_000)
    peer = await ground.open(ANSWER)
    await eventually(lambda: ground.memory.answers.used_bytes)
    before = ground.memory.answers.used_bytes
    while ground.held_bytes() == before:
        await within_patience(asyncio.get_running_loop().sock_recv(peer, 65_536))
    assert ground.is_full()
    assert ground.memory.answers.used_bytes == before
    ground.port.check_connections()
    assert ground.memory.answers.used_bytes == ground.held_bytes() < before


async def test_a_websocket_behind_an_answer_that_is_not_read_waits_for_it(ground: Ground) -> None:
    await ground.open(ANSWER + handshake("/websocket"))
    await eventually(lambda: ground.pieces.openers)
    for _ in range(20):
        await asyncio.sleep(0)
    assert ground.pieces.sent == 0
    assert ground.held_bytes() < ANSWER_BYTES + len(PIECE)


async def test_what_came_behind_a_handshake_is_not_kept_beside_the_websocket(ground: Ground) -> None:
    await ground.open(handshake("/websocket") + b"\x81\xfe\x7f\xff1234" + b"x" * 20_000)
    await eventually(lambda: ground.is_full())
    [opener] = ground.pieces.openers
    assert opener.func.__self__._early == b""
