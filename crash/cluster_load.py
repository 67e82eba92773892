"""Load on a cluster of separate processes: senders and consumers in threads, which note what they saw."""

from __future__ import annotations

import random
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from crash.programme import ProgrammeRun
from millstream.client.blocking import BlockingClient
from millstream.model.errors import ConnectionFailed, MillstreamError, NameRefused
from millstream.model.message import Message
from millstream.model.topic import TopicConfig
from millstream.server.child import RoleProcess

__all__ = ["ClusterLoad", "ClusterProcesses", "free_port"]

TOPIC: Final = "load"
GROUP: Final = "load-readers"

WAIT_S: Final = 60.0
"""Seconds for anything that must happen."""

_QUEUES = 2
_OWN_PORTS = (12_000, 32_000)


class ClusterProcesses:
    """Nameservers and brokers, each in a folder of its own. A name keeps its port."""

    def __init__(self, directory: Path, running: ExitStack) -> None:
        self._directory = directory
        self._running = running
        self._ports: dict[str, str] = {}
        self.processes: dict[str, RoleProcess] = {}
        """The last process of each name."""

    def nameserver(self, name: str) -> None:
        """Start one."""
        self._start("nameserver", name, [])

    def broker(self, name: str) -> None:
        """Start one, and have it take its share of the topic."""
        self._start("broker", name, ["--name", name, "--nameservers", self.nameservers])
        with BlockingClient(self.nameservers) as client:
            client.create_topic(TopicConfig(TOPIC, read_queues=_QUEUES, write_queues=_QUEUES))

    @property
    def nameservers(self) -> str:
        """All that were ever started."""
        return ";".join(
            process.addresses["nameserver"] for process in self.processes.values() if "nameserver" in process.addresses
        )

    def drain(self, name: str) -> str:
        """Drain a broker as its administrator does; what went wrong, or an empty text."""
        words = ["broker", "drain", name, "--for", f"{WAIT_S:g}", "--nameserver", self.nameservers]
        done = subprocess.run([sys.executable, "-m", "millstream", *words], capture_output=True, text=True)
        return "" if done.returncode == 0 else f"drain ended with {done.returncode}: {done.stderr.strip()}"

    def _start(self, role: str, name: str, options: list[str]) -> None:
        port = self._ports.setdefault(name, str(free_port()))
        log = self._directory / f"{name}.log"
        process = RoleProcess(role, self._directory / name, options=["--port", port, *options], log=log)
        self.processes[name] = self._running.enter_context(process)


def free_port() -> int:
    """A port that no outgoing connection takes while the process that has it is dead: the system gives those others."""
    while True:
        port = random.randrange(*_OWN_PORTS)
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) != 0:
                return port


class ClusterLoad:
    """One thread sends numbered messages, one consumes them as a group, until the block ends.

    The end waits until all that was acknowledged is consumed, `WAIT_S` at most.
    """

    def __init__(self, nameservers: str) -> None:
        self._nameservers = nameservers
        self._stopping = threading.Event()
        self.acknowledged: set[bytes] = set()
        self.consumed: set[bytes] = set()
        self.deliveries = 0
        self.failures: list[str] = []
        """Sends that failed in the end."""
        self.slowest_send_s = 0.0
        self._threads = [threading.Thread(target=self._send), threading.Thread(target=self._consume)]

    def __enter__(self) -> ClusterLoad:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_exception: object) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join()

    @property
    def lost(self) -> set[bytes]:
        """What was acknowledged and never consumed."""
        return self.acknowledged - self.consumed

    def judge(self, run: ProgrammeRun) -> None:
        """Note what was promised and not kept, and what was counted; after the end."""
        for failure in self.failures:
            run.fail(f"a send failed: {failure}")
        if self.lost:
            run.fail(f"{len(self.lost)} acknowledged messages were never consumed, as {sorted(self.lost)[:3]}")
        run.counts |= {
            "acknowledged": len(self.acknowledged),
            "duplicates": self.deliveries - len(self.consumed),
            "slowest_send_ms": round(self.slowest_send_s * 1000),
        }

    def until(self, condition: Callable[[], bool]) -> None:
        """Wait for what threads and processes do. Raises AssertionError after `WAIT_S`."""
        waiting = threading.Event()
        deadline_s = time.monotonic() + WAIT_S
        while not condition():
            if time.monotonic() > deadline_s:
                raise AssertionError(f"what was waited for did not happen in {WAIT_S:g} s")
            waiting.wait(0.02)

    def go_on(self, messages: int) -> None:
        """Wait until that many more were acknowledged."""
        before = len(self.acknowledged)
        self.until(lambda: len(self.acknowledged) >= before + messages)

    def _send(self) -> None:
        number = 0
        with BlockingClient(self._nameservers) as client:
            while not self._stopping.is_set():
                body = b"%08d" % number
                number += 1
                began_s = time.monotonic()
                try:
                    client.send(Message(TOPIC, body))
                except MillstreamError as error:
                    self.failures.append(str(error))
                else:
                    self.acknowledged.add(body)
                self.slowest_send_s = max(self.slowest_send_s, time.monotonic() - began_s)

    def _consume(self) -> None:
        deadline_s: float | None = None
        with BlockingClient(self._nameservers, group=GROUP) as client:
            while not (self._stopping.is_set() and not self.lost):
                if self._stopping.is_set():
                    deadline_s = deadline_s or time.monotonic() + WAIT_S
                    if time.monotonic() > deadline_s:
                        return
                try:
                    self._round(client)
                except (ConnectionFailed, NameRefused):
                    client.conversations.doubt_route(TOPIC)

    def _round(self, client: BlockingClient) -> None:
        for queue in client.queues(TOPIC):
            offset = client.query_offset(GROUP, queue) or 0
            batch = client.pull(queue, offset)
            bodies = [message.body for message in batch.messages()]
            self.consumed.update(bodies)
            self.deliveries += len(bodies)
            if batch.next_offset > offset:
                client.commit_offset(GROUP, queue, batch.next_offset)
