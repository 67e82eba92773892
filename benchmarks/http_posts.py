"""The HTTP port as a process of its own: events in binary mode and in batches, beside the port alone.

The port alone is the same transport before an application that reads the body and answers at once, so that the
difference is what the product does. The load is `http_load`, a process that shares the cores.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

from millstream.client.blocking import BlockingClient
from millstream.model.topic import TopicConfig
from millstream.server.child import ServerProcess
from millstream.telemetry.processes import ProcessTree

__all__ = ["measure_http"]

_ROUNDS: Final = 3
_POSTS: Final = 10_000
_BATCHES: Final = 300
_BATCH: Final = 100

_BARE: Final = """
import asyncio
from millstream.transport.http_port import AsgiPort

async def application(scope, receive, send):
    await receive()
    headers = [(b"content-length", b"2"), (b"content-type", b"application/json")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b"{}"})

async def main():
    print(await AsgiPort(application).start(), flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


def _cpu_s(pid: int) -> float:
    return sum(one.cpu_s for one in ProcessTree([pid]).sample() or [])


def _load(pid: int, address: str, connections: int, requests: int, events: int) -> tuple[float, float]:
    """Processor µs of the server an event, and events a second."""
    host, _, port = address.rpartition(":")
    words = [sys.executable, "-m", "benchmarks.http_load", host, port, "orders"]
    before_s = _cpu_s(pid)
    out = subprocess.run(
        [*words, str(connections), str(requests), str(events)], check=True, capture_output=True, text=True
    ).stdout
    count = requests * events
    return (_cpu_s(pid) - before_s) / count * 1e6, count / float(out)


def _middle(measure: Callable[[], tuple[float, float]]) -> dict[str, object]:
    rounds = [measure() for _ in range(_ROUNDS)]
    return {
        "cpu_us_per_event": round(statistics.median(cpu_us for cpu_us, _ in rounds), 1),
        "events_per_s": round(statistics.median(rate for _, rate in rounds)),
    }


def measure_http() -> dict[str, object]:
    """Processor time of an event by each way, and of a request to the port alone."""
    with tempfile.TemporaryDirectory() as scratch:
        options = ("--http-port", "0")
        bare = subprocess.Popen([sys.executable, "-c", _BARE], stdout=subprocess.PIPE, text=True)
        try:
            assert bare.stdout is not None
            bare_address = f"127.0.0.1:{bare.stdout.readline().strip()}"
            with ServerProcess(Path(scratch) / "data", options=options) as server:
                with BlockingClient(server.addresses.nameserver, timeout_s=30.0) as client:
                    client.create_topic(TopicConfig("orders"))
                address = server.addresses.protocols["http"]
                _load(server.pid, address, 16, _POSTS // 10, 1)
                return {
                    "port_alone": _middle(lambda: _load(bare.pid, bare_address, 16, _POSTS, 1)),
                    "binary_16_connections": _middle(lambda: _load(server.pid, address, 16, _POSTS, 1)),
                    "batch_of_100": _middle(lambda: _load(server.pid, address, 4, _BATCHES, _BATCH)),
                }
        finally:
            bare.terminate()
            bare.wait()
