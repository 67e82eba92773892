"""The gRPC port: processor time and latency of its calls, our own share of them, idle consumers, a large backlog."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from rocketmq import ClientConfiguration, Credentials, FilterExpression, Message, Producer, SimpleConsumer

from benchmarks.grpc_floor import PORTS, TOPIC
from benchmarks.grpc_load import BODY, INVISIBLE_S, LoadProcess
from millstream.client.blocking import BlockingClient
from millstream.model.group import GroupConfig
from millstream.model.message import Address, OutgoingMessage
from millstream.model.topic import TopicConfig
from millstream.server.child import ServerProcess
from millstream.store.message_store import MessageStore
from millstream.store.write_batch import PendingRecord
from millstream.telemetry.processes import ProcessTree

__all__ = ["measure_backlog", "measure_calls", "measure_idle_consumers", "measure_share"]

_IN_FLIGHT = (1, 64)
_GROUP = "bench-readers"
_TRIPS = "bench-trips"
_HOST = Address("10.0.0.9", 4)
_ROUNDS = 5


def _usage(pid: int) -> tuple[float, float]:
    """Processor seconds and memory (MB) of a server."""
    samples = ProcessTree([pid]).sample() or []
    return sum(one.cpu_s for one in samples), sum(one.memory_bytes for one in samples) / 2**20


def _prepare(server: ServerProcess) -> None:
    with BlockingClient(server.addresses.nameserver) as client:
        for topic in (TOPIC, _TRIPS):
            client.create_topic(TopicConfig(topic))


def _counted(server: ServerProcess, work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What the work found, and the server's processor microseconds for each message of it."""
    before_s, _ = _usage(server.pid)
    found = work()
    cpu_s = _usage(server.pid)[0] - before_s
    messages = found.get("messages", found["calls"])
    return {**found, "server_cpu_us_per_message": round(cpu_s / max(messages, 1) * 1e6)}


def measure_calls(count: int = 3000) -> dict[str, object]:
    """Send, receive and acknowledge with 1 and with 64 calls in flight, by stubs and by the official client.

    Processor microseconds of the server for each message; p50 and p99 of the calls, and from send to delivery (trip).
    """
    found: dict[str, object] = {}
    with tempfile.TemporaryDirectory() as scratch, ServerProcess(Path(scratch) / "data") as server:
        _prepare(server)
        with LoadProcess() as load:
            address = server.addresses.grpc
            load.run("send", address=address, topic=TOPIC, count=300, in_flight=8)
            for in_flight in _IN_FLIGHT:
                found[f"stubs_{in_flight}_in_flight"] = _by_stubs(server, load, count, in_flight)
        for in_flight in _IN_FLIGHT:
            found[f"official_{in_flight}_in_flight"] = _by_official_client(server, count // 2, in_flight)
    return found


def _by_stubs(server: ServerProcess, load: LoadProcess, count: int, in_flight: int) -> dict[str, object]:
    here: dict[str, Any] = {"address": server.addresses.grpc, "topic": TOPIC}
    taking = {**here, "group": _GROUP, "in_flight": in_flight}
    batches = count // 32

    def run(job: str, **words: Any) -> dict[str, Any]:
        return _counted(server, lambda: load.run(job, **words))

    return {
        "send": run("send", **here, count=2 * count, in_flight=in_flight),
        "receive": run("receive", **taking, count=count, batch=1),
        "receive_32": run("receive", **taking, count=batches, batch=32),
        "ack": run("ack", **taking, count=count),
        "trip": run("trips", **(taking | {"topic": _TRIPS, "group": _TRIPS}), count=count),
    }


def _by_official_client(server: ServerProcess, count: int, in_flight: int) -> dict[str, object]:
    configuration = ClientConfiguration(server.addresses.grpc, Credentials())
    topic, group = f"official-{in_flight}", f"official-readers-{in_flight}"
    with BlockingClient(server.addresses.nameserver) as client:
        client.create_topic(TopicConfig(topic))
        client.create_group(GroupConfig(group))
    producer = Producer(configuration, (topic,))
    consumer = SimpleConsumer(configuration, group, {topic: FilterExpression("*")}, await_duration=1)
    taken: list[Any] = []
    pool = ThreadPoolExecutor(in_flight)

    def send() -> Any:
        message = Message()
        message.topic, message.body = topic, BODY
        return producer.send_async(message) if in_flight > 1 else producer.send(message)

    def receive() -> Any:
        if in_flight > 1:
            return consumer.receive_async(32, INVISIBLE_S)
        return taken.extend(consumer.receive(32, INVISIBLE_S))

    def ack() -> Any:
        # The client's ack_async gives no future.
        return pool.submit(consumer.ack, taken.pop()) if in_flight > 1 else consumer.ack(taken.pop())

    def run(one: Callable[[], Any], calls: int) -> dict[str, Any]:
        return _counted(server, lambda: _together(one, calls, in_flight, taken))

    producer.startup()
    consumer.startup()
    try:
        _together(send, 50, in_flight, taken)
        taken.clear()
        sent = run(send, count)
        received = _counted(server, lambda: _all_received(receive, count, in_flight, taken))
        return {"send": sent, "receive_32": received, "ack": run(ack, len(taken))}
    finally:
        pool.shutdown()
        producer.shutdown()
        consumer.shutdown()


def _together(one: Callable[[], Any], calls: int, in_flight: int, taken: list[Any]) -> dict[str, Any]:
    slots, began_s = threading.Semaphore(in_flight), time.perf_counter()
    received = []

    def done(future: Any) -> None:
        received.append(future.result())
        slots.release()

    for _ in range(calls):
        slots.acquire()
        future = one()
        if future is None or not hasattr(future, "add_done_callback"):
            slots.release()
        else:
            future.add_done_callback(done)
    for _ in range(in_flight):
        slots.acquire()
    taken.extend(message for found in received if isinstance(found, list) for message in found)
    return {"calls": calls, "calls_per_s": round(calls / (time.perf_counter() - began_s))}


def _all_received(receive: Callable[[], Any], count: int, in_flight: int, taken: list[Any]) -> dict[str, Any]:
    calls, began_s = 0, time.perf_counter()
    while len(taken) < count and calls < count:
        calls += _together(receive, max(1, (count - len(taken)) // 32), in_flight, taken)["calls"]
    return {"calls": calls, "messages": len(taken), "calls_per_s": round(calls / (time.perf_counter() - began_s))}


def measure_share(count: int = 2000) -> dict[str, object]:
    """What each layer of a call costs, beside grpc.aio: processor microseconds, the median of rounds in turns.

    `handlers` are ours called without a transport; the others are calls of SendMessage to the layers of `grpc_floor`.
    """
    command = [sys.executable, "-m", "benchmarks.grpc_floor"]
    with (
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as floor,
        LoadProcess() as load,
    ):
        assert floor.stdin is not None
        assert floor.stdout is not None
        ports = json.loads(floor.stdout.readline())

        def ask(what: str) -> Any:
            print(what, file=floor.stdin, flush=True)
            assert floor.stdout is not None
            return json.loads(floor.stdout.readline())

        found: dict[str, object] = {"handlers": ask("handlers")}
        for in_flight in _IN_FLIGHT:
            taken: dict[str, list[float]] = {name: [] for name in PORTS}
            for number in range(_ROUNDS + 1):
                for name in PORTS:
                    before_s = ask("cpu")["cpu_s"]
                    load.run("send", address=f"127.0.0.1:{ports[name]}", topic=TOPIC, count=count, in_flight=in_flight)
                    if number:
                        taken[name].append((ask("cpu")["cpu_s"] - before_s) / count * 1e6)
            found[f"send_{in_flight}_in_flight"] = _layers(taken)
        floor.stdin.close()
    return found


def _layers(taken: dict[str, list[float]]) -> dict[str, float]:
    """Of each layer the median, and what one adds to the one below it: the median of the differences by round."""

    def more(layer: str, below: str) -> float:
        pairs = zip(taken[layer], taken[below], strict=True)
        return round(statistics.median(upper - lower for upper, lower in pairs), 1)

    return {
        **{f"{name}_us": round(statistics.median(found), 1) for name, found in taken.items()},
        "grpcio_over_plain_us": more("grpcio", "plain"),
        "plain_over_http2_us": more("plain", "http2"),
        "handler_over_http2_us": more("whole", "http2"),
    }


def measure_idle_consumers(consumers: int = 10_000, groups: int = 20, watch_s: float = 30.0) -> dict[str, object]:
    """Memory and processor time of a server with consumers in long polls of 20 s, and how fast a send reaches one."""
    with tempfile.TemporaryDirectory() as scratch, ServerProcess(Path(scratch) / "data") as server:
        _prepare(server)
        here = {"address": server.addresses.grpc, "topic": TOPIC}
        with LoadProcess() as load, LoadProcess() as sender:
            sender.run("send", **here, count=10, in_flight=1)
            _, alone_mb = _usage(server.pid)
            load.run("wait_idle", **here, count=consumers, groups=groups)
            while load.run("idle_polls")["polls"] < consumers:
                time.sleep(0.1)
            time.sleep(10.0)
            before_s, waiting_mb = _usage(server.pid)
            polls, began_s = load.run("idle_polls")["polls"], time.monotonic()
            time.sleep(watch_s)
            seconds, polls = time.monotonic() - began_s, load.run("idle_polls")["polls"] - polls
            cpu_s = _usage(server.pid)[0] - before_s
            reached = load.run("reach_idle", **here, count=50, groups=groups)
            _, after_mb = _usage(server.pid)
    return {
        "consumers": consumers,
        "connections": 100,
        "groups": groups,
        "memory_mb_without": round(alone_mb, 1),
        "memory_mb_waiting": round(waiting_mb, 1),
        "memory_mb_after": round(after_mb, 1),
        "memory_kb_per_consumer": round((waiting_mb - alone_mb) / consumers * 1024, 1),
        "cores_used": round(cpu_s / seconds, 3),
        "cpu_us_per_poll": round(cpu_s / max(polls, 1) * 1e6),
        "send_reaches": reached,
    }


def measure_backlog(messages: int = 1_000_000, count: int = 1500, pause_s: float = 0.01) -> dict[str, object]:
    """Live p99 with 1 million messages that wait for another group, while it reads them too, and without, in turns.

    `idle` is a backlog that lies there, `read` one that is read by two receives at a time as fast as they come.
    """
    with tempfile.TemporaryDirectory() as scratch:
        large, small = Path(scratch) / "large", Path(scratch) / "small"
        _fill(large, messages)
        with ServerProcess(large) as behind, ServerProcess(small) as empty, LoadProcess() as load:
            _prepare(behind)
            _prepare(empty)
            taken: dict[str, list[dict[str, Any]]] = {"without": [], "idle": [], "read": []}
            read = 0
            for number in range(_ROUNDS + 1):
                for name, server in (("without", empty), ("idle", behind), ("read", behind)):
                    here = {"address": server.addresses.grpc, "topic": _TRIPS}
                    if name == "read":
                        backlog = {"address": server.addresses.grpc, "topic": TOPIC, "group": _GROUP}
                        reader = LoadProcess().__enter__()
                        reader.run("read_backlog", **backlog, in_flight=2)
                    found = load.run("paced", **here, group=_TRIPS, count=count // _ROUNDS, pause_s=pause_s)
                    if name == "read":
                        read += reader.run("stop_reading")["read"]
                        reader.__exit__(None, None, None)
                    if number:
                        taken[name].append(found)
    return {"messages": messages, "read_meanwhile": read, **_compared(taken)}


def _compared(taken: dict[str, list[dict[str, Any]]]) -> dict[str, object]:
    found: dict[str, object] = {}
    for name, rounds in taken.items():
        for what in ("send", "trip"):
            for part in ("p50_ms", "p99_ms"):
                found[f"{what}_{part}_{name}"] = round(statistics.median(one[what][part] for one in rounds), 2)
    for name in ("idle", "read"):
        for what in ("send", "trip"):
            ratios = [
                one[what]["p99_ms"] / other[what]["p99_ms"]
                for one, other in zip(taken[name], taken["without"], strict=True)
            ]
            found[f"{what}_p99_ratio_{name}"] = round(statistics.median(ratios), 2)
    return found


def _fill(data: Path, count: int) -> None:
    store = MessageStore.open(data / "store")
    records = [PendingRecord(OutgoingMessage(TOPIC, BODY, {}, born_host=_HOST), number % 4) for number in range(1000)]
    for _ in range(count // 1000):
        store.put(records)
    store.close()
