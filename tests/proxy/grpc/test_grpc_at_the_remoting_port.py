"""gRPC clients that come to a proxy's remoting port are served there as at the gRPC port."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import grpc
import pytest
from memory_backend import MemoryBackend
from test_tls_on_grpc import dialled, send

from certificates import identity_in, needs_openssl, trusting
from millstream.model.message import Address
from millstream.protocol.grpc import messages as m
from millstream.protocol.remoting.command import RemotingCommand
from millstream.proxy.grpc.server import GrpcServer
from millstream.proxy.processor import Processor
from millstream.security.tls import ServerIdentity, TlsFiles, TlsMode
from millstream.transport.remoting_client import RemotingConnection
from millstream.transport.remoting_server import RemotingServer


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> TlsFiles:
    return identity_in(tmp_path_factory.mktemp("tls"))[1]


@asynccontextmanager
async def serving(
    processor: Processor, tls: tuple[ServerIdentity, TlsMode] | None = None
) -> AsyncIterator[tuple[int, int]]:
    """The gRPC port and the remoting port."""
    server = GrpcServer(processor, "127.0.0.1", 0, tls=tls, carries=True)
    remoting = RemotingServer({1: lambda command, _: command.response(body=command.body)})
    remoting.tls, remoting.carry = tls, server.carry
    try:
        yield await server.start(), await remoting.start()
    finally:
        await server.close(0)
        await remoting.close()


async def echoed(port: int, files: TlsFiles | None) -> bytes:
    tls = None if files is None else trusting(files)
    connection = await RemotingConnection.open(Address("127.0.0.1", port), tls=tls)
    try:
        return (await connection.request(RemotingCommand(1, {}, b"hello"), 10)).body
    finally:
        await connection.close()


async def test_one_port_answers_clients_of_both_protocols(processor: Processor, backend: MemoryBackend) -> None:
    async with serving(processor) as ports:
        for port in ports:
            async with dialled(port, None) as channel:
                assert await send(channel) == m.OK
                assert await send(channel, bytes(3_000_000)) == m.OK
        assert await echoed(ports[1], None) == b"hello"
    hosts = [stored.born_host for stored in backend.log]
    assert {host.host for host in hosts} == {"127.0.0.1"}
    assert len({host.port for host in hosts}) == 2


@needs_openssl
@pytest.mark.parametrize("mode", TlsMode)
async def test_one_port_answers_clients_of_both_protocols_over_tls(
    processor: Processor, files: TlsFiles, mode: TlsMode
) -> None:
    async with serving(processor, (ServerIdentity(files), mode)) as ports:
        for port in ports:
            async with dialled(port, files) as channel:
                assert await send(channel) == m.OK
        assert await echoed(ports[1], files) == b"hello"
        async with dialled(ports[1], None) as channel:
            if mode is TlsMode.PERMISSIVE:
                assert await send(channel) == m.OK
                return
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await send(channel)
            assert refused.value.code() == grpc.StatusCode.UNAVAILABLE


async def test_before_the_grpc_port_is_open_its_clients_are_turned_away(processor: Processor) -> None:
    server = GrpcServer(processor, "127.0.0.1", 0, carries=True)
    remoting = RemotingServer({})
    remoting.carry = server.carry
    port = await remoting.start()
    try:
        async with dialled(port, None) as channel:
            with pytest.raises(grpc.aio.AioRpcError):
                await send(channel)
    finally:
        await remoting.close()
