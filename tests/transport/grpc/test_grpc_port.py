"""The gRPC port over sockets, with gRPC's own client and others."""

from __future__ import annotations

import asyncio
import logging
import shutil
import socket
import ssl
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from crash.http2 import Http2Connection, request_headers
from echo_service import EchoService, grpc_message, serving

from certificates import identity_in, needs_openssl
from millstream.protocol.http2.connection import Http2Limits
from millstream.security.tls import ServerIdentity, TlsFiles, TlsMode
from millstream.transport.connection_memory import ConnectionMemory
from millstream.transport.freed_memory import FreedMemory
from millstream.transport.grpc.connection import MAX_REQUEST_BYTES
from patience import eventually, within_patience

MIB = 1024 * 1024
LARGE = [("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1)]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> TlsFiles:
    return identity_in(tmp_path_factory.mktemp("tls"))[1]


@asynccontextmanager
async def dialled(port: int, *options: tuple[str, Any], files: TlsFiles | None = None) -> AsyncIterator[Any]:
    """A channel of gRPC's client that shares no connection."""
    all_options = [("grpc.use_local_subchannel_pool", 1), *LARGE, *options]
    if files is None:
        channel = grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=all_options)
    else:
        credentials = grpc.ssl_channel_credentials(files.certificate.read_bytes())
        channel = grpc.aio.secure_channel(f"127.0.0.1:{port}", credentials, options=all_options)
    async with channel:
        yield channel


def unary(channel: Any, name: str = "Unary") -> Any:
    return channel.unary_unary(f"/t.Echo/{name}")


class TestCalls:
    async def test_unary_calls_of_all_sizes_are_answered(self) -> None:
        async with serving() as (_, service, port), dialled(port) as channel:
            for size in (0, 1, 16_384, 70_000, 4 * MIB, MAX_REQUEST_BYTES):
                body = bytes(range(256)) * (size // 256) + bytes(size % 256)
                assert await within_patience(unary(channel)(body)) == body
            assert len(service.took) == 6

    async def test_a_request_over_the_limit_is_refused_and_the_connection_goes_on(self) -> None:
        async with serving() as (_, _, port), dialled(port) as channel:
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await within_patience(unary(channel)(bytes(MAX_REQUEST_BYTES + 1)))
            assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
            assert await within_patience(unary(channel)(b"hello")) == b"hello"

    async def test_many_calls_at_once_are_all_answered(self) -> None:
        async with serving() as (_, _, port), dialled(port) as channel:
            bodies = [str(number).encode() * (number % 50) for number in range(2000)]
            assert await within_patience(asyncio.gather(*map(unary(channel), bodies))) == bodies

    async def test_a_stream_of_answers_comes_whole_and_in_order(self) -> None:
        async with serving() as (_, _, port), dialled(port) as channel:
            call = channel.unary_stream("/t.Echo/Download")(b"300 30000")
            numbers = [int.from_bytes(message[:4], "big") async for message in call]
            assert numbers == list(range(300))

    async def test_a_chat_answers_each_message(self) -> None:
        async with serving() as (_, _, port), dialled(port) as channel:
            chat = channel.stream_stream("/t.Echo/Chat")()
            for size in (0, 1, 70_000, 2 * MIB, 5):
                await chat.write(bytes(size))
                assert await within_patience(chat.read()) == bytes(size)
            await chat.done_writing()
            assert await within_patience(chat.read()) is grpc.aio.EOF
            assert await chat.code() is grpc.StatusCode.OK

    async def test_a_call_that_is_given_up_is_told_and_a_deadline_ends_it(self) -> None:
        async with serving() as (port_, service, port), dialled(port) as channel:
            call = unary(channel, "Wait")(b"x")
            await eventually(lambda: service.waiting)
            call.cancel()
            await eventually(lambda: len(service.gone) == 1)
            with pytest.raises(grpc.aio.AioRpcError) as late:
                await unary(channel, "Wait")(b"x", timeout=0.3)
            assert late.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
            await eventually(lambda: len(service.gone) == 2)
            assert port_.calls == 0

    async def test_a_method_that_is_not_there_is_unimplemented(self) -> None:
        async with serving() as (_, _, port), dialled(port) as channel:
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await unary(channel, "Nothing")(b"x")
            assert refused.value.code() is grpc.StatusCode.UNIMPLEMENTED

    async def test_a_compressed_request_is_taken(self) -> None:
        async with serving() as (_, _, port), dialled(port) as channel:
            body = b"hello" * 100_000
            assert await unary(channel)(body, compression=grpc.Compression.Gzip) == body

    @pytest.mark.skipif(not socket.has_ipv6, reason="no IPv6 here")
    async def test_a_client_of_ipv6_is_named_with_brackets(self) -> None:
        async with serving(host="::1") as (_, service, port), grpc.aio.insecure_channel(f"[::1]:{port}") as channel:
            waits = asyncio.ensure_future(unary(channel, "Wait")(b"x"))
            await eventually(lambda: service.waiting)
            assert service.waiting[0].peer.startswith("[::1]:")
            service.release()
            assert await within_patience(waits) == b"released"


class TestSlowReaders:
    async def test_a_client_that_does_not_read_holds_little_and_others_are_served(self) -> None:
        memory = ConnectionMemory(freed=FreedMemory(trim=lambda: None, collect=lambda: None))
        async with serving(memory=memory) as (port_, service, port):
            lazy = await Http2Connection.open(f"127.0.0.1:{port}", reads=False)
            lazy.begin(1, request_headers("/t.Echo/Download", timeout=b"100S"))
            lazy.send(1, grpc_message(b"1000 100000"), end=True)
            # A window for all of it: only the socket stands still.
            for stream in (0, 1):
                lazy.write(b"\x00\x00\x04\x08\x00" + stream.to_bytes(4, "big") + (2**30).to_bytes(4, "big"))
            await eventually(lambda: memory.answers.used_bytes > 3 * MIB)
            async with dialled(port) as channel:
                for _ in range(20):
                    assert await within_patience(unary(channel)(bytes(100_000))) == bytes(100_000)
            assert memory.used_bytes < 8 * MIB
            assert service.written < 300
            await lazy.close(reset=True)
            await eventually(lambda: (port_.calls, memory.used_bytes, service.tasks) == (0, 0, {}))
            assert len(service.gone) == 1


class TestClose:
    async def test_calls_under_way_are_answered_and_new_ones_go_elsewhere(self) -> None:
        async with serving() as (port_, service, port):
            raw = await Http2Connection.open(f"127.0.0.1:{port}")
            async with dialled(port) as channel:
                waits = asyncio.ensure_future(unary(channel, "Wait")(b"x"))
                await eventually(lambda: service.waiting)
                closing = asyncio.create_task(port_.close(60))
                connections = list(port_._connections)
                await eventually(lambda: all(one.core._refuses_above is not None for one in connections))
                raw.begin(1, request_headers("/t.Echo/Unary"), end=True)
                assert await within_patience(raw.answered({1}, 60))
                assert raw.resets == 1
                assert not closing.done()
                service.release()
                assert await within_patience(waits) == b"released"
                await within_patience(closing)
            await raw.close()

    async def test_a_client_goes_on_at_another_port_while_its_first_one_closes(self) -> None:
        """gRPC's client sends what was refused again by itself."""
        async with serving() as (first, first_service, first_port), serving() as (_, second_service, second_port):
            addresses = f"ipv4:127.0.0.1:{first_port},127.0.0.1:{second_port}"
            options = [("grpc.use_local_subchannel_pool", 1), ("grpc.lb_policy_name", "round_robin")]
            async with grpc.aio.insecure_channel(addresses, options=options) as channel:
                await eventually_both(channel, first_service, second_service)
                closing = asyncio.create_task(first.close(5))
                for number in range(300):
                    body = str(number).encode()
                    assert await within_patience(unary(channel)(body)) == body
                await closing

    async def test_a_close_without_calls_does_not_wait(self) -> None:
        async with serving() as (port_, _, port), dialled(port) as channel:
            assert await unary(channel)(b"x") == b"x"
            await within_patience(port_.close(3600))
            assert port_.connections == 0


async def eventually_both(channel: Any, *services: EchoService) -> None:
    """Call until each service was asked."""
    while not all(service.took for service in services):
        await within_patience(unary(channel)(b"x"))
        await asyncio.sleep(0.01)


async def test_one_more_stream_than_the_limit_waits_at_an_honest_client() -> None:
    limits = Http2Limits(max_streams=2)
    async with serving(limits=limits) as (_, service, port), dialled(port) as channel:
        calls = [asyncio.ensure_future(unary(channel, "Wait")(b"x")) for _ in range(5)]
        while not all(call.done() for call in calls):
            assert len(service.waiting) <= 2
            service.release()
            await asyncio.sleep(0.01)
        assert await asyncio.gather(*calls) == [b"released"] * 5


async def test_a_violation_is_one_line_of_the_log_and_closes(caplog: pytest.LogCaptureFixture) -> None:
    async with serving() as (port_, _, port):
        with caplog.at_level(logging.INFO):
            for _ in range(10):
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\x00\x00\x00\x06\x00\x00\x00\x00\x00")
                await within_patience(reader.read())
                writer.close()
        assert len(caplog.records) <= 3
        assert "[PROTOCOL_ERROR]" in caplog.records[0].getMessage()
        await eventually(lambda: port_.connections == 0)


@needs_openssl
class TestTls:
    async def test_grpc_over_tls_is_answered_with_large_bodies_too(self, files: TlsFiles) -> None:
        tls = (ServerIdentity(files), TlsMode.REQUIRED)
        async with serving(tls=tls) as (_, _, port), dialled(port, files=files) as channel:
            assert await within_patience(unary(channel)(bytes(4 * MIB))) == bytes(4 * MIB)

    @pytest.mark.parametrize(("offered", "agreed"), [(["h2"], "h2"), (["http/1.1", "h2"], "h2"), ([], None)])
    async def test_http2_is_agreed_on_where_it_is_offered_and_spoken_in_any_case(
        self, files: TlsFiles, offered: list[str], agreed: str | None
    ) -> None:
        context = ssl.create_default_context(cafile=files.certificate)
        if offered:
            context.set_alpn_protocols(offered)
        async with serving(tls=(ServerIdentity(files), TlsMode.PERMISSIVE)) as (_, _, port):
            reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
            assert writer.get_extra_info("ssl_object").selected_alpn_protocol() == agreed
            client = Http2Connection(reader, writer)
            client.begin(1, request_headers("/t.Echo/Unary"))
            client.send(1, grpc_message(b"x"), end=True)
            assert await client.answered({1}, 60)
            await client.close()

    async def test_openssl_agrees_on_http2(self, files: TlsFiles) -> None:
        async with serving(tls=(ServerIdentity(files), TlsMode.PERMISSIVE)) as (_, _, port):
            command = [shutil.which("openssl") or "", "s_client", "-alpn", "h2", "-connect", f"127.0.0.1:{port}"]
            done = await asyncio.to_thread(
                subprocess.run, command, input=b"", capture_output=True, timeout=60, check=False
            )
            assert b"ALPN protocol: h2" in done.stdout

    async def test_a_new_certificate_is_shown_to_new_connections_and_old_ones_go_on(self, tmp_path: Path) -> None:
        (tmp_path / "new").mkdir()
        (tmp_path / "old").mkdir()
        identity, old = identity_in(tmp_path / "old")
        _, new = identity_in(tmp_path / "new")
        old_text = old.certificate.read_bytes()
        async with serving(tls=(identity, TlsMode.REQUIRED)) as (_, _, port), dialled(port, files=old) as channel:
            assert await within_patience(unary(channel)(b"x")) == b"x"
            shutil.copy(new.certificate, old.certificate)
            shutil.copy(new.key, old.key)
            identity.reload()
            assert await within_patience(unary(channel)(b"x")) == b"x"
            async with dialled(port, files=new) as later:
                assert await within_patience(unary(later)(b"x")) == b"x"
        assert old_text != new.certificate.read_bytes()
