"""What a run of tiered storage must have left: each acknowledged message once and in order, and no object too many."""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final
from zlib import crc32

from crash.cold_load import KEPT_TOPIC, QUEUES, SHORT_TOPIC, UnreliableObjects, broker_of, objects_of
from crash.history import Event, read_history
from crash.programme import ProgrammeRun
from millstream.broker.broker import Broker
from millstream.model.errors import MillstreamError
from millstream.model.operations import PullRequest, PullStatus
from millstream.protocol.record import decode_record
from millstream.tiered.claims import OwnerClaims

__all__ = ["CLAIMED", "Message", "judge_cold_run", "judge_queue"]

_CLEAN_LIMIT_S: Final = 60.0
_PARTIAL: Final = ".partial"
_OLD_S: Final = 1_000_000_000

CLAIMED: Final = ("DefaultCluster", "broker-a")
"""Whose claims a run leaves: a broker as it is without settings."""

Message = tuple[str, int]
"""A message's name and the CRC-32 of its body."""


async def judge_cold_run(run: ProgrammeRun, root: Path) -> None:
    """Read every queue, hold it against the histories, and see that what nobody needs goes from the object store."""
    objects = objects_of(root, 0, 0.0)
    broker = broker_of(root, objects)
    await broker.start()
    store = broker.maintenance.store
    events = read_history(root / "histories")
    for topic in (KEPT_TOPIC, SHORT_TOPIC):
        for queue_id in range(QUEUES):
            end = store.max_offset(topic, queue_id)
            # What is old goes while it is read: from the first offset that is there afterwards all must be.
            found = await _read_queue(broker, topic, queue_id, end)
            first = store.min_offset(topic, queue_id) if topic == SHORT_TOPIC else 0
            for broken in judge_queue(events, f"{topic}/{queue_id}", found, first, end):
                run.fail(broken)
    await _let_orphans_go(run, root, broker, objects)
    report = broker.cold.report()
    await broker.close()
    kept = [one for one in events if one.kind == "ok" and one.queue.startswith(KEPT_TOPIC)]
    run.counts |= {
        "acknowledged": sum(one.kind == "ok" for one in events),
        "kept": len(kept),
        "read_meanwhile": sum(one.kind == "delivered" for one in events),
        "objects": report.objects,
    }
    if not kept or not report.objects:
        run.fail("nothing was acknowledged or nothing went up, so nothing was tested")


async def _read_queue(broker: Broker, topic: str, queue_id: int, end: int) -> dict[int, Message]:
    found: dict[int, Message] = {}
    offset, until_s = broker.maintenance.store.min_offset(topic, queue_id), time.monotonic() + _CLEAN_LIMIT_S
    while offset < end and time.monotonic() < until_s:
        try:
            result = await broker.queues.pull(PullRequest("judge", topic, queue_id, offset, max_messages=32))
        except MillstreamError:
            continue
        if result.status is PullStatus.FOUND:
            for record in result.records:
                one = decode_record(record)
                name = one.body.partition(b" ")[0].decode()
                if one.queue_offset in found:
                    name = f"{name} once more"
                found[one.queue_offset] = name, crc32(one.body)
        offset = max(offset, result.next_offset)
    return found


def judge_queue(events: Sequence[Event], queue: str, found: Mapping[int, Message], first: int, end: int) -> list[str]:
    """Broken promises of a queue that has `found` by offset, from `first` to before `end` at least."""
    broken = [f"{queue}: the offset {offset} is missing" for offset in range(first, end) if offset not in found]
    sent = {event.message: event.checksum for event in events if event.kind == "invoke"}
    names = Counter(name for name, _ in found.values())
    broken += [f"{queue}: {name} is there {count} times" for name, count in names.items() if count > 1]
    for offset, (name, checksum) in found.items():
        if sent.get(name) != checksum:
            broken.append(f"{queue}: {name} at {offset} is not what was sent")
    for event in events:
        if event.queue != queue or event.kind not in ("ok", "delivered") or event.queue_offset < first:
            continue
        there = found.get(event.queue_offset)
        if there is None or there[0] != event.message:
            words = "acknowledged" if event.kind == "ok" else "read"
            broken.append(f"{queue}: {event.message} was {words} at {event.queue_offset}, where {there} is")
    order = [name for _, (name, _) in sorted(found.items())]
    lives: dict[str, str] = {}
    for name in order:
        life = name.split(".")[1] if name.count(".") >= 2 else name
        if name <= lives.get(life, ""):
            broken.append(f"{queue}: {name} comes behind {lives[life]}")
        lives[life] = name
    return broken


async def _let_orphans_go(run: ProgrammeRun, root: Path, broker: Broker, objects: UnreliableObjects) -> None:
    """Every object that is left has a row that names it."""
    directory = root / "objects"
    for file in directory.rglob("*"):
        if file.is_file():
            os.utime(file, (_OLD_S, _OLD_S))
    cold, until_s = broker.cold, time.monotonic() + _CLEAN_LIMIT_S
    left: set[str] = set()
    while time.monotonic() < until_s:
        await cold.collect("", deletes=True)
        named = {one.key for _, one in cold.map.objects}
        named |= {key for row in cold.map.rows.values() for key in row.removed_ms}
        there = {info.key for info in objects.list("ms1/")}
        left = {key for key in there - named if "/manifest/" not in key}
        if not left and not cold.map.begun:
            break
        await asyncio.sleep(0.1)
    for key in sorted(left):
        run.fail(f"the object {key} stays, and no row names it")
    for key in sorted({one.key for _, one in cold.map.objects} - {info.key for info in objects.list("ms1/")}):
        run.fail(f"a row names the object {key}, which is not there")
    # A broker looks at the claims every five minutes, and removes then what a put of one left.
    OwnerClaims(objects, *CLAIMED).newest()
    for file in directory.rglob(f"*{_PARTIAL}"):
        run.fail(f"what a put left stays: {file.name}")
