"""TLS on the ports of remoting: both kinds of clients on one port, or TLS alone."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from certificates import identity_in, needs_openssl, trusting
from millstream.client.blocking import BlockingConnection
from millstream.model.errors import StartRefused, Unreachable
from millstream.model.message import Address
from millstream.protocol.remoting.command import RemotingCommand
from millstream.security.tls import ServerIdentity, TlsFiles, TlsMode, client_context
from millstream.transport.remoting_client import RemotingConnection
from millstream.transport.remoting_connection import Connection
from millstream.transport.remoting_server import RemotingServer

pytestmark = needs_openssl


def echo(command: RemotingCommand, connection: Connection) -> RemotingCommand:
    return command.response(ext={"peer": connection.peer.host}, body=command.body)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> TlsFiles:
    return identity_in(tmp_path_factory.mktemp("tls"))[1]


@asynccontextmanager
async def serving(files: TlsFiles, mode: TlsMode, host: str = "127.0.0.1") -> AsyncIterator[tuple[int, ServerIdentity]]:
    identity = ServerIdentity(files)
    server = RemotingServer({1: echo}, host)
    server.tls = identity, mode
    try:
        yield await server.start(), identity
    finally:
        await server.close()


async def ask(port: int, body: bytes = b"hello", tls: ssl.SSLContext | None = None) -> RemotingCommand:
    connection = await RemotingConnection.open(Address("127.0.0.1", port), tls=tls)
    try:
        return await connection.request(RemotingCommand(1, {}, body), 10)
    finally:
        await connection.close()


@pytest.mark.parametrize("size_bytes", [0, 1, 300_000, 9_000_000])
async def test_one_port_answers_both_kinds_of_clients(files: TlsFiles, size_bytes: int) -> None:
    body = os.urandom(size_bytes)
    async with serving(files, TlsMode.PERMISSIVE) as (port, _):
        for tls in (trusting(files), None):
            answer = await ask(port, body, tls)
            assert answer.body == body
            assert answer.ext["peer"] == "127.0.0.1"


async def test_many_requests_share_a_tls_connection(files: TlsFiles) -> None:
    async with serving(files, TlsMode.REQUIRED) as (port, _):
        connection = await RemotingConnection.open(Address("127.0.0.1", port), tls=trusting(files))
        bodies = [os.urandom(3_000) for _ in range(500)]
        answers = await asyncio.gather(*(connection.request(RemotingCommand(1, {}, body), 10) for body in bodies))
        assert [answer.body for answer in answers] == bodies
        await connection.close()


async def test_where_tls_is_required_plaintext_is_cut_off(files: TlsFiles) -> None:
    async with serving(files, TlsMode.REQUIRED) as (port, _):
        with pytest.raises(Unreachable):
            await ask(port)
        assert (await ask(port, tls=trusting(files))).body == b"hello"


async def test_a_client_refuses_a_certificate_that_it_does_not_trust(files: TlsFiles) -> None:
    async with serving(files, TlsMode.PERMISSIVE) as (port, _):
        with pytest.raises(Unreachable, match="certificate verify failed"):
            await ask(port, tls=ssl.create_default_context())


async def test_the_blocking_client_uses_a_connection_again_under_tls(files: TlsFiles) -> None:
    async with serving(files, TlsMode.PERMISSIVE) as (port, _):

        def use() -> list[bool]:
            connection = BlockingConnection(
                f"127.0.0.1:{port}", timeout_s=5, tls=client_context(str(files.certificate))
            )
            found = []
            for number in range(3):
                assert connection.request(RemotingCommand(1, {}, b"%d" % number), 5).body == b"%d" % number
                found.append(connection.is_open)
            connection.close()
            return found

        assert await asyncio.to_thread(use) == [True] * 3


async def test_a_new_certificate_is_shown_to_new_connections(files: TlsFiles, tmp_path: Path) -> None:
    used = TlsFiles(tmp_path / "c.pem", tmp_path / "k.pem")
    shutil.copy(files.certificate, used.certificate)
    shutil.copy(files.key, used.key)
    async with serving(used, TlsMode.PERMISSIVE) as (port, identity):
        assert (await ask(port, tls=trusting(files))).code == 0
        _, new = identity_in(tmp_path / "new")
        used.certificate.write_bytes(new.certificate.read_bytes())
        with pytest.raises(StartRefused, match="MS-1010"):
            identity.reload()
        assert (await ask(port, tls=trusting(files))).code == 0
        used.key.write_bytes(new.key.read_bytes())
        identity.reload()
        assert (await ask(port, tls=trusting(new))).code == 0


async def test_garbage_and_silence_at_the_door_do_not_disturb_others(files: TlsFiles) -> None:
    async with serving(files, TlsMode.PERMISSIVE) as (port, _):
        silent = [socket.create_connection(("127.0.0.1", port)) for _ in range(50)]
        for sent in (b"\x16", b"\x16\x03\x01\xff\xff" + bytes(5000), b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"\x00" * 64):
            with socket.create_connection(("127.0.0.1", port)) as stranger:
                stranger.sendall(sent)
        assert (await ask(port, tls=trusting(files))).code == 0
        assert (await ask(port)).code == 0
        for one in silent:
            one.close()


@pytest.mark.parametrize("broken", ["missing", "empty", "swapped", "a directory"])
def test_files_that_are_no_identity_are_refused_with_their_number(files: TlsFiles, tmp_path: Path, broken: str) -> None:
    (tmp_path / "empty").touch()
    bad = {
        "missing": TlsFiles(tmp_path / "none", files.key),
        "empty": TlsFiles(tmp_path / "empty", files.key),
        "swapped": TlsFiles(files.key, files.certificate),
        "a directory": TlsFiles(tmp_path, files.key),
    }[broken]
    with pytest.raises(StartRefused) as refused:
        ServerIdentity(bad)
    assert refused.value.name == "TLS_FILES"


def test_a_file_of_trust_that_cannot_be_used_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StartRefused) as refused:
        client_context(str(tmp_path / "none"))
    assert refused.value.name == "TLS_FILES"
