"""The gRPC port beside the reference's: the same load on ours, on ours by grpc.aio, and on a RocketMQ 5.3 broker with
the proxy in its process, in turns.

All three are merged servers over one directory, with asynchronous flushes and topics that were made before. The load
is plaintext on one connection, with 100-byte bodies. Before the first round each server gets calls until what a call
costs is level: Java compiles itself meanwhile.
"""

from __future__ import annotations

import os
import statistics
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from interop.driver import Missing
from interop.reference.servers import PROXY_HEAP_MB, ReferenceServers

from benchmarks.grpc_load import LoadProcess, send_request
from benchmarks.h2load import has_h2load, run_h2load
from millstream.client.blocking import BlockingClient
from millstream.model.topic import TopicConfig
from millstream.server.child import ServerProcess
from millstream.telemetry.processes import ProcessTree

__all__ = ["measure_grpc_reference"]

_TOPIC = "bench"
_GROUP = "bench-readers"
_QUEUES = 8
_ROUNDS = 5
_BATCH = 32
_WAITING = 8
_IN_FLIGHT = 64
_WARM_UP_CALLS = 4000
_WARM_UP_TURNS = range(5, 16)
_LEVEL = 0.1
_SINGLE_ACKS = 3000

Found = dict[str, Any]


@dataclass(frozen=True)
class _Server:
    name: str
    address: str
    nameserver: str
    pid: int

    def cpu_s(self) -> float:
        return _cpu_s(self.pid)


def measure_grpc_reference(count: int = 10_000) -> dict[str, object]:
    """Medians of the rounds for each job: rate, p50 and p99, processor microseconds of server and load a message.

    `..._ratio` are ours divided by the other's. `count` sends have 64 in flight, a third as many one.
    """
    with tempfile.TemporaryDirectory() as scratch, ExitStack() as running, LoadProcess() as load:
        try:
            servers = [running.enter_context(server) for server in _servers(Path(scratch))]
        except Missing as missing:
            return {"skipped": str(missing)}
        warm_up = {server.name: _warm_up(server, load) for server in servers}
        load_average = [os.getloadavg()]
        rounds: dict[str, dict[str, list[Found]]] = {}
        for _ in range(_ROUNDS):
            for job, work in _jobs(load, count).items():
                for server in servers:
                    rounds.setdefault(job, {}).setdefault(server.name, []).append(_counted(server, load, work))
            load_average.append(os.getloadavg())
    return {
        "rounds": _ROUNDS,
        "load_average_1_min": [round(one[0], 1) for one in load_average],
        "sends_by_h2load": has_h2load(),
        "reference_heap_mb": PROXY_HEAP_MB,
        "warm_up": warm_up,
        **{job: _compared(by_server) for job, by_server in rounds.items()},
    }


def _servers(scratch: Path) -> Iterator[Any]:
    yield _reference(scratch / "reference")
    yield _ours("ours", scratch / "ours")
    yield _ours("ours_grpcio", scratch / "grpcio", "--grpc-transport", "grpcio")


@contextmanager
def _ours(name: str, directory: Path, *options: str) -> Iterator[_Server]:
    with ServerProcess(directory, options=options) as server:
        found = _Server(name, server.addresses.grpc, server.addresses.nameserver, server.pid)
        _create_topic(found)
        yield found


@contextmanager
def _reference(directory: Path) -> Iterator[_Server]:
    with ReferenceServers(directory, has_proxy=True) as servers:
        found = _Server("reference", servers.grpc, servers.nameserver, servers.broker_process.pid)
        _create_topic(found)
        yield found


def _create_topic(server: _Server) -> None:
    with BlockingClient(server.nameserver) as client:
        client.create_topic(TopicConfig(_TOPIC, read_queues=_QUEUES, write_queues=_QUEUES))


def _warm_up(server: _Server, load: LoadProcess) -> Found:
    """Send until a call costs the same in three turns, then receive and acknowledge all of it."""
    here = {"address": server.address, "topic": _TOPIC}
    load.run("open_consumer", **here, group=_GROUP)
    # A group begins where the topic ends when it first receives.
    load.run("receive", **here, group=_GROUP, count=1, in_flight=1, batch=1)
    costs_us: list[float] = []
    for turn in _WARM_UP_TURNS:
        while len(costs_us) < turn:
            before_s = server.cpu_s()
            _send(server, load, _WARM_UP_CALLS, _IN_FLIGHT)
            costs_us.append((server.cpu_s() - before_s) / _WARM_UP_CALLS * 1e6)
        if max(costs_us[-3:]) <= min(costs_us[-3:]) * (1 + _LEVEL):
            break
    load.run("send", **here, count=_WARM_UP_CALLS // 2, in_flight=_IN_FLIGHT)
    sent = _WARM_UP_CALLS * len(costs_us) + _WARM_UP_CALLS // 2
    taking = {**here, "group": _GROUP}
    load.run("receive_all", **taking, messages=sent, in_flight=_WAITING, batch=_BATCH)
    load.run("ack_all", **taking, messages=_SINGLE_ACKS, in_flight=_IN_FLIGHT, batch=1)
    load.run("ack_all", **taking, messages=sent - _SINGLE_ACKS, in_flight=_WAITING, batch=_BATCH)
    return {"sends": sent, "first_us": round(costs_us[0]), "last_us": round(costs_us[-1])}


def _send(server: _Server, load: LoadProcess, count: int, in_flight: int) -> Found:
    if not has_h2load():
        return load.run("send", address=server.address, topic=_TOPIC, count=count, in_flight=in_flight)
    request = send_request(_TOPIC).SerializeToString()
    return run_h2load(server.address, "SendMessage", request, count, in_flight)


def _jobs(load: LoadProcess, count: int) -> dict[str, Callable[[_Server], Found]]:
    """The jobs of a round, in order: what is sent is received, so a send that only seemed to be one ends the run."""
    few = count // 3
    sent = (count + few) * (2 if has_h2load() else 1)
    single = min(_SINGLE_ACKS, sent // 4)

    def run(job: str, **words: Any) -> Callable[[_Server], Found]:
        return lambda server: load.run(job, address=server.address, topic=_TOPIC, **words)

    jobs: dict[str, Callable[[_Server], Found]] = {}
    if has_h2load():
        jobs["h2load_send_64"] = lambda server: _send(server, load, count, _IN_FLIGHT)
        jobs["h2load_send_1"] = lambda server: _send(server, load, few, 1)
    return jobs | {
        "send_64": run("send", count=count, in_flight=_IN_FLIGHT),
        "send_1": run("send", count=few, in_flight=1),
        "receive_32_of_8": run("receive_all", group=_GROUP, messages=sent, in_flight=_WAITING, batch=_BATCH),
        "ack_1_of_64": run("ack_all", group=_GROUP, messages=single, in_flight=_IN_FLIGHT, batch=1),
        "ack_32_of_8": run("ack_all", group=_GROUP, messages=sent - single, in_flight=_WAITING, batch=_BATCH),
    }


def _counted(server: _Server, load: LoadProcess, work: Callable[[_Server], Found]) -> Found:
    before_s, load_before_s = server.cpu_s(), _cpu_s(load.pid)
    found = work(server)
    spent_s = server.cpu_s() - before_s
    load_s = found.pop("load_cpu_s", None) or _cpu_s(load.pid) - load_before_s
    messages = found.get("messages", found["calls"])
    return {
        "messages_per_s": found["messages_per_s"] if "messages_per_s" in found else found["calls_per_s"],
        **{name: found[name] for name in ("p50_ms", "p99_ms", "empty_calls") if name in found},
        "server_cpu_us": spent_s / messages * 1e6,
        "load_cpu_us": load_s / messages * 1e6,
    }


def _compared(by_server: dict[str, list[Found]]) -> Found:
    middle = {
        name: {what: round(statistics.median(one[what] for one in taken), 2) for what in taken[0]}
        for name, taken in by_server.items()
    }
    found: Found = dict(middle)
    for other in ("reference", "ours_grpcio"):
        # Of each round, as both saw the same machine then.
        pairs = list(zip(by_server["ours"], by_server[other], strict=True))
        for what in ("messages_per_s", "server_cpu_us", "p50_ms", "p99_ms"):
            ratios = [ours[what] / max(theirs[what], 1e-9) for ours, theirs in pairs]
            found[f"{what}_ratio_to_{other}"] = round(statistics.median(ratios), 3)
    return found


def _cpu_s(pid: int) -> float:
    return sum(one.cpu_s for one in ProcessTree([pid]).sample() or [])
