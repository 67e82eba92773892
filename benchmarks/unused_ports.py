"""What the MQTT, AMQP and HTTP ports cost where nobody uses them: a server that has them beside one that has not."""

from __future__ import annotations

import statistics
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from benchmarks.frame_load import FrameLoad
from millstream.client.blocking import BlockingClient
from millstream.model.topic import TopicConfig
from millstream.server.child import ServerProcess
from millstream.telemetry.processes import ProcessTree, TreeRecorder

__all__ = ["measure_unused_ports"]

_TOPIC: Final = "bench"
_ROUNDS: Final = 9
_SECONDS: Final = 2.0
_STARTS: Final = 7
_OPTIONS: Final = {
    word: ("--mqtt-port", port, "--amqp-port", port, "--http-port", port)
    for word, port in (("on", "0"), ("off", "off"))
}


def measure_unused_ports() -> dict[str, Any]:
    """Medians with the ports on and off, in turns: processor µs of the server a send and a pulled message over
    remoting, seconds of a start and memory (PSS) after it; and their ratios or differences."""
    started: dict[str, list[tuple[float, float]]] = {word: [] for word in _OPTIONS}
    for _ in range(_STARTS):
        for word, options in _OPTIONS.items():
            started[word].append(_start(options))
    loads: dict[str, dict[str, list[float]]] = {word: {"send": [], "pull": []} for word in _OPTIONS}
    with tempfile.TemporaryDirectory() as scratch, ExitStack() as open_servers:
        servers = {
            word: open_servers.enter_context(ServerProcess(Path(scratch) / word, options=options))
            for word, options in _OPTIONS.items()
        }
        for server in servers.values():
            with BlockingClient(server.addresses.nameserver, timeout_s=30.0) as client:
                client.create_topic(TopicConfig(_TOPIC))
            for kind in ("send", "pull"):
                _load(server, kind)
        for number in range(_ROUNDS):
            # Each is as often the first one as the other.
            for word in sorted(servers, reverse=bool(number % 2)):
                for kind, found in loads[word].items():
                    found.append(_load(servers[word], kind))
    middle = {word: {kind: statistics.median(found) for kind, found in kinds.items()} for word, kinds in loads.items()}
    return {
        **{f"{kind}_us": {word: round(middle[word][kind], 3) for word in middle} for kind in ("send", "pull")},
        **{f"{kind}_ratio": round(middle["on"][kind] / middle["off"][kind], 3) for kind in ("send", "pull")},
        "start_more_ms": round((_median(started["on"], 0) - _median(started["off"], 0)) * 1000, 1),
        "memory_more_mb": round(_median(started["on"], 1) - _median(started["off"], 1), 2),
        "start_s": {word: round(_median(found, 0), 3) for word, found in started.items()},
        "memory_mb": {word: round(_median(found, 1), 1) for word, found in started.items()},
    }


def _median(found: list[tuple[float, float]], place: int) -> float:
    return statistics.median(one[place] for one in found)


def _start(options: tuple[str, ...]) -> tuple[float, float]:
    """Seconds until it is ready, and its memory in MiB then."""
    with tempfile.TemporaryDirectory() as scratch:
        began_s = time.monotonic()
        with ServerProcess(Path(scratch) / "data", options=options) as server:
            seconds = time.monotonic() - began_s
            recorder = TreeRecorder([server.pid])
            recorder.take()
            return seconds, (recorder.peak_bytes or 0) / 2**20


def _load(server: ServerProcess, kind: str) -> float:
    """Processor µs of the server a message."""
    with FrameLoad(server.addresses.broker, _TOPIC, kind, _SECONDS) as load:
        before_s = _cpu_s(server.pid)
        load.begin()
        found = load.found()
        return (_cpu_s(server.pid) - before_s) / float(found["messages"]) * 1e6


def _cpu_s(pid: int) -> float:
    return sum(one.cpu_s for one in ProcessTree([pid]).sample() or [])
