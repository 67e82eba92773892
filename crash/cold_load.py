"""A broker over an object store that fails now and then, under load, until it is killed at a fault point.

Run by S22: `python -m crash.cold_load kill|upload|restore ROOT LIFE POINT CALL SEED`. ROOT has the broker's directory
`data`, the directory of objects, and the histories. A day passes in little more than a second of it.
"""

from __future__ import annotations

import asyncio
import logging
import random
import sys
import time
import zlib
from pathlib import Path
from typing import Final

from crash.cold_points import COLD_POINTS, CONDITIONAL_POINTS, RESTORE_POINTS
from crash.fault_points import arm
from crash.history import HistoryWriter
from crash.unreliable_objects import UnreliableObjects
from millstream.broker import cold_merges, cold_tier, maintenance
from millstream.broker.broker import Broker, BrokerOptions
from millstream.broker.cold_tier import TieredOptions
from millstream.model import properties as names
from millstream.model.backoff import Backoff
from millstream.model.errors import MillstreamError
from millstream.model.message import OutgoingMessage
from millstream.model.operations import PullRequest, PullStatus
from millstream.model.topic import TopicConfig
from millstream.protocol.record import decode_record
from millstream.server.restoring import restore_broker
from millstream.store.message_store import StoreOptions
from millstream.store.retention import RetentionPolicy
from millstream.tiered import merge_plan, upload
from millstream.tiered.directory_objects import DirectoryObjects
from millstream.tiered.places import ObjectPlace
from millstream.tiered.process import cold_process

__all__ = [
    "FAULT_RATE", "KEPT_TOPIC", "QUEUES", "SEGMENT_BYTES", "SHORT_TOPIC", "broker_of", "objects_of",
    "upload_all",
]  # fmt: skip

KEPT_TOPIC, SHORT_TOPIC = "kept", "short"
"""Messages of the first stay for as long as a run takes, those of the second for a day."""

QUEUES: Final = 2
FAULT_RATE: Final = 0.08
"""How many of the calls of the object store go wrong."""

LONGEST_LIFE_S: Final = 5.0
"""A life that does not come to its point ends by itself then, cleanly."""

LONGEST_AGAIN_S: Final = 40.0
"""The same of a life that is to come to its point for the first time: on a busy machine that takes longer."""

SEGMENT_BYTES: Final = 64 * 1024
_SPEED: Final = 72_000
_HOUR_MS: Final = 3_600_000
_PAUSE_S: Final = 0.002


class QuickClock:
    """A clock that all lives of a run share, on which 20 hours pass in a second. `began_ms` is when the run began."""

    def __init__(self, began_ms: int) -> None:
        self._began_ms = began_ms

    def now_ms(self) -> int:
        """See `Clock`."""
        return self.quicken(round(time.time() * 1000))

    def monotonic_s(self) -> float:
        """See `Clock`."""
        return time.monotonic() * _SPEED

    def quicken(self, real_ms: int) -> int:
        """What this clock shows at that time of the wall clock."""
        return self._began_ms + (real_ms - self._began_ms) * _SPEED


def clock_of(root: Path) -> QuickClock:
    """The clock of a run; its first life begins it."""
    file = root / "began"
    if not file.exists():
        file.write_text(str(round(time.time() * 1000)))
    return QuickClock(int(file.read_text()))


def objects_of(root: Path, seed: int, fault_rate: float, point: str = "-") -> UnreliableObjects:
    """The object store of a life, one that ignores conditions only where the life comes to its point all the same."""
    chance = random.Random(seed)
    ignores = fault_rate > 0 and chance.random() < 0.3 and point not in CONDITIONAL_POINTS
    inner = DirectoryObjects(root / "objects")
    return UnreliableObjects(inner, chance, fault_rate, ignores, age=clock_of(root).quicken)


def broker_of(
    root: Path, objects: UnreliableObjects, *, upload_interval_s: float = 0.02, own_process: bool = False
) -> Broker:
    """The broker of a life, whose tasks come often. A process of its own for cold work opens the directory itself."""
    for module, name, value in (
        (cold_tier, "UPLOAD_INTERVAL_S", upload_interval_s),
        (cold_tier, "CLEAN_INTERVAL_S", 0.05),
        (cold_tier, "MANIFEST_CHANGES", 3),
        (cold_merges, "MERGE_INTERVAL_S", 0.05),
        (merge_plan, "MERGED_ROWS", 4),
        (cold_tier, "_FAILURES", Backoff(0.05, 0.2)),
        (upload, "_RETRY", Backoff(0.01, 0.1)),
        (cold_process, "_RESTARTS", Backoff(0.01, 0.1)),
        (maintenance, "RETENTION_INTERVAL_S", 0.1),
    ):
        setattr(module, name, value)
    store = StoreOptions(
        segment_bytes=SEGMENT_BYTES,
        consume_queue_entries=256,
        flush_interval_ms=10,
        retention=RetentionPolicy(keep_ms=5 * _HOUR_MS, scarce_used_ratio=1.0, full_used_ratio=1.0),
    )
    place = ObjectPlace(f"file://{root / 'objects'}")
    tiered = TieredOptions(
        roll_s=0.05, stretch_bytes=24 * 1024, keep_hours=1_000_000, place=place, own_process=own_process
    )
    return Broker(
        root / "data",
        options=BrokerOptions(store=store, tiered=tiered),
        clock=clock_of(root),
        open_objects=lambda: objects,
    )


async def upload_all(broker: Broker) -> None:
    """Bring all messages into the object store, and a manifest that says so."""
    cold, store = broker.cold, broker.maintenance.store
    end = store.visible_log_offset
    while cold._first_behind < end:
        store.flush()
        await cold.upload_due()
        await asyncio.sleep(0.01)
    cold._changes_unsaid += 1
    while cold._changes_unsaid:
        await cold._put_manifest()
        await asyncio.sleep(0.01)


class ColdLoad:
    """The clients of one life."""

    def __init__(self, broker: Broker, root: Path, life: str, seed: int) -> None:
        self._broker = broker
        self._life = life
        self._random = random.Random(seed)
        self._sent = HistoryWriter(root / "histories", f"sender-{life}")
        self._read = HistoryWriter(root / "histories", f"reader-{life}")

    def prepare(self) -> None:
        """Make the topics, if they are not there."""
        for name, attributes in ((KEPT_TOPIC, {}), (SHORT_TOPIC, {"reserve.time": "24"})):
            if self._broker.topics.find(name) is None:
                config = TopicConfig(name, read_queues=QUEUES, write_queues=QUEUES, attributes=attributes)
                self._broker.topics.create(config)

    async def run(self, seconds: float) -> None:
        """Send and read."""
        until_s = time.monotonic() + seconds
        await asyncio.gather(
            *(self._send(topic, until_s) for topic in (KEPT_TOPIC, SHORT_TOPIC)),
            self._follow(until_s),
            self._write_checkpoints(until_s),
        )

    async def _send(self, topic: str, until_s: float) -> None:
        number = 0
        while time.monotonic() < until_s:
            number += 1
            queue_id = number % QUEUES
            name = f"{topic}.{self._life}.{number:06}"
            body = name.encode() + b" " + b"x" * self._random.randrange(600)
            self._sent.write("invoke", name, checksum=zlib.crc32(body), queue=f"{topic}/{queue_id}")
            message = OutgoingMessage(topic, body, {names.UNIQUE_KEY: name}, queue_id=queue_id)
            [receipt] = await self._broker.delivery.send([message])
            self._sent.write("ok", name, queue=f"{topic}/{queue_id}", queue_offset=receipt.queue_offset)
            await asyncio.sleep(_PAUSE_S)

    async def _follow(self, until_s: float) -> None:
        """Read a queue from a random offset on, across the border, again and again."""
        while time.monotonic() < until_s:
            queue_id = self._random.randrange(QUEUES)
            end = self._broker.maintenance.store.max_offset(KEPT_TOPIC, queue_id)
            offset = self._random.randrange(end + 1)
            for _ in range(20):
                try:
                    found = await self._broker.queues.pull(
                        PullRequest("r", KEPT_TOPIC, queue_id, offset, max_messages=32)
                    )
                except MillstreamError:
                    break
                if found.status is not PullStatus.FOUND:
                    break
                for record in found.records:
                    one = decode_record(record)
                    queue, checksum = f"{KEPT_TOPIC}/{queue_id}", zlib.crc32(one.body)
                    name = one.body.partition(b" ")[0].decode()
                    self._read.write("delivered", name, queue=queue, queue_offset=one.queue_offset, checksum=checksum)
                offset = found.next_offset
            await asyncio.sleep(_PAUSE_S)

    async def _write_checkpoints(self, until_s: float) -> None:
        while time.monotonic() < until_s:
            await asyncio.sleep(0.1)
            await asyncio.to_thread(self._broker.maintenance.store.write_checkpoint)


async def _live(root: Path, life: str, point: str, seed: int) -> None:
    broker = broker_of(root, objects_of(root, seed, FAULT_RATE, point))
    await broker.start()
    load = ColdLoad(broker, root, life, seed)
    load.prepare()
    await load.run(LONGEST_AGAIN_S if life.endswith("again") else LONGEST_LIFE_S)
    await broker.close()


async def _upload(root: Path, seed: int) -> None:
    # Nobody but `upload_all` uploads: one upload at a time is what the broker's own task sees to.
    broker = broker_of(root, objects_of(root, seed, 0.0), upload_interval_s=1e6)
    await broker.start()
    await upload_all(broker)
    await broker.close()


def main(words: list[str]) -> None:
    """Live one life."""
    what, root, life, point, at_call, seed = words[0], Path(words[1]), words[2], words[3], int(words[4]), int(words[5])
    logging.getLogger("millstream").setLevel(logging.CRITICAL)
    if point != "-":
        arm((COLD_POINTS | RESTORE_POINTS)[point], at_call)
    if what == "restore":
        restore_broker(objects_of(root, seed, 0.0), root / "data", segment_bytes=SEGMENT_BYTES)
    else:
        asyncio.run(_live(root, life, point, seed) if what == "kill" else _upload(root, seed))


if __name__ == "__main__":
    main(sys.argv[1:])
