"""A proxy as a process of its own: its ports, what clients are told there, and what it refuses to start with."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from millstream.client.blocking import BlockingClient
from millstream.model.errors import MillstreamError, StartRefused
from millstream.model.message import Message
from millstream.model.topic import TopicConfig
from millstream.server.child import RoleProcess
from millstream.server.proxy_ports import AccessNetwork, parse_access_network

pytestmark = pytest.mark.process


@pytest.fixture
def running() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def start(running: ExitStack, directory: Path, role: str, *options: str) -> RoleProcess:
    return running.enter_context(RoleProcess(role, directory / role, options=options, log=directory / f"{role}.log"))


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_clients_of_each_network_are_told_an_address_that_they_reach_and_send_there(
    running: ExitStack, tmp_path: Path
) -> None:
    nameserver = start(running, tmp_path, "nameserver", "--port", "0").addresses["nameserver"]
    start(running, tmp_path, "broker", "--port", "0", "--nameservers", nameserver)
    other = free_port()
    proxy = start(
        running, tmp_path, "proxy", "--grpc-port", "0", "--remoting-port", "0", "--nameservers", nameserver,
        "--set", f'access_networks=["127.0.0.1:{other}=queues.example.com:8082"]', "--set", 'throttle=["bytes=1000"]',
    )  # fmt: skip
    with BlockingClient(nameserver) as admin:
        admin.create_topic(TopicConfig("orders"))
    near, far = proxy.addresses["remoting"], f"127.0.0.1:{other}"
    with BlockingClient(near) as client:
        assert [broker.broker_addrs for broker in client.route("orders").broker_datas] == [{0: near}]
        assert client.send(Message("orders", bytes(5_000))).queue_offset == 0
        with pytest.raises(MillstreamError) as late:
            client.send(Message("orders", b"x"))
        assert late.value.name == "CLIENT_THROTTLED"
    with BlockingClient(far) as client:
        told = client.route("orders").broker_datas
        assert [broker.broker_addrs for broker in told] == [{0: "queues.example.com:8082"}]


@pytest.mark.parametrize(
    "setting", ['access_networks=["8082"]', 'clusters=["a-*"]', 'throttle=["calls=0"]', 'nameservers=["no port"]']
)
def test_a_proxy_says_which_setting_it_cannot_read(tmp_path: Path, setting: str) -> None:
    with pytest.raises(StartRefused, match=setting.partition("=")[0]):
        RoleProcess("proxy", tmp_path, options=["--grpc-port", "0", "--remoting-port", "-1", "--set", setting])


def test_an_access_network_is_read_from_its_words() -> None:
    found = parse_access_network("[::1]:8082=queues.example.com:80")
    assert (found.host, found.port) == ("::1", 8082)
    assert found.announced is not None
    assert (found.announced.host, found.announced.port) == ("queues.example.com", 80)
    assert AccessNetwork("a", 1).announced is None
