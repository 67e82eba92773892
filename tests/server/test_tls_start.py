"""Starting with TLS: the server as users start it, its own certificate, and a new one while it runs."""

from __future__ import annotations

import os
import signal
import stat
import time
from pathlib import Path

import pytest

from certificates import identity_in, needs_openssl
from millstream.client.blocking import BlockingClient
from millstream.model.errors import StartRefused, Unreachable
from millstream.model.topic import TopicConfig
from millstream.security.tls import client_context
from millstream.server.certificate import own_certificate
from millstream.server.child import ServerProcess

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


def test_without_openssl_it_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(StartRefused) as refused:
        own_certificate(tmp_path, ["127.0.0.1"])
    assert refused.value.name == "OPENSSL_MISSING"
    assert "--tls-cert" in str(refused.value)


def test_files_that_are_not_there_are_named(tmp_path: Path) -> None:
    with pytest.raises(StartRefused, match="MS-1010"):
        ServerProcess(tmp_path / "data", options=["--tls", "required", "--tls-cert", "none.pem", "--tls-key", "no.pem"])
