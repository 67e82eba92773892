"""The door of a port: silent connections, floods of them and want of descriptors keep nobody out for long."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import AsyncIterator
from itertools import pairwise

import pytest
import pytest_asyncio
from crash.starvation import no_free_descriptor

from millstream.model.clock import ManualClock
from millstream.protocol.remoting.command import RemotingCommand
from millstream.protocol.remoting.frame import encode_frame
from millstream.transport import tls_sniffer as doorway_module
from millstream.transport.descriptor_budget import DescriptorBudget
from millstream.transport.remoting_server import RemotingServer
from millstream.transport.strangers import StrangerLog
from millstream.transport.tls_sniffer import TlsSniffer
from patience import PATIENCE_S

Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]
ROOM = 40


class Port:
    """A doorway behind which everybody is answered with one byte and stays."""

    def __init__(self) -> None:
        self.descriptors = DescriptorBudget(ROOM)
        self.inside: list[socket.socket] = []
        self.doorway = TlsSniffer(self._enter, self.descriptors, StrangerLog(ManualClock()))
        self.number = 0

    async def _enter(self, connection: socket.socket, is_tls: bool) -> None:
        self.descriptors.note()
        self.inside.append(connection)
        connection.send(b"t" if is_tls else b"p")

    async def silent(self, count: int = 1) -> list[Stream]:
        return [await asyncio.open_connection("127.0.0.1", self.number) for _ in range(count)]

    async def answer(self, first: bytes = b"x") -> bytes:
        """What somebody is answered who says something at once; nothing if he is sent away."""
        [(reader, writer)] = await self.silent()
        writer.write(first)
        async with asyncio.timeout(PATIENCE_S):
            try:
                answered = await reader.read(1)
            except ConnectionResetError:
                answered = b""
        writer.close()
        return answered


@pytest_asyncio.fixture
async def port() -> AsyncIterator[Port]:
    opened = Port()
    opened.number = await opened.doorway.start("127.0.0.1", 0)
    yield opened
    opened.doorway.close()
    await asyncio.sleep(0)
    for connection in opened.inside:
        connection.close()


async def test_the_first_byte_tells_tls_from_others(port: Port) -> None:
    assert await port.answer(b"\x16") == b"t"
    assert await port.answer(b"P") == b"p"


async def test_who_is_silent_for_longest_gives_way_to_who_says_something(
    port: Port, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doorway_module, "MAX_SILENT_CONNECTIONS", 5)
    silent = await port.silent(20)
    assert await port.answer() == b"p"
    assert port.doorway.waiting <= 5
    assert await silent[0][0].read() == b""
    silent[-1][1].write(b"x")
    assert await silent[-1][0].read(1) == b"p"


async def test_silent_connections_take_a_quarter_of_the_descriptors_at_most_and_give_them_back(port: Port) -> None:
    silent = await port.silent(ROOM * 2)
    assert await port.answer() == b"p"
    assert port.descriptors.used <= ROOM // 4 + 2
    for _, writer in silent:
        writer.close()
    async with asyncio.timeout(PATIENCE_S):
        while port.descriptors.used > 1:  # noqa: ASYNC110 - the system tells when the other ends are closed
            await asyncio.sleep(0.002)


async def test_without_a_descriptor_left_for_connections_the_next_one_is_closed(port: Port) -> None:
    port.descriptors.note(ROOM)
    assert await port.answer() == b""
    port.descriptors.free(ROOM)
    assert await port.answer() == b"p"


async def test_a_flood_leaves_each_turn_of_the_loop_to_others(port: Port, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doorway_module, "ACCEPTS_PER_TURN", 3)
    clients = [socket.create_connection(("127.0.0.1", port.number)) for _ in range(10)]
    seen = []
    for _ in range(20):
        await asyncio.sleep(0)
        seen.append(port.doorway.waiting)
    assert seen[-1] == 10
    assert max(after - before for before, after in pairwise(seen)) <= 3
    for client in clients:
        client.close()


async def test_a_port_without_a_descriptor_says_so_once_and_goes_on_when_there_is_one(
    caplog: pytest.LogCaptureFixture,
) -> None:
    server = RemotingServer({}, clock=ManualClock())
    number = await server.start()
    clients = [socket.socket() for _ in range(50)]
    with no_free_descriptor():
        for client in clients:
            client.setblocking(False)
            client.connect_ex(("127.0.0.1", number))
        await asyncio.sleep(0.25)
    said = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert len(said) == 1
    assert f"No connection to port {number} can be accepted" in said[0].getMessage()
    assert not said[0].exc_info
    reader, writer = await asyncio.open_connection("127.0.0.1", number)
    writer.write(b"".join(encode_frame(RemotingCommand(1))))
    async with asyncio.timeout(PATIENCE_S):
        assert await reader.read(4)
    writer.close()
    for client in clients:
        client.close()
    await server.close()


async def test_a_flood_of_bad_frames_is_one_line_a_second(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    server = RemotingServer({}, clock=clock)
    number = await server.start()
    for _ in range(2):
        for _ in range(20):
            reader, writer = await asyncio.open_connection("127.0.0.1", number)
            writer.write(b"\xff" * 64)
            async with asyncio.timeout(PATIENCE_S):
                assert await reader.read() == b""
            writer.close()
        clock.advance_ms(1000)
    said = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert len(said) == 2
    assert "(19 more of the kind: bad frame)" in said[1]
    await server.close()


async def test_a_port_without_tls_says_in_one_line_that_a_hello_is_no_frame(caplog: pytest.LogCaptureFixture) -> None:
    server = RemotingServer({}, clock=ManualClock())
    reader, writer = await asyncio.open_connection("127.0.0.1", await server.start())
    writer.write(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(64))
    async with asyncio.timeout(PATIENCE_S):
        assert await reader.read() == b""
    writer.close()
    await server.close()
    [said] = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert said.getMessage().startswith("Closing the connection from 127.0.0.1")


async def test_ports_are_shared_by_those_alone_who_all_say_so() -> None:
    sharing, other, third = Port(), Port(), Port()
    number = await sharing.doorway.start("127.0.0.1", 0, shares_port=True)
    assert await other.doorway.start("127.0.0.1", number, shares_port=True) == number
    with pytest.raises(OSError, match="in use"):
        await third.doorway.start("127.0.0.1", number)
    sharing.number = number
    # With so many connections it is as good as certain that each gets some of them.
    assert {await sharing.answer() for _ in range(32)} == {b"p"}
    assert sharing.inside
    assert other.inside
    other.doorway.close()
    for _ in range(8):
        assert await sharing.answer() == b"p"
    sharing.doorway.close()
    assert await third.doorway.start("127.0.0.1", number) == number
    with pytest.raises(OSError, match="in use"):
        await other.doorway.start("127.0.0.1", number, shares_port=True)
    third.doorway.close()
    for one in (*sharing.inside, *other.inside):
        one.close()
