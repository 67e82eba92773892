"""S6, power loss: senders of an appender on a disk that forgets what was not synced, in virtual time.

Sync-flush loses nothing that was acknowledged. Async-flush loses at most what was acknowledged within its window, and
never leaves a hole.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from crash.disk_model import DiskState, random_choice
from crash.ledger import Ledger, Sent, content_of
from crash.programme import ANY_ERROR, ProgrammeRun
from crash.traced_files import HASTY, TracedFiles, crash_state, lay_out
from crash.virtual_loop import VirtualClock, VirtualLoop
from millstream.model.clock import ManualClock
from millstream.store.appender import Appender
from millstream.store.message_store import AppendedRecord, MessageStore, StoreOptions

__all__ = ["SLOWEST_CALL_S", "cut_the_power"]

SLOWEST_CALL_S = 0.2
"""The longest that a flush or checkpoint takes in virtual time."""

LONGEST_LIFE_S = 3.0
_SENDERS = 4
_KEYS = {("orders", 0), ("orders", 1), ("bills", 0)}


@dataclass
class _Life:
    """What the senders of one run know: the order of the log and when each was acknowledged."""

    acked_s: dict[bytes, float] = field(default_factory=dict)
    placed: dict[bytes, tuple[int, Sent]] = field(default_factory=dict)
    ended_s: float = 0.0
    began_to_send: int = 0


def cut_the_power(run: ProgrammeRun) -> None:
    """S6. 200 (CI), 2,000 (full) or 20,000 (soak) power failures, half of them under sync-flush."""
    for number in range(run.by_size(200, 2_000, 20_000)):
        _cut_once(run, random.Random(run.seed * 1_000_003 + number), sync_flush=number % 2 == 1)
    if not run.counts.get("records_lost"):
        run.fail("the disk forgot nothing, so nothing was tested")


def _cut_once(run: ProgrammeRun, choose: random.Random, *, sync_flush: bool) -> None:
    directory = run.scratch / "power"
    lay_out({}, directory)
    files = TracedFiles(directory)
    options = StoreOptions(segment_bytes=4096, consume_queue_entries=8, sync_flush=sync_flush)
    loop = VirtualLoop(choose, SLOWEST_CALL_S)
    life = _Life()
    asyncio.set_event_loop(loop)
    try:
        # What the disk holds when the power fails is taken before the loop is wound up.
        steps = loop.run_until_complete(_live(directory, options, files, loop, choose, life))
    finally:
        asyncio.set_event_loop(None)
        loop.close()
    state = crash_state(files, random_choice(choose, choose.random()), steps)
    run.count("cuts")
    run.count("acknowledged", len(life.acked_s))
    wrong = _judge(run, state, directory, options, life)
    if wrong is not None:
        lay_out(state, directory)
        run.fail(f"{'sync' if sync_flush else 'async'}-flush: {wrong}", directory)


async def _live(
    directory: Path, options: StoreOptions, files: TracedFiles, loop: VirtualLoop, choose: random.Random, life: _Life
) -> int:
    """Send until the power fails; the number of file steps made by then."""
    store = MessageStore.open(directory, options, clock=VirtualClock(loop), files=files)
    appender = Appender(store, loop=loop)
    names = _names()
    senders = [loop.create_task(_send(appender, loop, choose, life, names)) for _ in range(_SENDERS)]
    await asyncio.sleep(choose.uniform(0.01, LONGEST_LIFE_S))
    life.ended_s, steps = loop.time(), len(files.steps)
    life.acked_s = dict(life.acked_s)
    for sender in senders:
        sender.cancel()
    await asyncio.gather(*senders, return_exceptions=True)
    await appender.close()
    store.close()
    return steps


def _names() -> Iterator[int]:
    yield from range(10**9)


async def _send(
    appender: Appender, loop: VirtualLoop, choose: random.Random, life: _Life, names: Iterator[int]
) -> None:
    keys = sorted(_KEYS)
    while True:
        sent = Sent(*choose.choice(keys), b"%d " % next(names) + b"x" * choose.randrange(400))
        life.began_to_send += 1
        waiting = appender.append(sent.pending())
        waiting.add_done_callback(partial(_note, sent, loop, life))
        await waiting
        await asyncio.sleep(choose.expovariate(20))


def _note(sent: Sent, loop: VirtualLoop, life: _Life, done: asyncio.Future[AppendedRecord]) -> None:
    if done.cancelled() or done.exception() is not None or life.ended_s:
        return
    life.acked_s[sent.body] = loop.time()
    life.placed[sent.body] = (done.result().log_offset, sent)


def _judge(run: ProgrammeRun, state: DiskState, directory: Path, options: StoreOptions, life: _Life) -> str | None:
    lay_out(state, directory)
    try:
        store = MessageStore.open(directory, options, clock=ManualClock(step_ms=1), files=HASTY)
        try:
            content = content_of(store, _KEYS)
        finally:
            store.close()
    except ANY_ERROR as error:
        return f"{type(error).__name__}: {error}"
    kept = {body for _, bodies in content.values() for body in bodies}
    lost = [body for body in life.acked_s if body not in kept]
    run.count("records_lost", len(lost))
    window_s = 0.0 if options.sync_flush else options.flush_interval_ms / 1000 + 3 * SLOWEST_CALL_S
    too_old = [body for body in lost if options.sync_flush or life.acked_s[body] < life.ended_s - window_s]
    if too_old:
        age_s = life.ended_s - life.acked_s[too_old[0]]
        return f"{len(too_old)} acknowledged records are lost, the first {age_s:.3f} s old"
    return _hole(content, life)


def _hole(content: dict[tuple[str, int], tuple[int, list[bytes]]], life: _Life) -> str | None:
    """Among the acknowledged records: those that are there come before those that are lost, and none is altered."""
    placed = [sent for _, sent in sorted(life.placed.values(), key=lambda pair: pair[0])]
    known = {sent.body for sent in placed}
    ledger = Ledger(placed)
    acknowledged = {
        key: (start, [body for body in bodies if body in known]) for key, (start, bodies) in content.items()
    }
    return ledger.broken_by(acknowledged, 0, 0)
