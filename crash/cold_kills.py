"""S22, kill -9 inside tiered storage: upload, commit, deletion and restore, over an object store that fails."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final
from zlib import crc32

from crash.cold_load import KEPT_TOPIC, QUEUES, SHORT_TOPIC, UnreliableObjects, broker_of, objects_of
from crash.cold_points import COLD_POINTS, RESTORE_POINTS
from crash.history import Event, read_history
from crash.programme import ProgrammeRun, scratch_directory
from millstream.broker.broker import Broker
from millstream.model.errors import MillstreamError
from millstream.model.operations import PullRequest, PullStatus
from millstream.protocol.record import decode_record

__all__ = ["Message", "judge_queue", "kill_inside_tiered_storage"]

LIVES_OF_A_DISK: Final = 8
"""Lives after which the disk is lost and the broker is restored from the object store."""

_KILLED: Final = -9
_BEHIND_A_CRASH: Final = ("begun-deleting", "begun-deleted")
"""Points that a life comes to when the one before it has left an upload."""

_CLEAN_LIMIT_S: Final = 60.0
_PARTIAL: Final = ".partial"
_OLD_S: Final = 1_000_000_000

Message = tuple[str, int]
"""A message's name and the CRC-32 of its body."""


def kill_inside_tiered_storage(run: ProgrammeRun) -> None:
    """S22. Each point once (CI), 20 times (full), 1,000 times (soak), all over one object store."""
    lives = [name for name in run.sample(list(COLD_POINTS)) for _ in range(run.by_size(1, 20, 1_000))]
    restores = [name for name in run.sample(list(RESTORE_POINTS)) for _ in range(run.by_size(1, 10, 500))]
    run.random.shuffle(lives)
    run.random.shuffle(restores)
    reached: Counter[str] = Counter()
    with scratch_directory() as root:
        (root / "histories").mkdir()
        for life, point in enumerate(lives):
            at_call = run.random.randint(1, COLD_POINTS[point].most_calls)
            if point in _BEHIND_A_CRASH:
                _one_life(run, root, "kill", f"{life}-before", "upload-begun", 1)
            is_killed = _one_life(run, root, "kill", f"{life}", point, at_call)
            # The point may be too rare for that; then the first call must do.
            reached[point] += is_killed or _one_life(run, root, "kill", f"{life}-again", point, 1)
            if life % LIVES_OF_A_DISK == LIVES_OF_A_DISK - 1 or life + 1 == len(lives):
                _lose_the_disk(run, root, f"{life}", restores, reached)
        while restores:
            _lose_the_disk(run, root, f"end-{len(restores)}", restores, reached)
        for point in {*lives}:
            if not reached[point]:
                run.fail(f"the point {point} was never reached")
        asyncio.run(_judge(run, root))
        if run.failures:
            run.fail("the data, the objects and the histories of this run", root)


def _one_life(run: ProgrammeRun, root: Path, what: str, life: str, point: str = "-", at_call: int = 0) -> bool:
    """Whether a life came to its point."""
    words = (what, root, life, point, at_call, run.random.randrange(1 << 30))
    code = subprocess.run([sys.executable, "-m", "crash.cold_load", *map(str, words)], check=False).returncode
    run.count("kills" if code == _KILLED else "lives_that_ended")
    if code not in (0, _KILLED):
        run.fail(f"life {life}, to {what} and to end at {point}, ended with {code}")
    return code == _KILLED


def _lose_the_disk(run: ProgrammeRun, root: Path, life: str, restores: list[str], reached: Counter[str]) -> None:
    """Bring all up, delete the broker's directory, and restore it, a few times in vain at first."""
    _one_life(run, root, "upload", f"{life}-upload")
    shutil.rmtree(root / "data")
    is_whole = False
    for point in [restores.pop() for _ in range(min(2, len(restores)))]:
        if is_whole:
            shutil.rmtree(root / "data")
        at_call = run.random.randint(1, RESTORE_POINTS[point].most_calls)
        is_whole = not _one_life(run, root, "restore", f"{life}-restore", point, at_call)
        reached[point] += not is_whole
    if not is_whole:
        _one_life(run, root, "restore", f"{life}-restore")
    run.count("restores")


async def _judge(run: ProgrammeRun, root: Path) -> None:
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
    for file in directory.rglob(f"*{_PARTIAL}"):
        run.fail(f"what a put left stays: {file.name}")
