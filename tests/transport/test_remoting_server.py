from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
import pytest_asyncio

from millstream.model.clock import ManualClock
from millstream.model.errors import NameRefused, StartRefused
from millstream.protocol.remoting.codes import ResponseCode
from millstream.protocol.remoting.command import FLAG_ONEWAY, HeaderType, RemotingCommand
from millstream.protocol.remoting.frame import MAX_HEADER_BYTES, FrameDecoder, encode_frame
from millstream.transport import remoting_connection, remoting_server
from millstream.transport.remoting_connection import Connection
from millstream.transport.remoting_server import RemotingServer
from patience import within_patience

ECHO, WAIT, REFUSE, FAIL, UNENCODABLE, LATE_FAIL, NOTHING = range(1, 8)


class Desk:
    """Handlers for the tests. Requests of code WAIT are answered when `release` is set."""

    def __init__(self) -> None:
        self.release = asyncio.Event()
        self.cancelled = 0
        self.cancellation = asyncio.Event()
        self.seen: list[int] = []
        self.handlers = {
            ECHO: self.echo,
            WAIT: self.wait,
            REFUSE: self.refuse,
            FAIL: self.fail,
            UNENCODABLE: self.unencodable,
            LATE_FAIL: self.late_fail,
            NOTHING: self.nothing,
        }

    def echo(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        self.seen.append(command.opaque)
        return command.response(ext=dict(command.ext), body=command.body)

    def wait(self, command: RemotingCommand, connection: Connection) -> Awaitable[RemotingCommand]:
        async def answer() -> RemotingCommand:
            try:
                await self.release.wait()
            except asyncio.CancelledError:
                self.cancelled += 1
                self.cancellation.set()
                raise
            return command.response()

        return answer()

    def refuse(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        raise NameRefused("TOPIC_NOT_FOUND", "The topic 'a' does not exist.")

    def fail(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        raise RuntimeError("broken inside")

    async def late_fail(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        await asyncio.sleep(0)
        raise RuntimeError("broken inside")

    def unencodable(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        return command.response(ext={"a": "\ud800"})

    def nothing(self, command: RemotingCommand, connection: Connection) -> None:
        return None


class Peer:
    """A raw connection that reads whole frames."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self._decoder = FrameDecoder(max_header_bytes=1 << 22)
        self._read: list[RemotingCommand] = []

    async def send(self, *commands: RemotingCommand) -> None:
        self.writer.write(b"".join(b"".join(encode_frame(command)) for command in commands))
        await self.writer.drain()

    async def receive(self, count: int = 1) -> list[RemotingCommand]:
        while len(self._read) < count:
            data = await within_patience(self.reader.read(1 << 16))
            assert data, "the server closed the connection"
            self._read += self._decoder.feed(data)
        received, self._read = self._read[:count], self._read[count:]
        return received

    async def is_closed_by_server(self) -> bool:
        try:
            return await within_patience(self.reader.read(1)) == b""
        except ConnectionError:
            return True


@pytest_asyncio.fixture
async def desk() -> Desk:
    return Desk()


@pytest_asyncio.fixture
async def server(desk: Desk) -> AsyncIterator[tuple[RemotingServer, int]]:
    running = RemotingServer(desk.handlers)
    port = await running.start()
    yield running, port
    await running.close()


@pytest_asyncio.fixture
async def peer(server: tuple[RemotingServer, int]) -> AsyncIterator[Peer]:
    connected = Peer(*await asyncio.open_connection("127.0.0.1", server[1]))
    yield connected
    connected.writer.close()


@pytest.mark.parametrize("kind", list(HeaderType))
async def test_an_answer_has_the_opaque_and_header_type_of_its_request(peer: Peer, kind: HeaderType) -> None:
    await peer.send(RemotingCommand(ECHO, {"a": "b"}, b"body", opaque=-7, header_type=kind))
    [answer] = await peer.receive()
    assert (answer.code, answer.ext, answer.body, answer.opaque) == (0, {"a": "b"}, b"body", -7)
    assert (answer.header_type, answer.is_response) == (kind, True)


@pytest.mark.parametrize("kind", list(HeaderType))
@pytest.mark.parametrize("body", [b"", b"x" * 100_000])
async def test_a_header_of_any_length_that_fits_a_frame_gets_an_answer(
    peer: Peer, kind: HeaderType, body: bytes
) -> None:
    taken = RemotingCommand(ECHO, {"a": "x" * 100_000}, body, opaque=1, header_type=kind)
    refused = RemotingCommand(ECHO, {"a": "x" * (MAX_HEADER_BYTES + 1)}, body, opaque=-2, header_type=kind)
    await peer.send(taken, refused, RemotingCommand(ECHO, body=b"next", opaque=3, header_type=kind))
    answers = {answer.opaque: answer for answer in await peer.receive(3)}
    assert (answers[1].code, answers[1].ext) == (0, taken.ext)
    assert answers[-2].code == ResponseCode.MESSAGE_ILLEGAL
    assert "[MS-3240]" in str(answers[-2].remark)
    assert (answers[-2].header_type, answers[3].body) == (kind, b"next")


async def test_a_oneway_request_whose_header_is_too_long_is_passed_over(peer: Peer) -> None:
    long = {"a": "x" * (MAX_HEADER_BYTES + 1)}
    await peer.send(RemotingCommand(ECHO, long, opaque=1, flag=FLAG_ONEWAY), RemotingCommand(ECHO, opaque=2))
    assert [answer.opaque for answer in await peer.receive()] == [2]


async def test_a_frame_may_arrive_byte_by_byte(peer: Peer) -> None:
    for byte in b"".join(encode_frame(RemotingCommand(ECHO, body=b"slow", opaque=3))):
        peer.writer.write(bytes([byte]))
        await peer.writer.drain()
        await asyncio.sleep(0)
    [answer] = await peer.receive()
    assert (answer.body, answer.opaque) == (b"slow", 3)


async def test_pipelined_requests_are_handled_in_order_and_answered_all(peer: Peer, desk: Desk) -> None:
    await peer.send(*(RemotingCommand(ECHO, opaque=number) for number in range(500)))
    answers = await peer.receive(500)
    assert desk.seen == list(range(500))
    assert [answer.opaque for answer in answers] == list(range(500))


async def test_a_request_that_waits_does_not_hold_up_those_behind_it(peer: Peer, desk: Desk) -> None:
    await peer.send(RemotingCommand(WAIT, opaque=1), RemotingCommand(ECHO, opaque=2))
    [first] = await peer.receive()
    desk.release.set()
    [second] = await peer.receive()
    assert (first.opaque, second.opaque) == (2, 1)


async def test_requests_are_counted_by_code_until_they_are_answered_or_cut_off(
    server: tuple[RemotingServer, int], peer: Peer, desk: Desk
) -> None:
    running, port = server
    gone = Peer(*await asyncio.open_connection("127.0.0.1", port))
    await gone.send(RemotingCommand(WAIT), RemotingCommand(ECHO, opaque=1))
    await gone.receive()
    await peer.send(RemotingCommand(WAIT), RemotingCommand(WAIT), RemotingCommand(ECHO, opaque=1))
    await peer.receive()
    assert running.unanswered == {WAIT: 3}
    gone.writer.close()
    await desk.cancellation.wait()
    await asyncio.sleep(0)
    assert running.unanswered == {WAIT: 2}
    desk.release.set()
    await peer.receive(2)
    assert running.unanswered.total() == 0


async def test_answers_of_one_turn_leave_in_one_write(desk: Desk) -> None:
    class Transport(asyncio.Transport):
        def __init__(self) -> None:
            super().__init__()
            self.writes: list[bytes] = []

        def write(self, data: bytes | bytearray | memoryview) -> None:
            self.writes.append(bytes(data))

        def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
            pass

        def is_closing(self) -> bool:
            return False

    transport = Transport()
    connection = Connection(RemotingServer(desk.handlers), ManualClock())
    connection.connection_made(transport)
    requests = [RemotingCommand(ECHO, opaque=1), RemotingCommand(WAIT), RemotingCommand(WAIT), RemotingCommand(ECHO)]
    stream = b"".join(b"".join(encode_frame(request)) for request in requests)
    connection.get_buffer(-1)[: len(stream)] = stream
    connection.buffer_updated(len(stream))
    assert len(transport.writes) == 1
    desk.release.set()
    await asyncio.gather(*connection.waiting)
    for _ in range(3):
        await asyncio.sleep(0)
    assert [len(list(FrameDecoder().feed(written))) for written in transport.writes] == [2, 2]


async def test_an_unknown_code_is_answered_as_not_supported(peer: Peer) -> None:
    await peer.send(RemotingCommand(9999))
    [answer] = await peer.receive()
    assert answer.code == 3
    assert "9999" in str(answer.remark)


async def test_answered_requests_are_counted_by_code_and_those_that_no_handler_gets_are_not(
    peer: Peer, server: tuple[RemotingServer, int], desk: Desk
) -> None:
    desk.release.set()
    for code in (ECHO, WAIT, REFUSE, REFUSE, 9999):
        await peer.send(RemotingCommand(code, opaque=code))
        await peer.receive()
    counted = {key: sum(histogram.counts) for key, histogram in server[0].latency.rows()}
    assert counted == {(ECHO, 0): 1, (WAIT, 0): 1, (REFUSE, 17): 2}


async def test_a_refusal_becomes_its_code_and_its_words(peer: Peer) -> None:
    await peer.send(RemotingCommand(REFUSE))
    [answer] = await peer.receive()
    assert answer.code == 17
    assert str(answer.remark).startswith("The topic 'a' does not exist.")
    assert str(answer.remark).endswith("[MS-2101]")


@pytest.mark.parametrize("code", [FAIL, LATE_FAIL])
async def test_a_failure_is_answered_and_logged_and_the_connection_stays(
    peer: Peer, caplog: pytest.LogCaptureFixture, code: int
) -> None:
    await peer.send(RemotingCommand(code, opaque=1), RemotingCommand(ECHO, opaque=2))
    answers = {answer.opaque: answer for answer in await peer.receive(2)}
    assert answers[1].code == 1
    assert "broken inside" not in str(answers[1].remark)
    assert answers[2].code == 0
    assert any(record.exc_info for record in caplog.records)


@pytest.mark.parametrize("kind", list(HeaderType))
async def test_an_answer_that_cannot_be_encoded_is_an_error_answer(peer: Peer, kind: HeaderType) -> None:
    await peer.send(RemotingCommand(UNENCODABLE, opaque=4, header_type=kind))
    [answer] = await peer.receive()
    assert (answer.code, answer.opaque) == (1, 4)


async def test_a_oneway_request_is_handled_and_never_answered(peer: Peer, desk: Desk) -> None:
    oneways = [RemotingCommand(code, flag=FLAG_ONEWAY, opaque=50) for code in (ECHO, REFUSE, FAIL, 9999)]
    await peer.send(*oneways, RemotingCommand(NOTHING, opaque=51), RemotingCommand(ECHO, opaque=52))
    [answer] = await peer.receive()
    assert answer.opaque == 52
    assert desk.seen == [50, 52]


async def test_a_response_that_nobody_asked_for_is_passed_over(peer: Peer) -> None:
    await peer.send(RemotingCommand(ECHO).response(), RemotingCommand(ECHO, opaque=2))
    [answer] = await peer.receive()
    assert answer.opaque == 2


@pytest.mark.parametrize(
    "garbage", [b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"\x7f\xff\xff\xff\x00\x00\x00\x10", b"\0\0\0\x08\0\0\0\x04nope"]
)
async def test_bytes_of_another_protocol_close_the_connection_and_are_logged(
    peer: Peer, garbage: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    peer.writer.write(garbage)
    assert await peer.is_closed_by_server()
    assert "127.0.0.1" in caplog.text
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


async def test_requests_of_a_connection_that_is_gone_are_cancelled(
    server: tuple[RemotingServer, int], peer: Peer, desk: Desk
) -> None:
    await peer.send(RemotingCommand(WAIT), RemotingCommand(WAIT), RemotingCommand(ECHO))
    await peer.receive()
    peer.writer.close()
    await peer.writer.wait_closed()
    while desk.cancelled < 2:
        await desk.cancellation.wait()
        desk.cancellation.clear()
    assert server[0].connections == 0


async def test_an_idle_connection_is_closed_unless_a_request_waits(desk: Desk) -> None:
    clock = ManualClock()
    server = RemotingServer(desk.handlers, clock=clock)
    port = await server.start()
    idle = Peer(*await asyncio.open_connection("127.0.0.1", port))
    waiting = Peer(*await asyncio.open_connection("127.0.0.1", port))
    await idle.send(RemotingCommand(ECHO))
    await waiting.send(RemotingCommand(WAIT, opaque=1), RemotingCommand(ECHO))
    await idle.receive()
    await waiting.receive()
    clock.advance_ms(int(remoting_server.IDLE_LIMIT_S * 1000))
    server.close_idle()
    assert server.connections == 2
    clock.advance_ms(1)
    server.close_idle()
    assert await idle.is_closed_by_server()
    desk.release.set()
    assert [answer.opaque for answer in await waiting.receive()] == [1]
    waiting.writer.close()
    await server.close()


async def test_a_server_that_is_not_ready_cuts_connections_off_instead_of_refusing_requests(desk: Desk) -> None:
    server = RemotingServer(desk.handlers)
    server.admits = False
    port = await server.start()
    early = Peer(*await asyncio.open_connection("127.0.0.1", port))
    assert await early.is_closed_by_server()
    server.admits = True
    peer = Peer(*await asyncio.open_connection("127.0.0.1", port))
    await peer.send(RemotingCommand(ECHO))
    await peer.receive()
    for one in (early, peer):
        one.writer.close()
    await server.close()


async def test_over_the_limit_of_connections_the_next_one_is_closed(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remoting_server, "MAX_CONNECTIONS", 1)
    server = RemotingServer(desk.handlers)
    port = await server.start()
    first = Peer(*await asyncio.open_connection("127.0.0.1", port))
    await first.send(RemotingCommand(ECHO))
    await first.receive()
    second = Peer(*await asyncio.open_connection("127.0.0.1", port))
    assert await second.is_closed_by_server()
    await first.send(RemotingCommand(ECHO))
    await first.receive()
    for peer in (first, second):
        peer.writer.close()
    await server.close()


async def test_too_many_requests_in_flight_stop_the_reading_until_some_are_answered(
    peer: Peer, desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remoting_connection, "MAX_IN_FLIGHT", 4)
    await peer.send(RemotingCommand(ECHO, opaque=1), *[RemotingCommand(WAIT)] * 4)
    await peer.receive()
    await peer.send(RemotingCommand(ECHO, opaque=2))
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(peer.reader.read(1), 0.1)
    desk.release.set()
    answers = await peer.receive(5)
    assert sorted(answer.opaque for answer in answers) == [0, 0, 0, 0, 2]


async def test_a_peer_that_does_not_read_is_not_read_from_either(
    peer: Peer, desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remoting_connection, "WRITE_HIGH_WATER_BYTES", 64 * 1024)
    body = bytes(1024 * 1024)
    requests = [RemotingCommand(ECHO, body=body) for _ in range(64)]
    sending = asyncio.ensure_future(peer.send(*requests))
    seen = -1
    while seen != len(desk.seen):
        seen = len(desk.seen)
        await asyncio.sleep(0.1)
    assert seen < 64
    answers = await peer.receive(64)
    await sending
    assert len(answers) == 64


async def test_closing_lets_requests_under_way_end_and_cuts_off_long_ones(desk: Desk) -> None:
    server = RemotingServer(desk.handlers)
    peer = Peer(*await asyncio.open_connection("127.0.0.1", await server.start()))
    await peer.send(RemotingCommand(WAIT, opaque=1), RemotingCommand(ECHO))
    await peer.receive()
    closing = asyncio.ensure_future(server.close())
    await asyncio.sleep(0)
    desk.release.set()
    assert [answer.opaque for answer in await peer.receive()] == [1]
    await closing
    assert await peer.is_closed_by_server()
    peer.writer.close()


async def test_closing_cuts_off_what_does_not_end(desk: Desk) -> None:
    server = RemotingServer(desk.handlers)
    peer = Peer(*await asyncio.open_connection("127.0.0.1", await server.start()))
    await peer.send(RemotingCommand(WAIT), RemotingCommand(ECHO))
    await peer.receive()
    await server.close()
    assert desk.cancelled == 1
    assert await peer.is_closed_by_server()
    peer.writer.close()


async def test_a_port_in_use_is_refused_with_port_and_process(server: tuple[RemotingServer, int]) -> None:
    with pytest.raises(StartRefused) as refused:
        await RemotingServer({}, port=server[1]).start()
    assert refused.value.name == "PORT_IN_USE"
    assert str(server[1]) in refused.value.message


@pytest.mark.parametrize("host", ["192.0.2.1", "no-such-host.invalid"])
async def test_a_host_that_is_not_local_is_refused(host: str) -> None:
    with pytest.raises(StartRefused) as refused:
        await RemotingServer({}, host).start()
    assert refused.value.name == "ADDRESS_NOT_LOCAL"
    assert host in refused.value.message


async def test_ipv6_peers_are_named_by_their_address(desk: Desk) -> None:
    if not socket.has_ipv6:
        pytest.skip("no IPv6")
    peers = []
    desk.handlers[ECHO] = lambda command, connection: peers.append(connection.peer) or command.response()
    server = RemotingServer(desk.handlers, "::1")
    try:
        port = await server.start()
    except StartRefused:
        pytest.skip("no IPv6 loopback")
    peer = Peer(*await asyncio.open_connection("::1", port))
    await peer.send(RemotingCommand(ECHO))
    await peer.receive()
    assert peers[0].host == "::1"
    peer.writer.close()
    await server.close()


async def test_large_requests_and_answers_among_small_ones_arrive_whole_and_in_order(peer: Peer) -> None:
    bodies = [bytes([number]) * size for number, size in enumerate([10, 3_000_000, 0, 65_536, 70_000, 1_000_000, 5])]
    sending = asyncio.ensure_future(peer.send(*(RemotingCommand(ECHO, body=body) for body in bodies)))
    assert [answer.body for answer in await peer.receive(len(bodies))] == bodies
    await sending


async def test_connections_that_send_by_turns_do_not_mix_their_bytes(server: tuple[RemotingServer, int]) -> None:
    peers = [Peer(*await asyncio.open_connection("127.0.0.1", server[1])) for _ in range(3)]
    bodies = [bytes([number]) * 300_000 for number in range(3)]
    frames = [b"".join(encode_frame(RemotingCommand(ECHO, body=body))) for body in bodies]
    for start in range(0, len(frames[0]), 50_000):
        for one, frame in zip(peers, frames, strict=True):
            one.writer.write(frame[start : start + 50_000])
            await one.writer.drain()
            await asyncio.sleep(0)
    assert [(await one.receive())[0].body for one in peers] == bodies
    for one in peers:
        one.writer.close()


async def test_a_peer_that_leaves_within_a_large_request_leaves_nothing_behind(
    server: tuple[RemotingServer, int], peer: Peer
) -> None:
    leaving = Peer(*await asyncio.open_connection("127.0.0.1", server[1]))
    leaving.writer.write(b"".join(encode_frame(RemotingCommand(ECHO, body=bytes(1_000_000))))[:600_000])
    await leaving.writer.drain()
    leaving.writer.transport.abort()
    await peer.send(RemotingCommand(ECHO, body=b"here"))
    assert [answer.body for answer in await peer.receive()] == [b"here"]
    assert await _settles(lambda: server[0].connections == 1)


async def _settles(is_so: Callable[[], bool]) -> bool:
    """Whether it becomes so within some turns of the loop."""
    for _ in range(10_000):
        if is_so():
            return True
        await asyncio.sleep(0)
    return False
