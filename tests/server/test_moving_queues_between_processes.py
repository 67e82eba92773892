"""Queues of a static topic move between broker processes by the command line, whose runs are killed on the way."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from millstream.client.blocking import BlockingClient
from millstream.model.message import Message
from millstream.server.child import RoleProcess

pytestmark = pytest.mark.kill


TOPIC = "moving"
QUEUES = 4
KEYS = [f"key-{number}" for number in range(6)]
END_S = 60


@dataclass
class Cluster:
    """Processes, and the command line for them."""

    nameserver: str
    brokers: dict[str, RoleProcess] = field(default_factory=dict)

    def command(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "millstream", *words, "--nameserver", self.nameserver]

    def run(self, *words: str) -> str:
        done = subprocess.run(self.command(*words), capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with ExitStack() as running:
        found = RoleProcess("nameserver", tmp_path / "ns", options=("--port", "0"), log=tmp_path / "ns.log")
        nameserver = running.enter_context(found).addresses["nameserver"]
        cluster = Cluster(nameserver)
        for name in "abc":
            options = ("--name", name, "--port", "0", "--nameservers", nameserver)
            process = RoleProcess("broker", tmp_path / name, options=options, log=tmp_path / f"{name}.log")
            cluster.brokers[name] = running.enter_context(process)
        yield cluster


class Traffic:
    """One thread that sends by key and one that reads, each with a client of its own."""

    def __init__(self, nameserver: str) -> None:
        self._nameserver = nameserver
        self.sent: dict[str, int] = defaultdict(int)
        self.read: dict[str, list[int]] = defaultdict(list)
        self.offsets: dict[int, list[int]] = defaultdict(list)
        self.failure: BaseException | None = None
        self._is_over = threading.Event()
        self._threads = [threading.Thread(target=self._guard, args=(work,)) for work in (self._send, self._follow)]

    def __enter__(self) -> Traffic:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        for thread in self._threads:
            thread.join(END_S)
        if self.failure is not None:
            raise self.failure
        for key, count in self.sent.items():
            assert self.read[key] == list(range(count)), key
        for offsets in self.offsets.values():
            assert offsets == list(range(len(offsets)))

    def until(self, more: int) -> None:
        """Wait for so many further messages."""
        count, end_s = sum(self.sent.values()) + more, time.monotonic() + END_S
        while sum(self.sent.values()) < count:
            assert self.failure is None, self.failure
            assert time.monotonic() < end_s
            time.sleep(0.01)

    def _guard(self, work: object) -> None:
        try:
            work()  # type: ignore[operator]
        except BaseException as error:  # noqa: BLE001 - told by whoever looks
            self.failure = error

    def _send(self) -> None:
        with BlockingClient(self._nameserver) as client:
            while not self._is_over.is_set():
                for key in KEYS:
                    client.send(Message(TOPIC, f"{key} {self.sent[key]}".encode(), message_group=key))
                    self.sent[key] += 1

    def _follow(self) -> None:
        places = dict.fromkeys(range(QUEUES), 0)
        with BlockingClient(self._nameserver) as client:
            while True:
                was_over, news = self._is_over.is_set() and not self._threads[0].is_alive(), 0
                for number, offset in places.items():
                    batch = client.pull(client.queues(TOPIC)[number], offset)
                    for message in batch.messages():
                        key, _, count = message.body.decode().partition(" ")
                        self.read[key].append(int(count))
                        self.offsets[number].append(message.queue_offset)
                    news += batch.next_offset - offset
                    places[number] = batch.next_offset
                if was_over and not news:
                    return


def test_the_command_line_moves_queues_that_are_in_use_and_finishes_what_a_killed_run_began(cluster: Cluster) -> None:
    cluster.run("topic", "create", TOPIC, "--static", "--type", "fifo", "--queues", str(QUEUES), "--brokers", "a")
    with Traffic(cluster.nameserver) as traffic:
        traffic.until(50)
        for brokers, life_s in (("a,b,c", 60.0), ("b", 1.2), ("b", 60.0), ("a,c", 1.4), ("a,c", 60.0)):
            process = subprocess.Popen(cluster.command("topic", "remap", TOPIC, "--brokers", brokers))
            try:
                process.wait(life_s)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            else:
                assert process.returncode == 0
            traffic.until(20)
    shown = cluster.run("topic", "describe", TOPIC)
    assert [line.split()[0] for line in shown.splitlines()] == ["a", "a", "c", "c"]
    assert not cluster.run("topic", "remap", TOPIC, "--brokers", "a,c")


def test_a_broker_process_that_was_killed_still_knows_its_logic_queues(cluster: Cluster, tmp_path: Path) -> None:
    cluster.run("topic", "create", TOPIC, "--static", "--queues", "2", "--brokers", "a")
    with BlockingClient(cluster.nameserver) as client:
        for number in range(10):
            client.send(Message(TOPIC, str(number).encode()))
        cluster.run("topic", "remap", TOPIC, "--brokers", "b")
        for number in range(10, 20):
            client.send(Message(TOPIC, str(number).encode()))
        for name in "ab":
            cluster.brokers[name].kill()
        with ExitStack() as running:
            for name in "ab":
                options = ("--name", name, "--port", "0", "--nameservers", cluster.nameserver)
                log = tmp_path / f"{name}-again.log"
                running.enter_context(RoleProcess("broker", tmp_path / name, options=options, log=log))
            client.conversations.forget_route(TOPIC)
            found = [
                int(message.body)
                for held in client.queue_ranges(TOPIC)
                for batch in client.read(held.queue, 0, held.range.max_offset)
                for message in batch.messages()
            ]
        assert sorted(found) == list(range(20))
