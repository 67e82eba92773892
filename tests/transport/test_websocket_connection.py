"""WebSockets of a port over real sockets: clients that are silent, slow, or do not come to an end."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from certificates import identity_in, needs_openssl, trusting
from millstream.model.clock import ManualClock
from millstream.protocol.websocket import CloseCode, Opcode, encode_frame
from millstream.security.tls import TlsMode
from millstream.transport.connection_memory import FRAME_LIMIT_S
from millstream.transport.http_port import WEBSOCKET_EXTENSION, AsgiPort
from millstream.transport.input_pacing import INPUT_AT_ONCE_BYTES
from millstream.transport.websocket_connection import (
    CLOSE_LIMIT_S,
    MAX_WAITING_MESSAGES,
    PING_AFTER_S,
    PONG_LIMIT_S,
    SOCKET_UNREAD_LIMIT_S,
    WebSocketConnection,
)
from patience import eventually, within_patience
from websocket_peer import Closed, WebSocketPeer, client_frame, handshake


class Echo:
    """An application that sends back what comes over its WebSockets, once it may."""

    def __init__(self) -> None:
        self.sockets: list[WebSocketConnection] = []
        self.may_go_on = asyncio.Event()
        self.may_go_on.set()
        self.ended = 0

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        fields = {name.decode(): value.decode() for name, value in scope["headers"]}
        connection: WebSocketConnection = scope["extensions"][WEBSOCKET_EXTENSION](fields)
        self.sockets.append(connection)
        with suppress(ConnectionError):
            while (text := await connection.receive()) is not None:
                await self.may_go_on.wait()
                await connection.send(text.encode())
        self.ended += 1


class Ground:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.echo = Echo()
        self.port = AsgiPort(self.echo, clock=self.clock)
        self.number = 0

    async def open(self) -> WebSocketPeer:
        return await WebSocketPeer.open(self.number, "/")

    def pass_time(self, seconds: float) -> None:
        self.clock.advance_ms(int(seconds * 1000))
        self.port.check_connections()
        self.port.memory.sweep(self.clock.monotonic_s())


@pytest.fixture
async def ground() -> AsyncIterator[Ground]:
    made = Ground()
    made.number = await made.port.start()
    yield made
    await made.port.close(0.0)


async def end_of(peer: WebSocketPeer) -> int | None:
    """The code with which the server closes; None where the connection is cut."""
    try:
        while True:
            await peer.receive()
    except Closed as end:
        return end.code


async def test_a_silent_client_is_asked_and_cut_off_where_it_does_not_answer(ground: Ground) -> None:
    quick, dead = await ground.open(), await ground.open()
    ground.pass_time(PING_AFTER_S)
    assert await within_patience(quick.frame()) == (9, b"")
    assert await within_patience(dead.frame()) == (9, b"")
    quick.writer.write(client_frame(b"", 10))
    quick.send("a")
    assert await quick.receive() == "a"
    ground.pass_time(PONG_LIMIT_S)
    assert await end_of(dead) is None
    await eventually(lambda: ground.port.connections == 1)
    quick.send("b")
    assert await quick.receive() == "b"
    await quick.close()


async def test_a_close_of_the_server_ends_the_connection_although_nobody_answers_it(ground: Ground) -> None:
    peer = await ground.open()
    await eventually(lambda: ground.echo.sockets)
    [connection] = ground.echo.sockets
    connection.close(CloseCode.POLICY_VIOLATION, "no")
    connection.close(CloseCode.NORMAL)
    assert await end_of(peer) == 1008
    peer.send("late")
    await eventually(lambda: ground.echo.ended == 1)
    assert ground.port.connections == 1
    ground.pass_time(CLOSE_LIMIT_S)
    await eventually(lambda: not ground.port.connections)
    with pytest.raises(ConnectionError):
        await connection.send(b"x")


async def test_a_message_that_does_not_come_to_its_end_counts_as_memory_and_is_given_up(ground: Ground) -> None:
    peer = await ground.open()
    peer.writer.write(client_frame(b"x" * 1000, final=False) + client_frame(b"y" * 1000, 0)[:500])
    await eventually(lambda: ground.port.memory.used_bytes >= 1400)
    ground.pass_time(FRAME_LIMIT_S)
    assert await end_of(peer) == 1008
    assert ground.port.memory.used_bytes == 0


async def test_a_message_that_is_whole_counts_no_more(ground: Ground) -> None:
    peer = await ground.open()
    data = client_frame(b'"' + b"x" * 1000 + b'"')
    peer.writer.write(data[:500])
    await eventually(lambda: ground.port.memory.used_bytes)
    peer.writer.write(data[500:])
    assert await peer.receive() == "x" * 1000
    assert ground.port.memory.used_bytes == 0
    await peer.close()


async def test_a_client_is_read_no_further_while_its_messages_wait(ground: Ground) -> None:
    peer = await ground.open()
    ground.echo.may_go_on.clear()
    await eventually(lambda: ground.echo.sockets)
    [connection] = ground.echo.sockets
    for number in range(MAX_WAITING_MESSAGES + 1):
        peer.send(number)
    await eventually(lambda: not connection._reads)
    # Enough for many chunks: what is not read stays with the client.
    sent = 2000
    for _ in range(sent):
        peer.send("x" * 10_000)
    assert len(connection._waiting) < sent // 2
    for seconds in (PING_AFTER_S, PONG_LIMIT_S):
        ground.pass_time(seconds)
    ground.echo.may_go_on.set()
    for number in range(MAX_WAITING_MESSAGES + 1):
        assert await peer.receive() == number
    for _ in range(sent):
        assert await peer.receive() == "x" * 10_000
    await peer.close()


async def test_a_client_that_does_not_read_is_cut_off(ground: Ground) -> None:
    raw = socket.socket()
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    raw.setblocking(False)
    loop = asyncio.get_running_loop()
    await loop.sock_connect(raw, ("127.0.0.1", ground.number))
    await loop.sock_sendall(raw, handshake("/"))
    await eventually(lambda: ground.echo.sockets)
    [connection] = ground.echo.sockets

    async def send_forever() -> None:
        while True:
            await connection.send(b"x" * 100_000)

    sending = asyncio.create_task(send_forever())
    await eventually(lambda: connection.unread.since_s is not None)
    ground.pass_time(SOCKET_UNREAD_LIMIT_S)
    with pytest.raises(ConnectionError):
        await within_patience(sending)
    await eventually(lambda: not ground.port.connections)
    raw.close()


async def test_pings_of_a_client_that_does_not_read_fill_no_memory(ground: Ground) -> None:
    peer = await ground.open()
    peer.writer.transport.pause_reading()
    await eventually(lambda: ground.echo.sockets)
    [connection] = ground.echo.sockets
    flood = client_frame(b"p" * 125, 9) * 1000
    for _ in range(100):
        if connection.unread.since_s is not None:
            break
        peer.writer.write(flood)
        await asyncio.sleep(0.01)
    await eventually(lambda: connection.unread.since_s is not None)
    assert not connection._reads
    assert connection.transport.get_write_buffer_size() < 4 * 1024 * 1024
    peer.writer.transport.abort()


async def test_a_client_that_goes_frees_its_descriptor(ground: Ground) -> None:
    for _ in range(3):
        peer = await ground.open()
        assert ground.port.connections == 1
        peer.drop()
        await eventually(lambda: not ground.port.connections)
    assert ground.port._descriptors.used == 0
    await eventually(lambda: ground.echo.ended == 3)


@needs_openssl
async def test_a_websocket_is_opened_through_tls(tmp_path: Path) -> None:
    identity, files = identity_in(tmp_path)
    port = AsgiPort(Echo(), tls=(identity, TlsMode.REQUIRED))
    number = await port.start()
    try:
        peer = await WebSocketPeer.open(number, "/", tls=trusting(files))
        for text in ("short", "x" * 200_000):
            peer.send(text)
            assert await peer.receive() == text
        await peer.close()
        await eventually(lambda: not port.connections)
    finally:
        await port.close(0.0)


async def test_a_flood_of_small_frames_is_taken_in_many_turns_so_that_others_have_theirs(ground: Ground) -> None:
    peer = await ground.open()
    await eventually(lambda: ground.echo.sockets)
    [connection] = ground.echo.sockets
    turns = 0

    async def count_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count_turns())
    connection.feed(client_frame(b"", 9) * 40_000 + client_frame(b"done"))
    for _ in range(40_000):
        assert await within_patience(peer.frame()) == (10, b"")
    assert await within_patience(peer.frame()) == (1, b"done")
    assert turns > 50
    counting.cancel()
    await peer.close()


async def test_floods_of_many_clients_share_one_turn(ground: Ground) -> None:
    peers = [await ground.open() for _ in range(40)]
    pieces = client_frame(b"", 9) * (4096 // 6)
    taken = list[int]()
    share, per_turn = ground.port.memory.input, 0
    for peer in peers:
        peer.writer.write(pieces * 8)
    await asyncio.sleep(0)

    def count_take(data: bytes, real: Callable[[bytes], None]) -> None:
        nonlocal per_turn
        per_turn += len(data)
        real(data)

    for one in ground.echo.sockets:
        one._take = partial(count_take, real=one._take)  # type: ignore[method-assign]
    while sum(taken) < 40 * len(pieces):
        per_turn = 0
        await asyncio.sleep(0)
        taken.append(per_turn)
    assert max(taken) <= INPUT_AT_ONCE_BYTES + 4096
    assert share.waiting > 0


async def test_half_a_message_is_freed_with_its_connection_and_not_later_with_the_garbage(ground: Ground) -> None:
    peer = await ground.open()
    peer.writer.write(client_frame(b"x" * 100_000, final=False))
    await eventually(lambda: ground.echo.sockets and ground.echo.sockets[0]._messages.held_bytes)
    peer.writer.transport.abort()
    await eventually(lambda: not ground.port.connections)
    assert ground.echo.sockets[0]._messages.held_bytes == 0


class WrittenDown(asyncio.Transport):
    """A transport that keeps what it is given as it is."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[bytes | bytearray | memoryview] = []

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written.append(data)

    def is_closing(self) -> bool:
        return False


async def test_a_large_message_is_written_without_a_copy_of_it(ground: Ground) -> None:
    transport = WrittenDown()
    connection = WebSocketConnection(ground.port, transport, "somebody")
    small, large = b"x" * 1000, b"y" * 200_000
    await connection.send(small)
    await connection.send(large)
    assert transport.written[0] == encode_frame(Opcode.TEXT, small)
    assert b"".join(transport.written[1:]) == encode_frame(Opcode.TEXT, large)
    last = transport.written[-1]
    assert isinstance(last, memoryview)
    assert last.obj is large
