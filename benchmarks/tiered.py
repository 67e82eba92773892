"""Tiered storage: what an upload costs, what it and cold readers do to sends, and how fast cold messages are read.

Both forms of the hot modules run in turns, each in a process of its own. The object store is a directory in memory, so
that the figures are the broker's. The rate of the machine swings: rates are the best of the rounds, by the process's
own time, and the ratios of latencies are of neighbours within one process. A send is due when another process says so,
as requests are: a timer of the event loop comes up to a millisecond late. On a busy machine it waits for a processor as
well; ratios are also given without that, which are those of a machine with room.
"""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import os
import random
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import NamedTuple

from millstream.broker import cold_tier
from millstream.broker.broker import Broker, BrokerOptions
from millstream.broker.cold_tier import TieredOptions
from millstream.model.message import OutgoingMessage
from millstream.model.operations import PullRequest, PullStatus
from millstream.model.topic import TopicConfig
from millstream.store.message_store import MessageStore, PendingRecord, StoreOptions
from millstream.store.retention import RetentionPolicy
from millstream.tiered.cold_map import ColdStretch
from millstream.tiered.cold_scan import ColdScan
from millstream.tiered.directory_objects import DirectoryObjects
from millstream.tiered.places import ObjectPlace
from millstream.tiered.upload import STRETCH_BYTES, StretchUpload, gather_stretch

__all__ = ["measure_tiered"]

Figures = dict[str, object]

_ROOT = Path(__file__).resolve().parent.parent
_BUILD = _ROOT / "tools" / "build_compiled.py"
_ROUNDS = 3
_BODY_BYTES = (100, 1024)
_UPLOADED_BYTES = 48 * 1024 * 1024
_BACKLOG_BYTES = int(os.environ.get("TIERED_BACKLOG_MB", "256")) * 1024 * 1024
_STRETCH_BYTES = min(STRETCH_BYTES, _BACKLOG_BYTES // _ROUNDS // 2)
_SEGMENT_BYTES = 16 * 1024 * 1024
_TOPICS = 10
_QUEUES = 4
_SEND_GAP_S = 0.002
_QUIET_S = 3.0
_READERS = 4
_LOOKS = 200
_MEMORY = Path("/dev/shm")
_TIME = struct.Struct("d")
_TICKER = """
import os, struct, sys, time
while True:
    time.sleep(float(sys.argv[1]))
    os.write(1, struct.pack("d", time.perf_counter()))
"""


def measure_tiered() -> Figures:
    """See the module. Of each form: MB of the log that go up in a second of processor time, the 99th percentile of a
    send in ms, its ratios, MB of records read in a second, and milliseconds until the first cold message is there."""
    figures: Figures = {"load_1_min": round(os.getloadavg()[0], 1)}
    with tempfile.TemporaryDirectory() as target:
        subprocess.run([sys.executable, str(_BUILD), target], check=True, stdout=subprocess.DEVNULL)
        for form, path in (("plain", _ROOT / "src"), ("compiled", Path(target))):
            environment = {**os.environ, "PYTHONPATH": f"{path}{os.pathsep}{_ROOT}", "MILLSTREAM_PLAIN": "0"}
            command = [sys.executable, "-m", "benchmarks.tiered"]
            said = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True, cwd=target)
            figures[form] = json.loads(said.stdout.splitlines()[-1])
            print(form, figures[form], flush=True)
    return figures


class _NoObjects:
    """Takes objects and keeps none: what is left is the upload's own work."""

    def put(self, key: str, data: bytes, *, create_only: bool = False) -> None: ...


def _records(chance: random.Random, body_bytes: int, start: int, count: int) -> list[PendingRecord]:
    found = []
    for number in range(start, start + count):
        words = b'{"id": %d, "customer": "%08x", "amount": %d, "state": "open", "note": "%x"}'
        body = words % (number, chance.getrandbits(32), chance.randrange(10_000), chance.getrandbits(body_bytes * 2))
        body = body[:body_bytes].ljust(body_bytes)
        held = {"UNIQ_KEY": f"{number * 7919:032X}", "TAGS": "a"}
        found.append(PendingRecord(OutgoingMessage(f"t{number % _TOPICS}", body, held), number % _QUEUES))
    return found


def _fill(store: MessageStore, body_bytes: int, size_bytes: int) -> None:
    chance, number, end = random.Random(1), 0, store.visible_log_offset + size_bytes
    while store.visible_log_offset < end:
        store.put(_records(chance, body_bytes, number, 64))
        number += 64
    store.flush()


def _measure_upload(body_bytes: int) -> Figures:
    with tempfile.TemporaryDirectory(dir=_MEMORY) as scratch:
        store = MessageStore.open(Path(scratch) / "store", StoreOptions())
        _fill(store, body_bytes, _UPLOADED_BYTES)
        rates, records = [], 0
        for _ in range(_ROUNDS):
            began_s = time.process_time()
            stretch = gather_stretch(store.walk_log(0, store.visible_log_offset), lambda _topic: 0)
            row = ColdStretch(0, stretch.log_begin, stretch.log_end)
            objects = StretchUpload(_NoObjects(), "c", "b").put("name", row, stretch)  # type: ignore[arg-type]
            rates.append((stretch.log_end - stretch.log_begin) / 1e6 / (time.process_time() - began_s))
            records = sum(block.records for queue in stretch.queues for part in queue.parts for block in part.blocks)
            stored = sum(one.size_bytes for one in objects) / (stretch.log_end - stretch.log_begin)
        store.close()
    return {"mb_per_s": round(max(rates), 1), "record_bytes": _UPLOADED_BYTES // records, "stored": round(stored, 2)}


class _Ticks:
    """Sends that are due: the time at which another process said so."""

    def __init__(self) -> None:
        self._reading, writing = os.pipe()
        os.set_blocking(self._reading, False)
        self._process = subprocess.Popen([sys.executable, "-c", _TICKER, str(_SEND_GAP_S)], stdout=writing)
        os.close(writing)
        self.due: asyncio.Queue[float] = asyncio.Queue()
        asyncio.get_running_loop().add_reader(self._reading, self._take)

    def _take(self) -> None:
        for (due_s,) in _TIME.iter_unpack(os.read(self._reading, _TIME.size * 64)):
            self.due.put_nowait(due_s)

    def close(self) -> None:
        asyncio.get_running_loop().remove_reader(self._reading)
        self._process.kill()
        self._process.wait()
        os.close(self._reading)


class _Wait(NamedTuple):
    """Milliseconds until a send was answered, and how many of them its thread waited for a processor at most."""

    all_ms: float
    processor_ms: float


def _processor_wait_ms(descriptor: int) -> float:
    return int(os.pread(descriptor, 100, 0).split()[1]) / 1e6


async def _send(broker: Broker, ticks: _Ticks, until: Callable[[], bool]) -> list[_Wait]:
    """Of sends, each of which is due a while after the last one: until it is answered."""
    waits: list[_Wait] = []
    body, scheduler = b"x" * 200, os.open("/proc/thread-self/schedstat", os.O_RDONLY)
    while not ticks.due.empty():
        ticks.due.get_nowait()
    before_ms = _processor_wait_ms(scheduler)
    while not until():
        due_s = await ticks.due.get()
        await broker.delivery.send([OutgoingMessage("hot", body, {})])
        all_ms, now_ms = (time.perf_counter() - due_s) * 1000, _processor_wait_ms(scheduler)
        waits.append(_Wait(all_ms, now_ms - before_ms))
        before_ms = now_ms
    os.close(scheduler)
    return waits


def _p99(waits: list[float]) -> float:
    return statistics.quantiles(waits, n=100)[98]


class _Beside:
    """Sends in quiet and beside work, in rounds."""

    def __init__(self, broker: Broker, ticks: _Ticks) -> None:
        self._broker = broker
        self._ticks = ticks
        self._rounds: list[tuple[list[_Wait], list[_Wait]]] = []
        self.took_s = 0.0

    async def run(self, work: Callable[[], Awaitable[object]]) -> None:
        """Send in quiet for a while, and then until the work is done."""
        quiet_until_s = time.perf_counter() + _QUIET_S
        quiet = await _send(self._broker, self._ticks, lambda: time.perf_counter() > quiet_until_s)
        began_s = time.perf_counter()
        task = asyncio.ensure_future(work())
        loud = await _send(self._broker, self._ticks, task.done)
        await task
        self.took_s += time.perf_counter() - began_s
        self._rounds.append((quiet, loud))

    def figures(self) -> Figures:
        """The 99th percentiles of all rounds, and the ratio of the best; `own` without the waits for a processor."""
        found: Figures = {}
        for name, take in (("", _all_ms), ("own_", _own_ms)):
            quiet, loud = ([take(wait) for both in self._rounds for wait in both[side]] for side in (0, 1))
            ratios = [_p99([*map(take, loud)]) / _p99([*map(take, quiet)]) for quiet, loud in self._rounds]
            found |= {
                f"{name}quiet_p99_ms": round(_p99(quiet), 2), f"{name}p99_ms": round(_p99(loud), 2),
                f"{name}ratio": round(_p99(loud) / _p99(quiet), 2), f"best_{name}ratio": round(min(ratios), 2),
            }  # fmt: skip
        return found


def _all_ms(wait: _Wait) -> float:
    return wait.all_ms


def _own_ms(wait: _Wait) -> float:
    return max(0.0, wait.all_ms - wait.processor_ms)


async def _upload_all(broker: Broker) -> None:
    while broker.cold.report().behind_bytes > _STRETCH_BYTES:
        await broker.cold.upload_due()


async def _read_queue(broker: Broker, topic: str, queue_id: int) -> int:
    """Bytes of the records that a reader of the disk's cold part of a queue gets."""
    end = broker.maintenance.store.disk_offset(topic, queue_id)
    offset = size_bytes = 0
    while offset < end:
        found = await broker.queues.pull(PullRequest("g", topic, queue_id, offset, max_messages=512, max_bytes=1 << 20))
        if found.status is not PullStatus.FOUND:
            break
        size_bytes += sum(map(len, found.records))
        offset = found.next_offset
        # Requests of readers come from the network, one in a turn of the event loop.
        await asyncio.sleep(0)
    return size_bytes


async def _measure_broker(own_process: bool) -> Figures:
    """Beside an upload and beside readers, whose work a process of its own does or the broker's."""
    cold_tier.UPLOAD_INTERVAL_S = cold_tier.CLEAN_INTERVAL_S = 1e6  # type: ignore[misc]
    found: Figures = {}
    with tempfile.TemporaryDirectory(dir=_MEMORY) as scratch:
        store_options = StoreOptions(segment_bytes=_SEGMENT_BYTES, retention=RetentionPolicy(keep_ms=0))
        place = ObjectPlace(f"file://{scratch}/objects")
        tiered = TieredOptions(
            roll_s=1e9, keep_hours=1_000_000, stretch_bytes=_STRETCH_BYTES, place=place, own_process=own_process
        )
        options = BrokerOptions(store=store_options, tiered=tiered)
        objects = DirectoryObjects(Path(scratch) / "objects")
        broker = Broker(Path(scratch) / "data", options=options, open_objects=lambda: objects)
        await broker.start()
        for name in ("hot", *(f"t{number}" for number in range(_TOPICS))):
            broker.topics.create(TopicConfig(name, read_queues=_QUEUES, write_queues=_QUEUES))
        store = broker.maintenance.store
        # As a broker does once it has started.
        gc.collect()
        gc.freeze()
        ticks = _Ticks()
        await ticks.due.get()
        uploads = _Beside(broker, ticks)
        for _ in range(_ROUNDS):
            await asyncio.to_thread(_fill, store, 1024, _BACKLOG_BYTES // _ROUNDS)
            await uploads.run(lambda: _upload_all(broker))
        rate = broker.cold.map.uploaded_log_offset / 1e6 / uploads.took_s
        found["upload"] = uploads.figures() | {"mb_per_s": round(rate, 1)}
        await asyncio.to_thread(store.flush)
        await asyncio.to_thread(store.write_checkpoint)
        await broker.maintenance.retain()

        found["cold_scan"] = await _measure_readers(broker, _Beside(broker, ticks), 1)
        found["cold_readers"] = await _measure_readers(broker, _Beside(broker, ticks), _READERS)
        ticks.close()
        found["scan_mb_per_s"] = _measure_scan(broker, objects)
        found["first_message_p50_ms"] = await _measure_first(broker)
        await broker.close()
    return found


async def _measure_readers(broker: Broker, reads: _Beside, readers: int) -> Figures:
    """Beside so many readers that share all queues among them."""
    places = [(f"t{number}", queue_id) for number in range(_TOPICS) for queue_id in range(_QUEUES)]
    read_bytes = 0

    async def read_some(mine: list[tuple[str, int]]) -> int:
        return sum([await _read_queue(broker, *place) for place in mine])

    async def read_all() -> None:
        nonlocal read_bytes
        read_bytes += sum(await asyncio.gather(*(read_some(places[number::readers]) for number in range(readers))))

    for _ in range(_ROUNDS):
        for key in {one.key for _, one in broker.cold.map.objects}:
            broker.cold.blocks.forget(key)
        await reads.run(read_all)
    return reads.figures() | {"mb_per_s": round(read_bytes / 1e6 / reads.took_s, 1)}


def _measure_scan(broker: Broker, objects: DirectoryObjects) -> float:
    """As a job reads: whole ranges, in order, verified."""
    scan, size_bytes, began_s = ColdScan(objects), 0, time.perf_counter()
    for topic, queue_id in broker.cold.map.queues():
        for where in broker.cold.map.ranges(topic, queue_id):
            for block in scan.blocks(topic, queue_id, where, where.first_queue_offset, where.next_queue_offset):
                size_bytes += sum(map(len, block.records))
    return round(size_bytes / 1e6 / (time.perf_counter() - began_s), 1)


async def _measure_first(broker: Broker) -> float:
    """Milliseconds of a pull of one cold message that nobody has read."""
    chance, waits = random.Random(2), []
    for _ in range(_LOOKS):
        for key in {one.key for _, one in broker.cold.map.objects}:
            broker.cold.blocks.forget(key)
        topic, queue_id = chance.choice(broker.cold.map.queues())
        end = broker.maintenance.store.disk_offset(topic, queue_id)
        began_s = time.perf_counter()
        await broker.queues.pull(PullRequest("g", topic, queue_id, chance.randrange(max(1, end)), max_messages=1))
        waits.append((time.perf_counter() - began_s) * 1000)
    return round(statistics.median(waits), 2)


def main() -> None:
    """Measure the form that this process runs."""
    logging.getLogger("millstream").setLevel(logging.ERROR)
    found: Figures = {f"upload_{size}_byte_bodies": _measure_upload(size) for size in _BODY_BYTES}
    found |= asyncio.run(_measure_broker(own_process=True))
    found["within_the_broker"] = asyncio.run(_measure_broker(own_process=False))
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
