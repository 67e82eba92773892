"""Gateways as child processes, and what they brought to a topic."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from millstream.client.blocking import BlockingClient
from millstream.model.message import StoredMessage
from millstream.model.topic import TopicConfig

__all__ = [
    "GatewayProcess",
    "bodies",
    "count_of",
    "messages_of",
    "new_topic",
    "ran",
    "running_gateway",
    "wait_for_messages",
]

PATIENCE_S = 60.0


@dataclass
class GatewayProcess:
    """A gateway that is ready. `places` is `host:port` by name."""

    process: subprocess.Popen[str]
    places: dict[str, str]
    lines: list[str] = field(default_factory=list)

    def port(self, name: str) -> int:
        return int(self.places[name].rpartition(":")[2])

    def stop(self) -> tuple[int, dict[str, dict[str, int]], str]:
        """Ask it to end; its exit code, its counts and what it said on standard error."""
        self.process.send_signal(signal.SIGTERM)
        return self.ended()

    def ended(self) -> tuple[int, dict[str, dict[str, int]], str]:
        """The same, once it ends by itself."""
        out, err = self.process.communicate(timeout=PATIENCE_S)
        return self.process.returncode, json.loads(out.splitlines()[-1]), err


@contextmanager
def running_gateway(nameserver: str, *words: str, cwd: Path | None = None) -> Iterator[GatewayProcess]:
    """`millstream ingest WORDS` from its first line on to the end of the block."""
    command = [sys.executable, "-m", "millstream", "ingest", *words, "--nameserver", nameserver, "-o", "json"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=cwd)
    assert process.stdout is not None
    watchdog = threading.Timer(PATIENCE_S, process.kill)
    watchdog.start()
    try:
        first, ready = process.stdout.readline(), process.stdout.readline()
        watchdog.cancel()
        assert ready.startswith("ready"), (first, ready, process.communicate()[1])
        yield GatewayProcess(process, json.loads(first))
    finally:
        watchdog.cancel()
        process.kill()
        process.communicate()


def ran(nameserver: str, *words: str) -> subprocess.CompletedProcess[str]:
    """`millstream ingest WORDS` that ends by itself."""
    command = [sys.executable, "-m", "millstream", "ingest", *words, "--nameserver", nameserver]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S)


def new_topic(nameserver: str, name: str, *, is_bulk: bool = False) -> str:
    """A topic of one queue, so that messages have one order."""
    attributes = {"queue.type": "BatchCQ"} if is_bulk else {}
    with BlockingClient(nameserver) as client:
        client.create_topic(TopicConfig(name, read_queues=1, write_queues=1, attributes=attributes))
    return name


def messages_of(nameserver: str, topic: str) -> list[StoredMessage]:
    """All messages of the topic, queue by queue."""
    found: list[StoredMessage] = []
    with BlockingClient(nameserver) as client:
        for held in client.queue_ranges(topic):
            assert held.queue is not None
            for batch in client.read(held.queue, held.range.min_offset, held.range.max_offset):
                found += batch.messages()
    return found


def count_of(nameserver: str, topic: str) -> int:
    """How many messages the topic holds."""
    with BlockingClient(nameserver) as client:
        return sum(held.range.max_offset - held.range.min_offset for held in client.queue_ranges(topic))


def wait_for_messages(nameserver: str, topic: str, count: int) -> list[StoredMessage]:
    """The same, as soon as there are so many; fails when they do not come."""
    deadline_s = time.monotonic() + PATIENCE_S
    while (came := count_of(nameserver, topic)) < count:
        assert time.monotonic() < deadline_s, f"{came} of {count} messages came"
        time.sleep(0.05)
    return messages_of(nameserver, topic)


def bodies(messages: Sequence[StoredMessage]) -> list[str]:
    return [message.body.decode() for message in messages]
