"""S23, a lost disk: messages of many topics move to an object store, the broker's directory is deleted and restored."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from crash.cold_load import upload_all
from crash.programme import ProgrammeRun, scratch_directory
from millstream.broker import cold_tier
from millstream.broker.broker import Broker, BrokerOptions
from millstream.broker.cold_tier import TieredOptions
from millstream.model.message import OutgoingMessage
from millstream.model.operations import PullRequest, PullStatus
from millstream.model.topic import TopicConfig
from millstream.protocol.record import bodies_of, split_record
from millstream.store.message_store import PendingRecord
from millstream.tiered.places import ObjectPlace

__all__ = ["QUEUES", "restore_a_lost_disk"]

QUEUES: Final = 2
"""Of each topic."""

_BATCH: Final = 250
_PULLED: Final = 1000
_FILLER: Final = b" " + b"customer order amount state " * 2


def restore_a_lost_disk(run: ProgrammeRun) -> None:
    """S23. 4,000 messages over 10 topics (CI), 10 million over 200 (full and soak); each is read once, in order."""
    topics, messages = run.by_size(10, 200, 200), run.by_size(4_000, 10_000_000, 10_000_000)
    of_a_queue = max(1, messages // (topics * QUEUES))
    with scratch_directory(on_disk=True) as root:
        data, objects = root / "data", root / "objects"
        asyncio.run(_move(run, data, objects, topics, of_a_queue))
        shutil.rmtree(data)
        with _Timed(run, "restore_ms"):
            command = ("broker", "restore", "--from", f"file://{objects}", "--dir", str(data))
            done = subprocess.run([sys.executable, "-m", "millstream", *command], capture_output=True, check=False)
        if done.returncode:
            run.fail(f"the restore ended with {done.returncode}: {done.stderr.decode(errors='replace')[-500:]}")
            return
        asyncio.run(_read(run, data, objects, topics, of_a_queue))


def _broker(data: Path, objects: Path) -> Broker:
    # Nobody but the programme uploads.
    cold_tier.UPLOAD_INTERVAL_S = 1e6  # type: ignore[misc]
    # What loops over records is done by a process of its own, as in a broker that is started by its command.
    place = ObjectPlace(f"file://{objects}")
    tiered = TieredOptions(roll_s=0.0, keep_hours=1_000_000, place=place, own_process=True)
    options = BrokerOptions(tiered=tiered)
    return Broker(data, options=options, open_objects=place.open)


async def _move(run: ProgrammeRun, data: Path, objects: Path, topics: int, of_a_queue: int) -> None:
    """Store the messages, a few of each queue at a time, and bring them all up."""
    broker = _broker(data, objects)
    await broker.start()
    names = [f"topic-{number:03}" for number in range(topics)]
    for name in names:
        broker.topics.create(TopicConfig(name, read_queues=QUEUES, write_queues=QUEUES))
    store = broker.maintenance.store
    with _Timed(run, "store_ms"):
        for start in range(0, of_a_queue, _BATCH):
            for name in names:
                for queue_id in range(QUEUES):
                    store.put([*_records(name, queue_id, start, min(start + _BATCH, of_a_queue))])
            await asyncio.sleep(0)
        store.flush()
    run.count("log_mib", store.visible_log_offset >> 20)
    with _Timed(run, "upload_ms"):
        await upload_all(broker)
    report = broker.cold.report()
    run.count("objects", report.objects)
    if not report.process_starts:
        run.fail("no process of its own did the cold work")
    run.count("objects_mib", report.bytes >> 20)
    run.count("upload_memory_mib", _memory_mib())
    await broker.close()


def _records(topic: str, queue_id: int, start: int, end: int) -> Iterator[PendingRecord]:
    for number in range(start, end):
        held = {"UNIQ_KEY": f"{topic}-{queue_id}-{number:020}"}
        yield PendingRecord(OutgoingMessage(topic, _body(topic, queue_id, number), held), queue_id)


def _body(topic: str, queue_id: int, number: int) -> bytes:
    return b"%s/%d/%d" % (topic.encode(), queue_id, number) + _FILLER


async def _read(run: ProgrammeRun, data: Path, objects: Path, topics: int, of_a_queue: int) -> None:
    broker = _broker(data, objects)
    await broker.start()
    with _Timed(run, "read_ms"):
        for topic in (f"topic-{number:03}" for number in range(topics)):
            for queue_id in range(QUEUES):
                await _read_queue(run, broker, topic, queue_id, of_a_queue)
                if len(run.failures) > _MAX_FAILURES:
                    break
    run.count("read_memory_mib", _memory_mib())
    await broker.close()


async def _read_queue(run: ProgrammeRun, broker: Broker, topic: str, queue_id: int, end: int) -> None:
    store = broker.maintenance.store
    held = store.min_offset(topic, queue_id), store.max_offset(topic, queue_id)
    if held != (0, end):
        run.fail(f"{topic}/{queue_id} has the offsets {held[0]} to {held[1]}, not 0 to {end}")
        return
    offset = 0
    while offset < end:
        request = PullRequest("reader", topic, queue_id, offset, max_messages=_PULLED, max_bytes=1 << 20)
        found = await broker.queues.pull(request)
        if found.status is not PullStatus.FOUND:
            run.fail(f"{topic}/{queue_id} answers {found.status.name} at {offset} of {end}")
            return
        for record, body in zip(found.records, bodies_of(map(memoryview, found.records)), strict=True):
            is_right = (
                body == _body(topic, queue_id, offset) and split_record(memoryview(record)).queue_offset == offset
            )
            if not is_right:
                run.fail(f"{topic}/{queue_id} has another message at {offset}: {bytes(body or b'')[:80]!r}")
                return
            offset += 1
        if found.next_offset != offset:
            run.fail(f"{topic}/{queue_id} goes on at {found.next_offset} behind {offset - 1}")
            return
    run.count("read", end)


_MAX_FAILURES: Final = 10


def _memory_mib() -> int:
    """Memory of this process, the broker in it, without mapped files."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("RssAnon:")[2].split()[0]) >> 10


class _Timed:
    """Counts how long its block takes."""

    def __init__(self, run: ProgrammeRun, what: str) -> None:
        self._run, self._what = run, what

    def __enter__(self) -> None:
        self._began_s = time.monotonic()

    def __exit__(self, *_: object) -> None:
        self._run.count(self._what, round((time.monotonic() - self._began_s) * 1000))
