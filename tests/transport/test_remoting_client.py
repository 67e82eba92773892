from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from millstream.model.errors import ConnectionFailed, TimedOut, Unreachable
from millstream.model.message import Address
from millstream.protocol.remoting.command import FLAG_ONEWAY, RemotingCommand
from millstream.protocol.remoting.frame import FrameDecoder, encode_frame
from millstream.transport import remoting_client
from millstream.transport.remoting_client import RemotingConnection


class ScriptedServer:
    """Keeps what arrives; the tests write the answers."""

    def __init__(self) -> None:
        self.arrived: asyncio.Queue[RemotingCommand] = asyncio.Queue()
        self.writers: list[asyncio.StreamWriter] = []
        self.address = Address("127.0.0.1", 0)
        self.connected = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writers.append(writer)
        self.connected.set()
        decoder = FrameDecoder()
        while data := await reader.read(1 << 16):
            for command in decoder.feed(data):
                self.arrived.put_nowait(command)
        writer.close()

    def answer(self, *commands: RemotingCommand) -> None:
        self.writers[-1].write(b"".join(b"".join(encode_frame(command)) for command in commands))


@pytest_asyncio.fixture
async def server() -> AsyncIterator[ScriptedServer]:
    scripted = ScriptedServer()
    listening = await asyncio.start_server(scripted.serve, "127.0.0.1", 0)
    scripted.address = Address("127.0.0.1", listening.sockets[0].getsockname()[1])
    yield scripted
    listening.close()


@pytest_asyncio.fixture
async def connection(server: ScriptedServer) -> AsyncIterator[RemotingConnection]:
    opened = await RemotingConnection.open(server.address)
    yield opened
    await opened.close()


async def test_answers_find_their_requests_in_any_order(server: ScriptedServer, connection: RemotingConnection) -> None:
    waiting = [asyncio.ensure_future(connection.request(RemotingCommand(5, {"n": str(n)}), 5)) for n in range(3)]
    requests = [await server.arrived.get() for _ in range(3)]
    assert len({request.opaque for request in requests}) == 3
    server.answer(*(request.response(ext=request.ext) for request in reversed(requests)))
    assert [(await answer).ext["n"] for answer in waiting] == ["0", "1", "2"]


async def test_a_late_answer_is_timed_out_and_then_passed_over(
    server: ScriptedServer, connection: RemotingConnection
) -> None:
    with pytest.raises(TimedOut) as failed:
        await connection.request(RemotingCommand(5), 0.02)
    assert str(server.address.port) in failed.value.message
    assert failed.value.exit_code == 4
    server.answer((await server.arrived.get()).response(ext={"late": "1"}))
    second = asyncio.ensure_future(connection.request(RemotingCommand(5), 5))
    server.answer((await server.arrived.get()).response(ext={"late": "0"}))
    assert (await second).ext == {"late": "0"}


async def test_requests_under_way_fail_as_unreachable_when_the_server_closes(
    server: ScriptedServer, connection: RemotingConnection
) -> None:
    waiting = [asyncio.ensure_future(connection.request(RemotingCommand(5), 5)) for _ in range(2)]
    await server.arrived.get()
    server.writers[0].close()
    for request in waiting:
        with pytest.raises(Unreachable, match="closed the connection"):
            await request
    assert not connection.is_open
    with pytest.raises(Unreachable):
        await connection.request(RemotingCommand(5), 5)


async def test_an_answer_of_another_protocol_is_a_protocol_violation(
    server: ScriptedServer, connection: RemotingConnection
) -> None:
    waiting = asyncio.ensure_future(connection.request(RemotingCommand(5), 5))
    await server.arrived.get()
    server.writers[0].write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    with pytest.raises(ConnectionFailed) as failed:
        await waiting
    assert failed.value.name == "PROTOCOL_VIOLATION"


async def test_a_request_of_the_server_is_told_that_it_is_not_known_unless_it_is_oneway(
    server: ScriptedServer, connection: RemotingConnection
) -> None:
    await server.connected.wait()
    server.answer(RemotingCommand(40, flag=FLAG_ONEWAY, opaque=1), RemotingCommand(220, opaque=2))
    answer = await server.arrived.get()
    assert (answer.opaque, answer.code, answer.is_response) == (2, 3, True)


async def test_a_port_where_nobody_listens_is_unreachable_with_the_address() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        with pytest.raises(Unreachable, match=f"127.0.0.1:{port}") as failed:
            await RemotingConnection.open(Address("127.0.0.1", port))
    assert failed.value.exit_code == 3


async def test_a_request_waits_for_room_while_the_server_does_not_read(
    connection: RemotingConnection, server: ScriptedServer
) -> None:
    connection.pause_writing()
    with pytest.raises(TimedOut):
        await connection.request(RemotingCommand(5), 0.02)
    waiting = asyncio.ensure_future(connection.request(RemotingCommand(5), 5))
    await asyncio.sleep(0)
    assert server.arrived.empty()
    connection.resume_writing()
    server.answer((await server.arrived.get()).response())
    await waiting


async def test_a_large_answer_is_received_whole_between_small_ones(
    server: ScriptedServer, connection: RemotingConnection
) -> None:
    bodies = [b"first", bytes(range(250)) * 20_000, b"last"]
    waiting = [asyncio.ensure_future(connection.request(RemotingCommand(5), 5)) for _ in bodies]
    requests = [await server.arrived.get() for _ in bodies]
    server.answer(*(request.response(body=body) for request, body in zip(requests, bodies, strict=True)))
    assert [(await answer).body for answer in waiting] == bodies


async def test_a_large_request_is_sent_whole(server: ScriptedServer, connection: RemotingConnection) -> None:
    body = bytes(range(250)) * 40_000
    waiting = [connection.submit(RemotingCommand(5, body=part), 5) for part in (b"first", body, b"last")]
    requests = [await server.arrived.get() for _ in waiting]
    assert [request.body for request in requests] == [b"first", body, b"last"]
    server.answer(*(request.response() for request in requests))
    await asyncio.gather(*waiting)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remoting_client, "SILENCE_S", 0.0)


@pytest.mark.usefixtures("impatient")
async def test_a_server_that_answers_nothing_in_a_requests_time_is_given_up_with_all_that_waits(
    server: ScriptedServer, connection: RemotingConnection
) -> None:
    patient = connection.submit(RemotingCommand(5), 60)
    with pytest.raises(TimedOut):
        await connection.request(RemotingCommand(5), 0.01)
    with pytest.raises(Unreachable, match=r"answers nothing for 0\.01 s"):
        await patient
    assert not connection.is_open


@pytest.mark.usefixtures("impatient")
async def test_a_server_that_answers_others_is_kept(server: ScriptedServer, connection: RemotingConnection) -> None:
    slow = connection.submit(RemotingCommand(5), 0.1)
    await server.arrived.get()
    quick = connection.submit(RemotingCommand(5), 60)
    server.answer((await server.arrived.get()).response())
    await quick
    with pytest.raises(TimedOut):
        await slow
    assert connection.is_open


@pytest.mark.usefixtures("impatient")
async def test_what_a_silent_server_has_not_read_never_reaches_it(
    server: ScriptedServer, connection: RemotingConnection
) -> None:
    await server.connected.wait()
    writer = server.writers[-1]
    writer.transport.pause_reading()
    with pytest.raises(TimedOut):
        await connection.request(RemotingCommand(5, body=bytes(8 * 1024 * 1024)), 0.01)
    writer.transport.resume_reading()
    with pytest.raises(ConnectionResetError):
        await writer.wait_closed()
