"""Proxies that share one gRPC port: who gets the connections, and what clients see when one of them goes."""

from __future__ import annotations

import os
import re
import signal
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import grpc
import pytest

from millstream.client.blocking import BlockingClient
from millstream.model.errors import StartRefused
from millstream.model.topic import TopicConfig
from millstream.protocol.grpc import messages as m
from millstream.protocol.grpc.service import METHODS
from millstream.server.child import RoleProcess
from millstream.telemetry.processes import owners_of
from patience import PATIENCE_S, eventually_blocking

pytestmark = [
    pytest.mark.kill,
    pytest.mark.skipif(sys.platform != "linux", reason="Linux alone spreads connections over those that share a port"),
]

PORTS = ("--nameserver-port", "0", "--broker-port", "0", "--grpc-port", "0", "--metrics-port", "0")
CLIENTS = 16
# The whole port may be gone for as long as the last of its processes needs to come back.
RETRIES = 200


class Shared:
    """A cluster of one broker and two proxies, with a topic."""

    def __init__(self, directory: Path, running: ExitStack) -> None:
        self.log = directory / "log"
        options = ("--brokers", "1", "--proxies", "2", *PORTS)
        self.process = running.enter_context(RoleProcess("cluster", directory / "c", options=options, log=self.log))
        self.nameserver = self.process.addresses["nameserver"]
        self.grpc = self.process.addresses["grpc"]
        self.client = running.enter_context(BlockingClient(self.nameserver))
        self.client.create_topic(TopicConfig("t"))

    @property
    def pids(self) -> list[int]:
        host, _, port = self.grpc.rpartition(":")
        return owners_of(host, int(port))

    def answered(self, proxy: str) -> int:
        """Sends that a proxy answered with OK, as its own page says."""
        with urllib.request.urlopen(f"http://{self.process.addresses[f'{proxy} metrics']}/metrics") as page:
            text = page.read().decode()
        found = re.findall(r"^rocketmq_rpc_latency_milliseconds_count\{(.*)\} (\d+)", text, re.MULTILINE)
        return sum(int(count) for labels, count in found if "SendMessage" in labels and "success" in labels)


@pytest.fixture
def shared(tmp_path: Path) -> Iterator[Shared]:
    with ExitStack() as running:
        yield Shared(tmp_path, running)


class Sender:
    """A client with a connection of its own that sends until it is stopped, and tries again what failed."""

    def __init__(self, address: str, name: str) -> None:
        self.sent: list[str] = []
        self.failed: list[str] = []
        self.stopped = threading.Event()
        self._name = name
        options = [
            ("grpc.use_local_subchannel_pool", 1),
            ("grpc.initial_reconnect_backoff_ms", 100),
            ("grpc.max_reconnect_backoff_ms", 500),
        ]
        self._channel = grpc.insecure_channel(address, options=options)
        self._send = METHODS["SendMessage"].stub(self._channel)
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def end(self) -> None:
        self.stopped.set()
        self._thread.join(PATIENCE_S)
        self._channel.close()

    def _run(self) -> None:
        while not self.stopped.is_set():
            body = f"{self._name}-{len(self.sent) + len(self.failed)}"
            (self.sent if self._is_sent(body) else self.failed).append(body)

    def _is_sent(self, body: str) -> bool:
        system = m.SystemProperties(message_id=body, body_encoding=m.IDENTITY)
        message = m.Message(topic=m.Resource(name="t"), body=body.encode(), system_properties=system)
        for _ in range(RETRIES):
            try:
                answer = self._send(
                    m.SendMessageRequest(messages=[message]),
                    metadata=(("x-mq-client-id", self._name),),
                    timeout=PATIENCE_S,
                )
            except grpc.RpcError as error:
                if error.code() is not grpc.StatusCode.UNAVAILABLE:
                    return False
                time.sleep(0.05)
                continue
            if answer.status.code == m.OK:
                return True
        return False


def test_two_proxies_share_one_port_and_the_connections(shared: Shared) -> None:
    assert len(shared.pids) == 2
    senders = [Sender(shared.grpc, f"client-{number}") for number in range(CLIENTS)]
    try:
        eventually_blocking(lambda: all(len(sender.sent) > 5 for sender in senders))
    finally:
        for sender in senders:
            sender.end()
    counts = [shared.answered("proxy"), shared.answered("proxy-2")]
    assert min(counts) > 0
    assert sum(counts) == sum(len(sender.sent) for sender in senders)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_proxy_that_ends_and_comes_back_costs_its_clients_no_message(shared: Shared, number: signal.Signals) -> None:
    senders = [Sender(shared.grpc, f"client-{one}") for one in range(CLIENTS)]
    try:
        eventually_blocking(lambda: all(len(sender.sent) > 5 for sender in senders))
        victim = shared.pids[0]
        os.kill(victim, number)
        eventually_blocking(lambda: "runs again" in shared.log.read_text())
        before = [len(sender.sent) for sender in senders]
        eventually_blocking(
            lambda: all(len(sender.sent) > count + 5 for sender, count in zip(senders, before, strict=True))
        )
        assert len(shared.pids) == 2
        assert victim not in shared.pids
    finally:
        for sender in senders:
            sender.end()
    assert [sender.failed for sender in senders] == [[]] * CLIENTS
    assert {body for sender in senders for body in sender.sent} <= bodies(shared.client)


def bodies(client: BlockingClient) -> set[str]:
    """Everything in the topic."""
    found: set[str] = set()
    for item in client.queue_ranges("t"):
        for batch in client.read(item.queue, item.range.min_offset, item.range.max_offset):
            found.update(message.body.decode() for message in batch.messages())
    return found


def test_a_port_is_not_shared_with_who_does_not_say_so(shared: Shared, tmp_path: Path) -> None:
    port = shared.grpc.rpartition(":")[2]
    options = ("--grpc-port", port, "--remoting-port", "-1", "--nameservers", shared.nameserver)
    with pytest.raises(StartRefused, match=rf"Port {port} of 127.0.0.1 is in use by process"):
        RoleProcess("proxy", tmp_path / "alone", options=options)
    other = ("--brokers", "1", "--proxies", "2", *PORTS[:4], "--grpc-port", port)
    with pytest.raises(StartRefused, match=rf"Port {port} of 127.0.0.1 is in use by process"):
        RoleProcess("cluster", tmp_path / "other", options=other)
    assert len(shared.pids) == 2


def test_grpc_aio_refuses_to_share_its_port(tmp_path: Path) -> None:
    options = ("--set", "share_port=true", "--set", "grpc_transport=grpcio")
    with pytest.raises(StartRefused, match="share_port needs grpc_transport = http2"):
        RoleProcess("proxy", tmp_path / "p", options=options)
