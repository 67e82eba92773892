"""Brokers added, drained, stopped and killed under load: what was acknowledged is consumed, and no send fails."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from millstream.client.blocking import BlockingClient
from millstream.model.errors import ConnectionFailed, NameRefused
from millstream.model.message import Message
from millstream.model.topic import TopicConfig
from millstream.server.child import RoleProcess


class Load:
    """One thread that sends numbered messages, and one that consumes as a group; both note what they saw."""

    def __init__(self, nameserver: str) -> None:
        self._nameserver = nameserver
        self._stopping = threading.Event()
        self.acknowledged: set[bytes] = set()
        self.consumed: set[bytes] = set()
        self.failures: list[str] = []
        self._threads = [threading.Thread(target=self._send), threading.Thread(target=self._consume)]

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_exception: object) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join()

    def _send(self) -> None:
        number = 0
        with BlockingClient(self._nameserver) as client:
            while not self._stopping.is_set():
                body = b"%06d" % number
                number += 1
                try:
                    client.send(Message("t", body))
                except Exception as error:  # noqa: BLE001 - the test wants to see every one
                    self.failures.append(repr(error))
                else:
                    self.acknowledged.add(body)

    def _consume(self) -> None:
        with BlockingClient(self._nameserver, group="g") as client:
            while not (self._stopping.is_set() and self.acknowledged <= self.consumed):
                try:
                    self._round(client)
                except (ConnectionFailed, NameRefused):
                    client.conversations.doubt_route("t")

    def _round(self, client: BlockingClient) -> None:
        for queue in client.queues("t"):
            offset = client.query_offset("g", queue) or 0
            batch = client.pull(queue, offset)
            self.consumed.update(message.body for message in batch.messages())
            if batch.next_offset > offset:
                client.commit_offset("g", queue, batch.next_offset)


@pytest.fixture
def running() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def broker(running: ExitStack, directory: Path, name: str, nameserver: str, port: str = "0") -> RoleProcess:
    options = ["--name", name, "--port", port, "--nameservers", nameserver]
    process = RoleProcess("broker", directory / name, options=options, log=directory / f"{name}.log")
    return running.enter_context(process)


def command(nameserver: str, *words: str) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-m", "millstream", *words, "--nameserver", nameserver, "-o", "json"]
    return subprocess.run(line, capture_output=True, text=True, timeout=60)


def test_brokers_are_added_drained_and_killed_under_load_and_nothing_acknowledged_is_lost(
    running: ExitStack, tmp_path: Path
) -> None:
    server = running.enter_context(RoleProcess("nameserver", tmp_path / "ns", options=["--port", "0"]))
    nameserver = server.addresses["nameserver"]
    a = broker(running, tmp_path, "a", nameserver)
    with BlockingClient(nameserver) as client:
        client.create_topic(TopicConfig("t", read_queues=2, write_queues=2))
        with Load(nameserver) as load:
            b = broker(running, tmp_path, "b", nameserver)
            client.create_topic(TopicConfig("t", read_queues=2, write_queues=2))
            drained = command(nameserver, "broker", "drain", "a", "--for", "40")
            assert drained.returncode == 0, drained.stderr
            assert '"empty": true' in drained.stdout
            assert command(nameserver, "broker", "list").stdout.count('"drained"') == 1
            a.stop()
            broker(running, tmp_path, "c", nameserver)
            client.create_topic(TopicConfig("t", read_queues=2, write_queues=2))
            b.kill()
            broker(running, tmp_path, "b", nameserver, b.addresses["broker"].rpartition(":")[2])
            while_killed = len(load.acknowledged)
            wait_until(lambda: len(load.acknowledged) > while_killed + 20)
        assert load.failures == []
        assert load.acknowledged <= load.consumed


def test_no_send_fails_while_all_nameservers_are_dead_and_a_broker_is_drained_later(
    running: ExitStack, tmp_path: Path
) -> None:
    servers = [RoleProcess("nameserver", tmp_path / name, options=["--port", "0"]) for name in ("1", "2")]
    for one in servers:
        running.enter_context(one)
    both = ";".join(one.addresses["nameserver"] for one in servers)
    for name in ("a", "b"):
        broker(running, tmp_path, name, both)
    with BlockingClient(both) as client:
        client.create_topic(TopicConfig("t", read_queues=2, write_queues=2))
    with Load(both) as load:
        wait_until(lambda: len(load.acknowledged) > 20)
        for one in servers:
            one.kill()
        before = len(load.acknowledged)
        wait_until(lambda: len(load.acknowledged) > before + 200)
        port = servers[0].addresses["nameserver"].rpartition(":")[2]
        running.enter_context(RoleProcess("nameserver", tmp_path / "3", options=["--port", port]))
        wait_until(lambda: command(both, "broker", "list").stdout.count('"serving"') == 2)
        drained = command(both, "broker", "drain", "a", "--for", "40")
        assert drained.returncode == 0, drained.stderr
    assert load.failures == []
    assert load.acknowledged <= load.consumed


def wait_until(condition) -> None:  # type: ignore[no-untyped-def]
    """Wait for what threads and processes do."""
    waiting = threading.Event()
    for _ in range(1200):
        if condition():
            return
        waiting.wait(0.05)
    raise AssertionError("it did not happen")
