"""A thousand event streams (SSE) of one HTTP port, over one topic and over a hundred: cost, memory, fairness, and what
happens when half of them read no more.

The clients are `http_stream_load`, a process that shares the cores; what it costs is not counted.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

from millstream.client.blocking import BlockingClient
from millstream.model.topic import TopicConfig
from millstream.server.child import ServerProcess
from millstream.telemetry.processes import ProcessTree

__all__ = ["measure_http_streams"]

_STREAMS: Final = int(os.environ.get("STREAM_COUNT", "1000"))
_TOPICS: Final = (1, 100)
_SINGLE: Final = 50
_MANY: Final = 200
_LARGE: Final = 600
_LARGE_BYTES: Final = 10_000


class _Port:
    """A server with its load."""

    def __init__(self, server: ServerProcess, topics: int) -> None:
        host, _, port = server.addresses.protocols["http"].rpartition(":")
        self._pid = server.pid
        words = [sys.executable, "-m", "benchmarks.http_stream_load", host, port, str(_STREAMS), str(topics)]
        self._empty_bytes = self._memory_bytes()
        self._load = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._answer()
        self.idle_kib = round(self.held_mib() * 1024 / _STREAMS, 1)

    def held_mib(self) -> float:
        """Memory more than before the first stream."""
        return round((self._memory_bytes() - self._empty_bytes) / 2**20, 1)

    def say(self, words: str) -> dict[str, Any]:
        """What the load measures, and the processor µs of the server for an event."""
        before_s = self._cpu_s()
        assert self._load.stdin is not None
        self._load.stdin.write(words + "\n")
        self._load.stdin.flush()
        found = self._answer()
        if events := found.get("events"):
            found["cpu_us_per_event"] = round((self._cpu_s() - before_s) / events * 1e6, 2)
        return found

    def close(self) -> None:
        """End the load."""
        self._load.kill()
        self._load.wait()

    def _answer(self) -> dict[str, Any]:
        assert self._load.stdout is not None
        found: dict[str, Any] = json.loads(self._load.stdout.readline())
        return found

    def _cpu_s(self) -> float:
        return sum(one.cpu_s for one in ProcessTree([self._pid]).sample() or [])

    def _memory_bytes(self) -> int:
        status = dict(line.split(":", 1) for line in Path(f"/proc/{self._pid}/status").read_text().splitlines())
        return int(status["RssAnon"].split()[0]) * 1024


def measure_http_streams() -> dict[str, object]:
    """What the streams cost over each number of topics."""
    return {"streams": _STREAMS, **{f"topics_{topics}": _measure(topics) for topics in _TOPICS}}


def _measure(topics: int) -> dict[str, object]:
    with (
        tempfile.TemporaryDirectory() as scratch,
        ServerProcess(Path(scratch) / "data", options=("--http-port", "0")) as server,
    ):
        with BlockingClient(server.addresses.nameserver, timeout_s=30.0) as client:
            for number in range(topics):
                client.create_topic(TopicConfig(f"stream-{number}", read_queues=1, write_queues=1))
        port = _Port(server, topics)
        try:
            found: dict[str, object] = {"idle_kib_per_stream": port.idle_kib}
            port.say("one 5")
            found["single"] = port.say(f"one {_SINGLE}")
            found["many"] = port.say(f"many {_MANY} 100")
            port.say("stop")
            large = port.say(f"many {_LARGE} {_LARGE_BYTES}")
            found["half_stopped"] = {**large, "held_mib": port.held_mib(), **port.say(f"one {_SINGLE}")}
            found["half_went_on"] = {**port.say("go"), "held_mib": port.held_mib()}
            return found
        finally:
            port.close()
