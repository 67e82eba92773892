"""What breaks the rules of gRPC itself: the server answers or closes, says nothing in its log, and serves the next."""

from __future__ import annotations

import asyncio
import gzip
import logging
from collections.abc import AsyncIterator

import grpc.aio
import pytest
from crash.http2 import Http2Connection, grpc_message, request_headers
from dialled import CLIENT_ID, Dialled

from millstream.protocol.grpc import messages as m
from millstream.protocol.grpc.service import METHODS
from millstream.proxy.grpc import calls
from millstream.proxy.grpc.server import GrpcServer
from millstream.proxy.processor import Processor
from patience import PATIENCE_S, within_patience

HEARTBEAT = METHODS["Heartbeat"].path
CLIENT = (b"x-mq-client-id", b"c")
NO_TEXT = b"Z\xd7\x10"


@pytest.fixture
async def address(processor: Processor) -> AsyncIterator[str]:
    server = GrpcServer(processor, "127.0.0.1", 0)
    yield f"127.0.0.1:{await server.start()}"
    await server.close(0)


@pytest.fixture
async def dialled(address: str) -> AsyncIterator[Dialled]:
    client = Dialled(int(address.rpartition(":")[2]))
    yield client
    await client.channel.close()


async def call(address: str, headers: list[tuple[bytes, bytes]], data: bytes = grpc_message(b"")) -> bool:
    """Whether the call had an end."""
    connection = await Http2Connection.open(address)
    connection.begin(1, headers)
    connection.send(1, data, end=True)
    answered = await connection.answered({1}, 10)
    await connection.close()
    return answered


@pytest.mark.parametrize("name", [b":path", b":authority", b"content-type", b"te", b"grpc-timeout", b"x-mq-client-id"])
async def test_headers_that_are_no_text_harm_nobody_else(
    address: str, name: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    headers = dict(request_headers(HEARTBEAT, CLIENT)) | {name: NO_TEXT}
    for _ in range(3):
        assert await call(address, list(headers.items()))
    assert await call(address, request_headers(HEARTBEAT, CLIENT))
    assert caplog.records == []


@pytest.mark.parametrize("name", sorted(METHODS))
async def test_bytes_that_are_no_request_get_a_status_and_no_log_line(
    dialled: Dialled, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    if name == "Telemetry":
        stream = dialled.channel.stream_stream(METHODS[name].path)(metadata=CLIENT_ID)
        await stream.write(b"\x0a\xff\xff")
        await stream.read()
        with pytest.raises(grpc.aio.AioRpcError, match="MS-5010") as refused:
            await stream.read()
        assert refused.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    else:
        answer = await dialled.raw(name, b"\x0a\xff\xff")
        assert answer.status.code == m.BAD_REQUEST
        assert "MS-5010" in answer.status.message
    assert caplog.records == []


async def test_a_call_without_a_request_gets_a_status(dialled: Dialled) -> None:
    stream = dialled.begun("Heartbeat")
    await stream.done_writing()
    assert (await stream.read()).status.code == m.BAD_REQUEST


async def test_a_compressed_request_is_refused_however_small_it_is(address: str, dialled: Dialled) -> None:
    bomb = gzip.compress(bytes(15 << 20))
    headers = request_headers(HEARTBEAT, CLIENT, (b"grpc-encoding", b"gzip"))
    connection = await Http2Connection.open(address)
    connection.begin(1, headers)
    connection.send(1, grpc_message(bomb, flags=1)[:16_000], end=False)
    connection.send(1, grpc_message(bomb, flags=1)[16_000:], end=True)
    assert await connection.answered({1}, 10)
    await connection.close()
    assert (await dialled.send(b"body")).status.code == m.OK


async def test_headers_without_end_are_refused_by_the_transport(dialled: Dialled) -> None:
    much = tuple((f"x-{number}", "x" * 8_000) for number in range(12))
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await dialled.ask("Heartbeat", m.HeartbeatRequest(), much)
    assert refused.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED


@pytest.mark.parametrize(
    "words", [b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"\x16\x03\x01\x02\x00\x01", b"PRI * HTTP/9.9"]
)
async def test_what_is_no_http2_is_closed(address: str, words: bytes) -> None:
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(words + b"\r\n" * 20)
    await within_patience(reader.read())
    writer.close()


async def test_calls_that_break_off_leave_no_task_behind(address: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    assert await call(address, request_headers(HEARTBEAT, CLIENT))
    before = len(asyncio.all_tasks())
    for name in ("SendMessage", "ReceiveMessage", "Telemetry", "Heartbeat"):
        for reset in (True, False):
            connection = await Http2Connection.open(address)
            for stream in range(1, 40, 2):
                connection.begin(stream, request_headers(METHODS[name].path, CLIENT))
                connection.send(stream, grpc_message(b"\x0a\x02\x12", length=500))
            await asyncio.sleep(0.01)
            await connection.close(reset=reset)
    async with asyncio.timeout(PATIENCE_S):
        while len(asyncio.all_tasks()) > before:  # noqa: ASYNC110 - what ends has no event of its own
            await asyncio.sleep(0.01)
    assert caplog.records == []


async def test_a_call_whose_request_has_not_come_counts_towards_the_limit(
    dialled: Dialled, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calls, "MAX_CALLS", 1)
    half = dialled.begun("Heartbeat")
    async with asyncio.timeout(PATIENCE_S):
        await asyncio.sleep(0.01)
        while (await dialled.send(b"body")).status.code != m.TOO_MANY_REQUESTS:
            # It came while the send was there, and was refused itself, or it has not come yet.
            half.cancel()
            half = dialled.begun("Heartbeat")
            await asyncio.sleep(0.01)
    half.cancel()
    async with asyncio.timeout(PATIENCE_S):
        while (await dialled.send(b"body")).status.code != m.OK:  # noqa: ASYNC110 - as above
            await asyncio.sleep(0.01)


async def test_calls_over_the_limit_are_told_so(
    dialled: Dialled, processor: Processor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calls, "MAX_CALLS", 1)
    stream = dialled.telemetry()
    await stream.write(m.TelemetryCommand(settings=m.Settings(publishing=m.Publishing())))
    await stream.read()
    assert (await dialled.send(b"body")).status.code == m.TOO_MANY_REQUESTS
    second = dialled.telemetry()
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await second.read()
    assert refused.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
    stream.cancel()
    async with asyncio.timeout(PATIENCE_S):
        while (await dialled.send(b"body")).status.code != m.OK:  # noqa: ASYNC110 - as above
            await asyncio.sleep(0.01)
