"""What replicas cost and how fast they change places: real processes on one machine, whose cores they share."""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from benchmarks.frame_load import FrameLoad
from millstream.client.blocking import BlockingClient, BlockingConnection
from millstream.model.errors import MillstreamError
from millstream.model.message import Message
from millstream.model.topic import TopicConfig
from millstream.protocol.remoting.command import RemotingCommand
from millstream.server.child import RoleProcess
from millstream.telemetry.processes import ProcessTree

__all__ = ["measure_replicas"]

_NAME: Final = "broker-a"
_TOPIC: Final = "bench"
_ROUNDS: Final = 3
_BODY: Final = b"x" * 1024
_BATCH: Final = 1000
_MB: Final = 1_000_000


class _Set:
    """A nameserver with a controller, and replicas that are started one by one."""

    def __init__(self, directory: Path, running: ExitStack) -> None:
        self._directory = directory
        self._running = running
        directory.mkdir()
        options = ("--set", "port=0", "--set", "controller.enabled=true", "--set", "controller.port=0")
        log = directory / "nameserver.log"
        found = running.enter_context(RoleProcess("nameserver", directory / "nameserver", options=options, log=log))
        self.nameserver, self._controller = found.addresses["nameserver"], found.addresses["controller"]
        self.brokers: dict[str, RoleProcess] = {}
        self._line = BlockingConnection(self._controller, timeout_s=5)

    def add(self, name: str, port: str = "0", *, is_alone: bool = False) -> RoleProcess:
        settings = [f"port={port}", f"name={_NAME}", f'nameservers=["{self.nameserver}"]']
        if not is_alone:
            settings.append(f'controllers=["{self._controller}"]')
        options = [word for setting in settings for word in ("--set", setting)]
        process = RoleProcess("broker", self._directory / name, options=options, log=self._directory / f"{name}.log")
        self.brokers[name] = self._running.enter_context(process)
        return process

    def info(self) -> dict[str, object]:
        answer = self._line.request(RemotingCommand(1006, {}, json.dumps([_NAME]).encode()), 5)
        found: dict[str, object] = json.loads(answer.body)["replicasInfoTable"].get(_NAME, {})
        return found

    def await_members(self, count: int) -> None:
        deadline_s = time.monotonic() + 120
        while len(self.info().get("inSyncReplicas") or ()) != count:  # type: ignore[arg-type]
            assert time.monotonic() < deadline_s, self.info()
            time.sleep(0.005)

    def master(self) -> str:
        """The name of the master's process."""
        address = self.info()["masterAddress"]
        return next(name for name, one in self.brokers.items() if one.addresses["broker"] == address)


def measure_replicas(seconds: float = 4.0, failovers: int = 40) -> dict[str, object]:
    """Rates of a set of three against a broker alone in turns, failovers by kill, catching up, memory."""
    with tempfile.TemporaryDirectory() as scratch, ExitStack() as running:
        return {
            "send": _measure_rates(Path(scratch) / "rates", running, seconds),
            "failover_by_kill": _measure_failovers(Path(scratch) / "failovers", running, failovers),
            "catch_up": _measure_catch_up(Path(scratch) / "catch-up", running),
        }


def _measure_rates(directory: Path, running: ExitStack, seconds: float) -> dict[str, object]:
    directory.mkdir()
    alone, three = _Set(directory / "alone", running), _Set(directory / "three", running)
    addresses = {"alone": alone.add("a", is_alone=True).addresses["broker"]}
    for name in "abc":
        three.add(name)
    three.await_members(3)
    addresses["three"] = three.brokers[three.master()].addresses["broker"]
    idle = {
        kind: _memory_mb(one.brokers["b" if kind == "three" else "a"])
        for kind, one in (("alone", alone), ("three", three))
    }
    rates: dict[str, list[float]] = {"alone": [], "three": []}
    for one in (alone, three):
        with BlockingClient(one.nameserver) as client:
            client.create_topic(TopicConfig(_TOPIC))
    for _ in range(_ROUNDS):
        for kind in rates:
            with FrameLoad(addresses[kind], _TOPIC, "send", seconds) as load:
                load.begin()
                told = load.found()
            rates[kind].append(told["messages"] / told["seconds"])
    calls = {kind: _time_calls(one.nameserver) for kind, one in (("alone", alone), ("three", three))}
    middle = {kind: round(statistics.median(found)) for kind, found in rates.items()}
    return {
        "messages_per_s": middle,
        "rate_to_alone": round(middle["three"] / middle["alone"], 2),
        "one_call_ms": calls,
        "idle_memory_mb": idle,
        "memory_after_mb": {"alone": _memory_mb(alone.brokers["a"]), "replica": _memory_mb(three.brokers["c"])},
    }


def _time_calls(nameserver: str, count: int = 2000) -> dict[str, float]:
    """Milliseconds of sends of 1 KiB, one after the other."""
    with BlockingClient(nameserver) as client:
        taken = []
        for _ in range(count):
            begin_s = time.perf_counter()
            client.send(Message(_TOPIC, _BODY))
            taken.append((time.perf_counter() - begin_s) * 1000)
    taken.sort()
    return {"p50": round(taken[count // 2], 3), "p99": round(taken[count * 99 // 100], 3)}


def _measure_failovers(directory: Path, running: ExitStack, count: int) -> dict[str, object]:
    """From the kill of the master to the first send that is answered, and from a process's start to its place in the
    set; what was acknowledged and is not there in the end."""
    one = _Set(directory, running)
    for name in "abc":
        one.add(name)
    one.await_members(3)
    taken_s, back_s, acknowledged = [], [], []
    with BlockingClient(one.nameserver) as client:
        client.create_topic(TopicConfig(_TOPIC, read_queues=1, write_queues=1))
        for number in range(count):
            acknowledged += [_send(client, f"{number}.{step}") for step in range(20)]
            master = one.master()
            port = one.brokers[master].addresses["broker"].rpartition(":")[2]
            one.brokers[master].kill()
            begin_s = time.monotonic()
            acknowledged.append(_send(client, f"{number}.first"))
            taken_s.append(time.monotonic() - begin_s)
            one.add(master, port)
            begin_s = time.monotonic()
            one.await_members(3)
            back_s.append(time.monotonic() - begin_s)
        found = []
        [queue] = client.queues(_TOPIC)
        while messages := client.pull(queue, len(found)).messages():
            found += [message.body.decode() for message in messages]
    return {
        "failovers": count,
        "first_send_s": _spread(taken_s),
        "back_in_the_set_after_its_start_s": _spread(back_s),
        "acknowledged": len(acknowledged),
        "lost": len({*acknowledged} - {*found}),
    }


def _send(client: BlockingClient, body: str) -> str:
    while True:
        try:
            client.send(Message(_TOPIC, body.encode()))
        except MillstreamError:
            continue
        return body


def _measure_catch_up(directory: Path, running: ExitStack, megabytes: int = 400) -> dict[str, object]:
    """How fast an empty replica copies a log."""
    one = _Set(directory, running)
    one.add("a")
    messages = [Message(_TOPIC, _BODY)] * _BATCH
    with BlockingClient(one.nameserver) as client:
        client.create_topic(TopicConfig(_TOPIC))
        for _ in range(megabytes * _MB // (_BATCH * len(_BODY))):
            client.send_many(messages)
    begin_s = time.monotonic()
    one.add("b")
    ready_s = time.monotonic() - begin_s
    one.await_members(2)
    taken_s = time.monotonic() - begin_s - ready_s
    return {"log_mb": megabytes, "seconds": round(taken_s, 2), "mb_per_s": round(megabytes / taken_s)}


def _spread(values: list[float]) -> dict[str, float]:
    ordered = sorted(values)
    shares = {"p50": 50, "p95": 95, "max": 100}
    return {
        name: round(ordered[min(len(ordered) * share // 100, len(ordered) - 1)], 3) for name, share in shares.items()
    }


def _memory_mb(process: RoleProcess) -> float:
    [one, *_] = ProcessTree([process.pid]).sample() or []
    return round((one.memory_bytes or 0) / _MB)
