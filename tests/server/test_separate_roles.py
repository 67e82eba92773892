"""Nameservers and brokers as processes of their own, and what clients see when some of them go."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from certificates import needs_openssl
from millstream.client.access import AccessOperations
from millstream.client.blocking import BlockingClient
from millstream.client.profiles import ACCESS_KEY_VARIABLE, SECRET_KEY_VARIABLE, TLS_CA_VARIABLE
from millstream.model.errors import AccessRefused, NameRefused, StartRefused
from millstream.model.message import Message
from millstream.model.topic import TopicConfig
from millstream.protocol.remoting.administration.access import PolicyEntryInfo, UserInfo
from millstream.security.signature import Credentials
from millstream.server.certificate import own_certificate
from millstream.server.child import RoleProcess
from patience import eventually_blocking

pytestmark = pytest.mark.kill


class Cluster:
    """Processes in one folder, started when they are asked for."""

    def __init__(self, directory: Path, running: ExitStack) -> None:
        self._directory = directory
        self._running = running
        self.nameservers: list[RoleProcess] = []

    def nameserver(self, port: str = "0") -> RoleProcess:
        process = self._start("nameserver", f"ns-{len(self.nameservers)}", "--port", port)
        self.nameservers.append(process)
        return process

    def broker(self, name: str, port: str = "0") -> RoleProcess:
        return self._start("broker", name, "--name", name, "--port", port, "--nameservers", self.addresses)

    @property
    def addresses(self) -> str:
        return ";".join(one.addresses["nameserver"] for one in self.nameservers)

    def client(self, **options: float) -> BlockingClient:
        return self._running.enter_context(BlockingClient(self.addresses, **options))  # type: ignore[arg-type]

    def _start(self, role: str, name: str, *options: str) -> RoleProcess:
        process = RoleProcess(role, self._directory / name, options=options, log=self._directory / f"{name}.log")
        return self._running.enter_context(process)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with ExitStack() as running:
        yield Cluster(tmp_path, running)


def send(client: BlockingClient, topic: str, *bodies: str) -> set[str]:
    """The brokers that took the messages."""
    return {client.send(Message(topic, body.encode())).queue.broker_name for body in bodies}


def bodies(client: BlockingClient, topic: str) -> list[str]:
    """Everything in the topic, of all brokers."""
    found = []
    for item in client.queue_ranges(topic):
        for batch in client.read(item.queue, item.range.min_offset, item.range.max_offset):
            found += [message.body.decode() for message in batch.messages()]
    return sorted(found)


def test_a_topics_queues_are_on_all_brokers_and_its_messages_too(cluster: Cluster) -> None:
    cluster.nameserver()
    cluster.broker("a")
    cluster.broker("b")
    client = cluster.client()
    client.create_topic(TopicConfig("t", read_queues=2, write_queues=2))
    assert [(queue.broker_name, queue.queue_id) for queue in client.queues("t")] == [
        ("a", 0), ("a", 1), ("b", 0), ("b", 1),
    ]  # fmt: skip
    assert send(client, "t", "1", "2", "3", "4") == {"a", "b"}
    assert bodies(client, "t") == ["1", "2", "3", "4"]


def test_sends_and_reads_go_on_while_all_nameservers_are_down_and_after_they_came_back_empty(cluster: Cluster) -> None:
    first, second = cluster.nameserver(), cluster.nameserver()
    cluster.broker("a")
    client = cluster.client()
    client.create_topic(TopicConfig("t"))
    send(client, "t", "before")
    for process in (first, second):
        process.kill()
    client.conversations.doubt_route("t")
    send(client, "t", "while")
    port = first.addresses["nameserver"].rpartition(":")[2]
    cluster.nameserver(port)
    client.conversations.doubt_route("t")
    send(client, "t", "after")
    assert bodies(client, "t") == ["after", "before", "while"]
    other = cluster.client()
    eventually_blocking(lambda: other.queues("t"), not_yet=(NameRefused,))


def test_a_broker_that_is_killed_is_passed_by_and_loses_nothing(cluster: Cluster, tmp_path: Path) -> None:
    cluster.nameserver()
    a = cluster.broker("a")
    cluster.broker("b")
    client = cluster.client()
    client.create_topic(TopicConfig("t"))
    send(client, "t", *(f"{number:02}" for number in range(10)))
    a.kill()
    assert send(client, "t", *(f"{number:02}" for number in range(10, 20))) == {"b"}
    cluster.broker("a", a.addresses["broker"].rpartition(":")[2])
    client.conversations.doubt_route("t")
    assert bodies(client, "t") == [f"{number:02}" for number in range(20)]


def test_a_broker_that_stops_takes_its_registration_back(cluster: Cluster) -> None:
    cluster.nameserver()
    a, _ = cluster.broker("a"), cluster.broker("b")
    client = cluster.client()
    client.create_topic(TopicConfig("t"))
    a.stop()
    client.conversations.doubt_route("t")
    assert {queue.broker_name for queue in client.queues("t")} == {"b"}


@needs_openssl
def test_roles_that_require_tls_find_each_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = own_certificate(tmp_path, ["127.0.0.1"], time.time())
    monkeypatch.setenv(TLS_CA_VARIABLE, str(files.certificate))
    tls = {"mode": "required", "certificate": files.certificate, "key": files.key}
    options = ["--port", "0", *(word for name, value in tls.items() for word in ("--set", f"tls.{name}={value}"))]
    with RoleProcess("nameserver", tmp_path / "ns", options=options) as nameserver:
        where = nameserver.addresses["nameserver"]
        with (
            RoleProcess("broker", tmp_path / "a", options=[*options, "--nameservers", where]),
            BlockingClient(where) as client,
        ):
            client.create_topic(TopicConfig("t"))
            send(client, "t", "1")
            assert bodies(client, "t") == ["1"]


def test_a_role_refuses_what_it_cannot_use_in_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "b.toml").write_text('role = "broker"\nnameservers = ["nowhere"]\n')
    with pytest.raises(StartRefused, match=r"'nowhere' is no address of the form host:port"):
        RoleProcess("broker", tmp_path / "d", options=["-c", str(tmp_path / "b.toml")])
    with pytest.raises(StartRefused, match="there is no setting prot"):
        RoleProcess("nameserver", tmp_path / "d", options=["--set", "prot=1"])
    with pytest.raises(StartRefused, match="belong together"):
        RoleProcess("nameserver", tmp_path / "d", options=["--set", "tls.key=k"])


def test_a_local_cluster_starts_a_broker_again_that_ended_and_stops_all(tmp_path: Path) -> None:
    options = ["--brokers", "2", "--nameserver-port", "0", "--broker-port", "0", "--grpc-port", "0"]
    log = tmp_path / "log"
    with RoleProcess("cluster", tmp_path / "c", options=options, log=log) as running:
        client = BlockingClient(running.addresses["nameserver"])
        client.create_topic(TopicConfig("t", read_queues=1, write_queues=1))
        assert send(client, "t", "1", "2") == {"broker-0", "broker-1"}
        [victim] = pids_of(str(tmp_path / "c" / "broker-0"))
        os.kill(victim, signal.SIGKILL)
        eventually_blocking(lambda: "broker-0 runs again" in log.read_text())
        client.conversations.doubt_route("t")
        assert bodies(client, "t") == ["1", "2"]
        client.close()
    assert pids_of(str(tmp_path / "c")) == []
    assert "broker-0 ended with -9" in log.read_text()


def test_a_local_cluster_with_more_brokers_than_before_gives_them_the_topics_that_there_are(tmp_path: Path) -> None:
    options = ["--nameserver-port", "0", "--broker-port", "0", "--grpc-port", "0", "--brokers"]
    with (
        RoleProcess("cluster", tmp_path / "c", options=[*options, "1"]) as one,
        BlockingClient(one.addresses["nameserver"]) as client,
    ):
        client.create_topic(TopicConfig("t", read_queues=1, write_queues=1))
    with (
        RoleProcess("cluster", tmp_path / "c", options=[*options, "2"]) as two,
        BlockingClient(two.addresses["nameserver"]) as client,
    ):
        assert [queue.broker_name for queue in client.queues("t")] == ["broker-0", "broker-1"]


def test_the_processes_of_a_local_cluster_end_with_it_even_if_it_is_killed(tmp_path: Path) -> None:
    options = ["--brokers", "1", "--nameserver-port", "0", "--broker-port", "0", "--grpc-port", "0"]
    running = RoleProcess("cluster", tmp_path / "c", options=options)
    assert len(pids_of(str(tmp_path / "c" / ""))) == 3
    running.kill()
    eventually_blocking(lambda: pids_of(str(tmp_path / "c" / "")) == [])


def test_a_local_cluster_whose_port_is_taken_says_so_and_leaves_nothing_running(tmp_path: Path) -> None:
    with RoleProcess("nameserver", tmp_path / "n", options=["--port", "0"]) as other:
        port = other.addresses["nameserver"].rpartition(":")[2]
        with pytest.raises(StartRefused, match=rf"nameserver did not start: .*{port}"):
            RoleProcess("cluster", tmp_path / "c", options=["--nameserver-port", port, "--broker-port", "0"])
    assert pids_of(str(tmp_path / "c" / "")) == []


def pids_of(word: str) -> list[int]:
    """The roles whose command line has the word."""
    found = subprocess.run(
        ["pgrep", "-f", f"millstream start (broker|nameserver|proxy) .*{word}"], capture_output=True, text=True
    )
    return [int(line) for line in found.stdout.split()]


def test_with_access_control_the_roles_know_each_other_and_a_new_user_is_known_to_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(ACCESS_KEY_VARIABLE, "ops")
    monkeypatch.setenv(SECRET_KEY_VARIABLE, "ops-secret-1")
    secure = ["--port", "0", "--set", "access.enabled=true"]
    with RoleProcess("nameserver", tmp_path / "ns", options=secure) as nameserver:
        where = nameserver.addresses["nameserver"]
        with (
            RoleProcess("broker", tmp_path / "a", options=[*secure, "--nameservers", where]),
            BlockingClient(where) as client,
        ):
            client.create_topic(TopicConfig("t"))
            send(client, "t", "1")
            access = AccessOperations(client.conversations)
            client.run(access.create_user(UserInfo("reader", "reader-secret", "Normal")))
            entry = PolicyEntryInfo("Topic:t", ["Pub", "Sub", "Get"], [], "Allow")
            client.run(access.put_entries("reader", "Custom", [entry]))
            with BlockingClient(where, credentials=Credentials("reader", "reader-secret")) as reader:
                send(reader, "t", "2")
                with pytest.raises(AccessRefused):
                    reader.topics()
            with pytest.raises(AccessRefused), BlockingClient(where, credentials=Credentials("x", "y" * 9)) as stranger:
                stranger.route("t")
