"""What it costs that a proxy and its broker are two processes: the same load on both forms, in turns of one run."""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.grpc_floor import TOPIC
from benchmarks.grpc_load import LoadProcess
from millstream.client.blocking import BlockingClient
from millstream.model.topic import TopicConfig
from millstream.server.child import RoleProcess, ServerProcess
from millstream.telemetry.processes import ProcessTree

__all__ = ["measure_proxy_hop"]

_GROUP = "bench-readers"
_ROUNDS = 5


@dataclass(frozen=True)
class _Form:
    """One form of the product: where its gRPC port is, and the processes that serve it by name."""

    address: str
    pids: dict[str, int]

    def cpu_s(self) -> dict[str, float]:
        return {name: sum(one.cpu_s for one in ProcessTree([pid]).sample() or []) for name, pid in self.pids.items()}


def measure_proxy_hop(count: int = 2000) -> dict[str, object]:
    """Send, receive and acknowledge with 1 and 64 calls in flight, merged and separated.

    Medians of the rounds: processor microseconds for each message, of each process and together, and latencies.
    """
    with tempfile.TemporaryDirectory() as scratch, ExitStack() as running, LoadProcess() as load:
        forms = {
            "merged": running.enter_context(_merged(Path(scratch) / "merged")),
            "separated": running.enter_context(_separated(Path(scratch) / "separated")),
        }
        for form in forms.values():
            load.run("send", address=form.address, topic=TOPIC, count=300, in_flight=8)
        found: dict[str, object] = {}
        for in_flight in (1, 64):
            rounds: dict[str, dict[str, list[dict[str, Any]]]] = {}
            for _ in range(_ROUNDS):
                for name, form in forms.items():
                    for job, told in _round(load, form, count, in_flight).items():
                        rounds.setdefault(job, {}).setdefault(name, []).append(told)
            found[f"{in_flight}_in_flight"] = {
                job: {name: _medians(told) for name, told in by_form.items()} for job, by_form in rounds.items()
            }
        return found


def _round(load: LoadProcess, form: _Form, count: int, in_flight: int) -> dict[str, dict[str, Any]]:
    here = {"address": form.address, "topic": TOPIC, "in_flight": in_flight}
    return {
        "send": _counted(load, form, "send", count=count, **here),
        "receive": _counted(load, form, "receive", count=count // 2, group=_GROUP, batch=1, **here),
        "ack": _counted(load, form, "ack", count=count // 2, group=_GROUP, **here),
    }


def _counted(load: LoadProcess, form: _Form, job: str, **words: Any) -> dict[str, Any]:
    before = form.cpu_s()
    told = load.run(job, **words)
    messages = max(told.get("messages", told["calls"]), 1)
    spent = {f"{name}_cpu_us": (used - before[name]) / messages * 1e6 for name, used in form.cpu_s().items()}
    return {**told, **spent, "cpu_us": sum(spent.values())}


def _medians(rounds: list[dict[str, Any]]) -> dict[str, float]:
    names = [name for name, value in rounds[0].items() if isinstance(value, int | float)]
    return {name: round(statistics.median(one[name] for one in rounds), 2) for name in names}


def _create(nameserver: str) -> None:
    with BlockingClient(nameserver) as client:
        client.create_topic(TopicConfig(TOPIC))


@contextmanager
def _merged(directory: Path) -> Iterator[_Form]:
    with ServerProcess(directory) as server:
        _create(server.addresses.nameserver)
        yield _Form(server.addresses.grpc, {"server": server.pid})


@contextmanager
def _separated(directory: Path) -> Iterator[_Form]:
    with ExitStack() as running:

        def start(role: str, *options: str) -> RoleProcess:
            return running.enter_context(RoleProcess(role, directory / role, options=options))

        nameserver = start("nameserver", "--port", "0").addresses["nameserver"]
        broker = start("broker", "--port", "0", "--nameservers", nameserver)
        ports = ("--grpc-port", "0", "--remoting-port", "-1")
        proxy = start("proxy", *ports, "--nameservers", nameserver)
        _create(nameserver)
        yield _Form(proxy.addresses["grpc"], {"proxy": proxy.pid, "broker": broker.pid})
