"""Starting with TLS: the server as users start it, its own certificate, and a new one while it runs."""

from __future__ import annotations

import os
import signal
import socket
import stat
import time
from pathlib import Path

import pytest

from certificates import identity_in, needs_openssl
from millstream.client.blocking import BlockingClient
from millstream.model.errors import StartRefused, Unreachable
from millstream.model.topic import TopicConfig
from millstream.security.tls import client_context
from millstream.server.child import ServerProcess
from millstream.server.configuration.roles import NameserverConfiguration, Tls
from millstream.server.separate import SeparateRole

pytestmark = pytest.mark.process


@needs_openssl
def test_it_makes_a_certificate_of_its_own_and_its_commands_trust_it(tmp_path: Path) -> None:
    with ServerProcess(tmp_path, options=["--tls", "required"]) as server:
        with BlockingClient(
            server.addresses.nameserver, tls=client_context(str(tmp_path / "tls" / "certificate.pem"))
        ) as client:
            client.create_topic(TopicConfig("orders"))
            assert [topic.name for topic in client.topics()].count("orders") == 1
        with pytest.raises(Unreachable), BlockingClient(server.addresses.nameserver) as plain:
            plain.topics()
    assert stat.S_IMODE(os.stat(tmp_path / "tls" / "key.pem").st_mode) == 0o600


@needs_openssl
def test_a_new_certificate_is_read_at_sighup(tmp_path: Path) -> None:
    _, files = identity_in(tmp_path / "mine")
    _, new = identity_in(tmp_path / "new")
    chosen = ["--tls", "permissive", "--tls-cert", str(files.certificate), "--tls-key", str(files.key)]
    with ServerProcess(tmp_path / "data", options=chosen) as server:
        files.certificate.write_bytes(new.certificate.read_bytes())
        files.key.write_bytes(new.key.read_bytes())
        os.kill(server.pid, signal.SIGHUP)
        give_up_s = time.monotonic() + 20
        while True:
            try:
                with BlockingClient(server.addresses.nameserver, tls=client_context(str(new.certificate))) as client:
                    client.topics()
                return
            except Unreachable:
                assert time.monotonic() < give_up_s


@needs_openssl
def test_a_default_start_answers_tls_and_plaintext_on_every_port(tmp_path: Path) -> None:
    with ServerProcess(tmp_path) as server:
        trusted = client_context(str(tmp_path / "tls" / "certificate.pem"))
        for tls in (trusted, None):
            with BlockingClient(server.addresses.nameserver, tls=tls) as client:
                assert "TBW102" not in {topic.name for topic in client.topics()}
        told = (server.addresses.nameserver, server.addresses.broker, server.addresses.grpc)
        for host, port in (address.split(":") for address in told):
            with (
                socket.create_connection((host, int(port)), timeout=10) as plain,
                trusted.wrap_socket(plain, server_hostname=host) as secured,
            ):
                assert secured.version() in ("TLSv1.2", "TLSv1.3")


async def test_a_default_start_without_openssl_answers_plaintext_alone_and_says_so_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("PATH", "")
    configuration = NameserverConfiguration(port=0, directory=str(tmp_path))
    server = SeparateRole(configuration)
    try:
        addresses = await server.start()
        assert server.site.identity is None
        assert addresses["nameserver"].port
    finally:
        await server.close()
    (line,) = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert "MS-1011" in line
    assert "Until then plaintext alone is answered." in line


async def test_a_start_that_is_to_answer_tls_is_refused_without_openssl(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    for mode in ("permissive", "required"):
        server = SeparateRole(NameserverConfiguration(port=0, directory=str(tmp_path), tls=Tls(mode)))
        with pytest.raises(StartRefused) as refused:
            await server.start()
        assert refused.value.name == "OPENSSL_MISSING"
        assert "--tls-cert" in str(refused.value)


def test_files_that_are_not_there_are_named(tmp_path: Path) -> None:
    with pytest.raises(StartRefused, match="MS-1010"):
        ServerProcess(tmp_path / "data", options=["--tls", "required", "--tls-cert", "none.pem", "--tls-key", "no.pem"])
