"""What replicas cost and how fast they change places: real processes on one machine, whose cores they share."""

from __future__ import annotations

import statistics
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from benchmarks.broker_set import BrokerSet, cpu_s, memory_mb, spread
from benchmarks.frame_load import FrameLoad
from benchmarks.promotion import measure_promotion
from millstream.client.blocking import BlockingClient
from millstream.model.errors import MillstreamError
from millstream.model.message import Message
from millstream.model.topic import TopicConfig

__all__ = ["measure_replicas"]

_TOPIC: Final = "bench"
_ROUNDS: Final = 3
_BODY: Final = b"x" * 1024
_BATCH: Final = 1000
_MB: Final = 1_000_000


def measure_replicas(seconds: float = 4.0, failovers: int = 40) -> dict[str, object]:
    """Rates of a set of three against a broker alone in turns, failovers by kill, catching up, memory."""
    with tempfile.TemporaryDirectory() as scratch, ExitStack() as running:
        return {
            "send": _measure_rates(Path(scratch) / "rates", running, seconds),
            "failover_by_kill": _measure_failovers(Path(scratch) / "failovers", running, failovers),
            "catch_up": _measure_catch_up(Path(scratch) / "catch-up", running),
            "promotion": measure_promotion(Path(scratch) / "promotion", running),
        }


def _measure_rates(directory: Path, running: ExitStack, seconds: float) -> dict[str, object]:
    directory.mkdir()
    alone, three = BrokerSet(directory / "alone", running), BrokerSet(directory / "three", running)
    addresses = {"alone": alone.add("a", is_alone=True).addresses["broker"]}
    for name in "abc":
        three.add(name)
    three.await_members(3)
    addresses["three"] = three.brokers[three.master()].addresses["broker"]
    idle = {
        kind: memory_mb(one.brokers["b" if kind == "three" else "a"])
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
        "idlememory_mb": idle,
        "memory_after_mb": {"alone": memory_mb(alone.brokers["a"]), "replica": memory_mb(three.brokers["c"])},
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
    one = BrokerSet(directory, running)
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
        "first_send_s": spread(taken_s),
        "back_in_the_set_after_its_start_s": spread(back_s),
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
    one = BrokerSet(directory, running)
    one.add("a")
    messages = [Message(_TOPIC, _BODY)] * _BATCH
    with BlockingClient(one.nameserver) as client:
        client.create_topic(TopicConfig(_TOPIC))
        for _ in range(megabytes * _MB // (_BATCH * len(_BODY))):
            client.send_many(messages)
    before_s = cpu_s(one.brokers["a"])
    begin_s = time.monotonic()
    replica = one.add("b")
    started_s, started_cpu_s = time.monotonic(), cpu_s(replica)
    one.await_members(2)
    taken_s = time.monotonic() - started_s
    log_mb = one.log_bytes("b") / _MB
    return {
        "log_mb": round(log_mb),
        "seconds": round(taken_s, 2),
        "seconds_of_the_start": round(started_s - begin_s, 2),
        "mb_per_s": round(log_mb / (time.monotonic() - begin_s)),
        "master_cpu_ms_a_mb": round((cpu_s(one.brokers["a"]) - before_s) / log_mb * 1000, 2),
        "replica_cpu_ms_a_mb": round((cpu_s(replica) - started_cpu_s) / log_mb * 1000, 2),
    }
