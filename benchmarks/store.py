"""The store by itself: appends, group commit, restart over a million messages, ten thousand topics."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import resource
import signal
import statistics
import tempfile
import time
from pathlib import Path

from millstream.broker.queues.topics import TopicRegistry
from millstream.client.client import Client
from millstream.client.producer import Producer
from millstream.model.message import Address, Message, OutgoingMessage
from millstream.model.topic import TopicConfig
from millstream.server.child import ServerProcess
from millstream.store.appender import Appender
from millstream.store.files import FileLayer
from millstream.store.message_store import MessageStore, StoreOptions
from millstream.store.snapshot import Snapshot
from millstream.store.write_batch import PendingRecord

__all__ = ["measure_appends", "measure_restart", "measure_sync_flush", "measure_topics"]

_BODY = b"x" * 200
_HOST = Address("10.0.0.9", 4)
_ROUNDS = 5


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _records(count: int, *, topic: str = "bench", queues: int = 4) -> list[PendingRecord]:
    message = OutgoingMessage(topic, _BODY, {}, born_host=_HOST)
    return [PendingRecord(message, number % queues) for number in range(count)]


def measure_appends() -> dict[str, object]:
    """CPU microseconds of one append of 200 bytes, by the number of messages that share a write (best of five)."""
    found: dict[str, object] = {}
    for group in (1, 10, 100, 300):
        rounds = []
        for _ in range(_ROUNDS):
            with tempfile.TemporaryDirectory() as scratch:
                store = MessageStore.open(Path(scratch))
                records = _records(group)
                store.put(records)
                count = max(1, 30_000 // group)
                started = _cpu_s()
                for _ in range(count):
                    store.put(records)
                rounds.append((_cpu_s() - started) / (count * group) * 1e6)
                store.close()
        found[f"cpu_us_{group}_per_write"] = round(min(rounds), 2)
    return found


class _SlowDisk(FileLayer):
    """A disk whose sync takes 2 ms more, as many real ones do."""

    def fdatasync(self, descriptor: int) -> None:
        time.sleep(0.002)
        super().fdatasync(descriptor)


async def _send(directory: Path, senders: int, seconds: float, files: FileLayer | None = None) -> float:
    store = await asyncio.to_thread(MessageStore.open, directory, StoreOptions(sync_flush=True), files=files)
    appender = Appender(store)
    end_s = time.monotonic() + seconds
    [record] = _records(1)

    async def sender() -> int:
        sent = 0
        while time.monotonic() < end_s:
            await appender.append(record)
            sent += 1
        return sent

    started_s = time.monotonic()
    sent = sum(await asyncio.gather(*(sender() for _ in range(senders))))
    rate = sent / (time.monotonic() - started_s)
    await appender.close()
    store.close()
    return rate


def measure_sync_flush() -> dict[str, object]:
    """Acknowledged messages per second, each on the disk before its answer: one sender and a hundred, in turns.

    On this machine's disk, and on one whose sync takes 2 ms longer: the faster the disk, the less a group can save.
    """
    return {"this_disk": _compared(FileLayer()), "disk_of_2_ms": _compared(_SlowDisk())}


def _compared(files: FileLayer) -> dict[str, object]:
    rates: dict[int, list[float]] = {1: [], 100: []}
    for _ in range(3):
        for senders, found in rates.items():
            with tempfile.TemporaryDirectory() as scratch:
                found.append(asyncio.run(_send(Path(scratch), senders, 2.0, files)))
    one, hundred = (statistics.median(found) for found in rates.values())
    return {
        "one_sender_per_s": round(one),
        "hundred_senders_per_s": round(hundred),
        "ratio": round(hundred / one, 1),
    }


def _fill_and_die(directory: str, count: int) -> None:
    """Store as a broker does, with its checkpoints, and end without a stop."""
    store = MessageStore.open(Path(directory))
    records = _records(1000)
    for _ in range(count // 1000):
        store.put(records)
        if store.written_log_offset - store.flushed_log_offset > 4 << 20:
            store.flush()
    os.kill(os.getpid(), signal.SIGKILL)


def _opened(directory: Path) -> tuple[float, float]:
    started_s, started_cpu_s = time.monotonic(), _cpu_s()
    store = MessageStore.open(directory)
    taken = time.monotonic() - started_s, _cpu_s() - started_cpu_s
    store.close()
    return taken


def measure_restart(count: int = 1_000_000) -> dict[str, object]:
    """Seconds until the store is open again after kill -9, and after a clean stop; the same for the whole server."""
    with tempfile.TemporaryDirectory() as scratch:
        data = Path(scratch) / "data"
        child = multiprocessing.get_context("spawn").Process(target=_fill_and_die, args=(str(data / "store"), count))
        child.start()
        child.join()
        store = MessageStore.open(data / "store")
        scanned, kept = store.recovery.scanned_records, sum(store.max_offset("bench", queue) for queue in range(4))
        store.close()
        (data / "store" / "abort").touch()
        killed_s, killed_cpu_s = _reopened_after_kill(Path(scratch), count)
        clean_s, clean_cpu_s = _opened(data / "store")
        started_s = time.monotonic()
        with ServerProcess(data):
            ready_s = time.monotonic() - started_s
    return {
        "messages": kept,
        "records_scanned": scanned,
        "open_after_kill_s": round(killed_s, 2),
        "open_after_kill_cpu_s": round(killed_cpu_s, 2),
        "open_after_stop_s": round(clean_s, 2),
        "open_after_stop_cpu_s": round(clean_cpu_s, 2),
        "server_ready_s": round(ready_s, 2),
    }


def _reopened_after_kill(scratch: Path, count: int) -> tuple[float, float]:
    directory = scratch / "killed" / "store"
    child = multiprocessing.get_context("spawn").Process(target=_fill_and_die, args=(str(directory), count))
    child.start()
    child.join()
    return _opened(directory)


async def _latencies_ms(nameserver: str, topic: str, count: int) -> list[float]:
    taken = []
    async with Client(nameserver) as client:
        producer = Producer(client)
        for number in range(count):
            started_s = time.perf_counter()
            await producer.send(Message(topic, b"%d" % number))
            taken.append((time.perf_counter() - started_s) * 1000)
    return taken


def measure_topics(count: int = 10_000) -> dict[str, object]:
    """Start over many topics of four queues each, and the latency of a send beside that of a broker with one."""
    with tempfile.TemporaryDirectory() as scratch:
        few, many = Path(scratch) / "few", Path(scratch) / "many"
        for data, topics in ((few, 1), (many, count)):
            _make_topics(data, topics)
        opened_s, opened_cpu_s = _opened(many / "store")
        started_s = time.monotonic()
        with ServerProcess(many) as crowded, ServerProcess(few) as empty:
            ready_s = time.monotonic() - started_s
            found: dict[str, list[float]] = {"1": [], str(count): []}
            for _ in range(5):
                for name, server in (("1", empty), (str(count), crowded)):
                    found[name] += asyncio.run(_latencies_ms(server.addresses.nameserver, "topic-0", 200))
    return {
        "topics": count,
        "store_open_s": round(opened_s, 2),
        "store_open_cpu_s": round(opened_cpu_s, 2),
        "both_servers_ready_s": round(ready_s, 2),
        **{f"send_p50_ms_with_{name}_topics": round(statistics.median(taken), 3) for name, taken in found.items()},
    }


def _make_topics(data: Path, count: int) -> None:
    registry = TopicRegistry(Snapshot(data / "config" / "topics.json"))
    # All at once: a topic that is created alone saves all those that are there.
    registry._replace({f"topic-{number}": TopicConfig(f"topic-{number}") for number in range(count)})
    store = MessageStore.open(data / "store")
    for number in range(count):
        store.put(_records(4, topic=f"topic-{number}"))
    store.close()
