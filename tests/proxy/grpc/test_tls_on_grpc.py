"""TLS on the gRPC port: both kinds of clients on one port, who they are, and a new certificate."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from memory_backend import MemoryBackend
from service_calls import METADATA, message, receive_request

from access_samples import BOB, sample_guard, signed_headers
from certificates import identity_in, needs_openssl
from millstream.model.errors import StartRefused
from millstream.protocol.grpc import messages as m
from millstream.protocol.grpc.service import METHODS
from millstream.proxy.grpc.server import GrpcServer
from millstream.proxy.processor import Processor
from millstream.security.guard import Guard
from millstream.security.policy import PolicyEntry
from millstream.security.tls import ServerIdentity, TlsFiles, TlsMode
from patience import eventually

pytestmark = needs_openssl
CLIENT_ID = (("x-mq-client-id", METADATA["x-mq-client-id"]),)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> TlsFiles:
    return identity_in(tmp_path_factory.mktemp("tls"))[1]


@asynccontextmanager
async def serving(
    processor: Processor, identity: ServerIdentity, mode: TlsMode, guard: Guard | None = None
) -> AsyncIterator[int]:
    server = GrpcServer(processor, "127.0.0.1", 0, tls=(identity, mode), guard=guard)
    try:
        yield await server.start()
    finally:
        await server.close(0)


@asynccontextmanager
async def dialled(port: int, files: TlsFiles | None) -> AsyncIterator[Any]:
    options = [("grpc.use_local_subchannel_pool", 1), ("grpc.max_send_message_length", -1)]
    if files is None:
        channel = grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=options)
    else:
        credentials = grpc.ssl_channel_credentials(files.certificate.read_bytes())
        channel = grpc.aio.secure_channel(f"127.0.0.1:{port}", credentials, options=options)
    async with channel:
        yield channel


async def send(channel: Any, body: bytes = b"hello", metadata: Any = CLIENT_ID) -> int:
    call = METHODS["SendMessage"].stub(channel)
    request = m.SendMessageRequest(messages=[message("orders", body)])
    return int((await call(request, metadata=metadata, timeout=10)).status.code)


async def test_one_port_answers_both_kinds_of_clients(processor: Processor, files: TlsFiles) -> None:
    async with serving(processor, ServerIdentity(files), TlsMode.PERMISSIVE) as port:
        for trusted in (files, None):
            async with dialled(port, trusted) as channel:
                assert await send(channel) == m.OK
                assert await send(channel, bytes(4_000_000)) == m.OK


async def test_where_tls_is_required_plaintext_is_not_answered(processor: Processor, files: TlsFiles) -> None:
    async with serving(processor, ServerIdentity(files), TlsMode.REQUIRED) as port:
        async with dialled(port, files) as channel:
            assert await send(channel) == m.OK
        async with dialled(port, None) as channel:
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await send(channel)
            assert refused.value.code() == grpc.StatusCode.UNAVAILABLE


async def test_the_front_does_not_hide_who_calls(
    processor: Processor, backend: MemoryBackend, files: TlsFiles, tmp_path: Path
) -> None:
    guard = sample_guard(tmp_path)
    guard.book.put_entries("bob", [PolicyEntry.read("Topic:orders", ["Pub"], ["127.0.0.1"], "Allow")])
    signed = (*CLIENT_ID, *signed_headers(BOB).items())
    async with serving(processor, ServerIdentity(files), TlsMode.PERMISSIVE, guard) as port:
        for trusted in (files, None):
            async with dialled(port, trusted) as channel:
                assert await send(channel, metadata=signed) == m.OK
    ports = {stored.born_host.port for stored in backend.log}
    assert {stored.born_host.host for stored in backend.log} == {"127.0.0.1"}
    assert len(ports) == 2


async def test_a_long_poll_through_the_front_ends_with_the_server(processor: Processor, files: TlsFiles) -> None:
    async with serving(processor, ServerIdentity(files), TlsMode.PERMISSIVE) as port, dialled(port, files) as channel:
        call = METHODS["ReceiveMessage"].stub(channel)
        waiting = call(receive_request(long_polling_timeout=m.Duration(seconds=15)), metadata=CLIENT_ID, timeout=20)
        reading = waiting.read()
        await eventually(lambda: len(processor._waiting) == 1)
    with pytest.raises(BaseException):  # noqa: B017, PT011 - cancelled or unavailable, according to who was first
        await reading


@pytest.mark.parametrize("mode", TlsMode)
async def test_a_new_certificate_is_shown_to_new_connections(
    processor: Processor, files: TlsFiles, tmp_path: Path, mode: TlsMode
) -> None:
    used = TlsFiles(tmp_path / "c.pem", tmp_path / "k.pem")
    shutil.copy(files.certificate, used.certificate)
    shutil.copy(files.key, used.key)
    identity = ServerIdentity(used)
    async with serving(processor, identity, mode) as port:
        async with dialled(port, files) as channel:
            assert await send(channel) == m.OK
        _, new = identity_in(tmp_path / "new")
        shutil.copy(new.certificate, used.certificate)
        shutil.copy(new.key, used.key)
        identity.reload()
        async with dialled(port, new) as channel:
            assert await send(channel) == m.OK
        async with dialled(port, files) as channel:
            with pytest.raises(grpc.aio.AioRpcError):
                await send(channel)


async def test_a_port_in_use_is_refused_with_its_number(processor: Processor, files: TlsFiles) -> None:
    async with serving(processor, ServerIdentity(files), TlsMode.PERMISSIVE) as port:
        second = GrpcServer(processor, "127.0.0.1", port, tls=(ServerIdentity(files), TlsMode.PERMISSIVE))
        with pytest.raises(StartRefused) as refused:
            await second.start()
        assert refused.value.name == "PORT_IN_USE"
        await second.close(0)


@pytest.mark.parametrize("mode", TlsMode)
async def test_huge_headers_end_their_own_call_and_no_other(
    processor: Processor, files: TlsFiles, mode: TlsMode
) -> None:
    async with serving(processor, ServerIdentity(files), mode) as port, dialled(port, files) as channel:
        with pytest.raises(grpc.aio.AioRpcError):
            await send(channel, metadata=(*CLIENT_ID, ("authorization", "x" * 200_000)))
        assert await send(channel) == m.OK
