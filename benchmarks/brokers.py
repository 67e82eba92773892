"""One broker process on a machine against several, by `start cluster --brokers N`, under the same load for each."""

from __future__ import annotations

import statistics
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from benchmarks.frame_load import FrameLoad
from millstream.client.blocking import BlockingClient
from millstream.model.topic import TopicConfig
from millstream.server.child import RoleProcess
from millstream.telemetry.processes import ProcessTree

__all__ = ["measure_brokers"]

_TOPIC = "bench"
_NUMBERS = (1, 2, 4)
_ROUNDS = 3
_KINDS = ("send", "pull")
_PORTS = ("--nameserver-port", "0", "--broker-port", "0", "--grpc-port", "0")


def measure_brokers(seconds: float = 4.0) -> dict[str, object]:
    """Messages a second and processor microseconds a message, of all processes of a cluster and of the load.

    Clusters of 1, 2 and 4 brokers in turns, medians of the rounds, and rates as ratios to one broker. Each broker has
    a load process with one connection and 64 requests in flight; both share the machine's cores, so with few of them
    the load's own processor time, which is told too, bounds what more brokers can give.
    """
    with tempfile.TemporaryDirectory() as scratch, ExitStack() as running:
        clusters: dict[int, RoleProcess] = {}
        for number in _NUMBERS:
            options = ("--brokers", str(number), *_PORTS)
            clusters[number] = running.enter_context(
                RoleProcess("cluster", Path(scratch) / str(number), options=options)
            )
            with BlockingClient(clusters[number].addresses["nameserver"]) as client:
                client.create_topic(TopicConfig(_TOPIC))
        found: dict[str, object] = {}
        for kind in _KINDS:
            rounds: dict[int, list[dict[str, float]]] = {number: [] for number in _NUMBERS}
            for _ in range(_ROUNDS):
                for number, cluster in clusters.items():
                    rounds[number].append(_loaded(cluster, kind, seconds))
            found[kind] = _compared(rounds)
        return found


def _loaded(cluster: RoleProcess, kind: str, seconds: float) -> dict[str, float]:
    brokers = [address for name, address in cluster.addresses.items() if name.startswith("broker")]
    with ExitStack() as running:
        loads = [running.enter_context(FrameLoad(address, _TOPIC, kind, seconds)) for address in brokers]
        before_s = _cpu_s(cluster.pid)
        for load in loads:
            load.begin()
        told: list[dict[str, Any]] = [load.found() for load in loads]
        spent_s = _cpu_s(cluster.pid) - before_s
    messages = sum(one["messages"] for one in told)
    return {
        "messages_per_s": sum(one["messages"] / one["seconds"] for one in told),
        "server_cpu_us_per_message": spent_s / messages * 1e6,
        "load_cpu_us_per_message": sum(one["cpu_s"] for one in told) / messages * 1e6,
        "cores_used": (spent_s + sum(one["cpu_s"] for one in told)) / max(one["seconds"] for one in told),
    }


def _compared(rounds: dict[int, list[dict[str, float]]]) -> dict[str, object]:
    middle = {
        number: {what: round(statistics.median(one[what] for one in taken), 2) for what in taken[0]}
        for number, taken in rounds.items()
    }
    return {
        f"{number}_brokers": {**told, "rate_to_one": round(told["messages_per_s"] / middle[1]["messages_per_s"], 2)}
        for number, told in middle.items()
    }


def _cpu_s(pid: int) -> float:
    return sum(one.cpu_s for one in ProcessTree([pid]).sample() or [])
