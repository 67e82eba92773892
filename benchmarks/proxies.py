"""Proxy processes that share one gRPC port, by `start cluster --proxies M`, under the same load for each M."""

from __future__ import annotations

import os
import statistics
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from benchmarks.grpc_load import send_request
from benchmarks.h2load import has_h2load, run_h2load
from millstream.client.blocking import BlockingClient
from millstream.model.topic import TopicConfig
from millstream.server.child import RoleProcess, ServerProcess
from millstream.telemetry.processes import ProcessTree, owners_of

__all__ = ["measure_proxies"]

_TOPIC = "bench"
_NUMBERS = (1, 2, 4)
_ROUNDS = 5
_CONNECTIONS = 32
_IN_FLIGHT = 4
_PORTS = ("--nameserver-port", "0", "--broker-port", "0", "--grpc-port", "0")


class _Form:
    """Where the gRPC port of one form of the product is, and who serves it."""

    def __init__(self, address: str, nameserver: str, pid: int) -> None:
        host, _, port = address.rpartition(":")
        self.address = address
        self._pid = pid
        self._proxies = owners_of(host, int(port))
        with BlockingClient(nameserver) as client:
            client.create_topic(TopicConfig(_TOPIC))

    def cpu_s(self) -> tuple[list[float], float]:
        """Of each process at the port, and of all."""
        return [_cpu_s(pid) for pid in self._proxies], _cpu_s(self._pid)


def measure_proxies(count: int = 10_000) -> dict[str, object]:
    """Sends a second over 32 connections with 4 calls in flight each, and processor microseconds a send.

    One broker behind 1, 2 and 4 proxies, and `merged`: one process without a proxy of its own; in turns, medians of
    the rounds. `busiest_part` is what the busiest proxy had of the processor time of all proxies. The load and the
    broker share the cores with the proxies.
    """
    if not has_h2load():
        return {"skipped": "h2load is not installed"}
    with tempfile.TemporaryDirectory() as scratch, ExitStack() as running:
        merged = running.enter_context(ServerProcess(Path(scratch) / "merged"))
        forms = {"merged": _Form(merged.addresses.grpc, merged.addresses.nameserver, merged.pid)}
        for number in _NUMBERS:
            options = ("--brokers", "1", "--proxies", str(number), *_PORTS)
            cluster = running.enter_context(RoleProcess("cluster", Path(scratch) / str(number), options=options))
            forms[f"{number}_proxies"] = _Form(cluster.addresses["grpc"], cluster.addresses["nameserver"], cluster.pid)
        for form in forms.values():
            _loaded(form, count // 4)
        rounds: dict[str, list[dict[str, float]]] = {name: [] for name in forms}
        for _ in range(_ROUNDS):
            for name, form in forms.items():
                rounds[name].append(_loaded(form, count))
        load_average = round(os.getloadavg()[0], 1)
    middle = {
        name: {what: round(statistics.median(one[what] for one in taken), 2) for what in taken[0]}
        for name, taken in rounds.items()
    }
    one = middle["1_proxies"]["calls_per_s"]
    compared = {name: {**found, "rate_to_one": round(found["calls_per_s"] / one, 2)} for name, found in middle.items()}
    return {"rounds": _ROUNDS, "load_average_1_min": load_average, **compared}


def _loaded(form: _Form, count: int) -> dict[str, float]:
    request = send_request(_TOPIC).SerializeToString()
    proxies_before_s, all_before_s = form.cpu_s()
    found: dict[str, Any] = run_h2load(
        form.address, "SendMessage", request, count, _IN_FLIGHT, connections=_CONNECTIONS
    )
    proxies_s, all_s = form.cpu_s()
    spent_s = [after - before for after, before in zip(proxies_s, proxies_before_s, strict=True)]
    return {
        **{name: found[name] for name in ("calls_per_s", "p50_ms", "p99_ms")},
        "proxies_cpu_us": sum(spent_s) / count * 1e6,
        "all_cpu_us": (all_s - all_before_s) / count * 1e6,
        "load_cpu_us": found["load_cpu_s"] / count * 1e6,
        "busiest_part": max(spent_s) / max(sum(spent_s), 1e-9),
    }


def _cpu_s(pid: int) -> float:
    return sum(one.cpu_s for one in ProcessTree([pid]).sample() or [])
