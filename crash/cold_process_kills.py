"""S24, kill -9 of the process for cold work: at any moment of uploads, merges and reads, while the broker goes on."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from pathlib import Path
from typing import Final

from crash.cold_judge import judge_cold_run
from crash.cold_load import ColdLoad, broker_of, objects_of
from crash.programme import ProgrammeRun, scratch_directory
from millstream.broker.broker import Broker

__all__ = ["kill_cold_processes"]

LONGEST_LIFE_S: Final = 0.6
"""Seconds that a process lives at most from its start, or from when it was stopped."""

STOPPED_S: Final = 0.2
"""Seconds that a process stands still, once in four times, in place of its end."""

END_LIMIT_S: Final = 10.0
"""Seconds after which the process of a broker that has closed is gone."""

_LOOK_S: Final = 0.005
_STOPS: Final = 0.25


def kill_cold_processes(run: ProgrammeRun) -> None:
    """S24. A broker under load for 5 s (CI), 2 minutes (full), an hour (soak)."""
    with scratch_directory() as root:
        (root / "histories").mkdir()
        asyncio.run(_live(run, root, run.by_size(5, 120, 3600)))
        asyncio.run(judge_cold_run(run, root))
        if run.failures:
            run.fail("the data, the objects and the histories of this run", root)


async def _live(run: ProgrammeRun, root: Path, seconds: int) -> None:
    broker = broker_of(root, objects_of(root, run.seed, 0.0), own_process=True)
    await broker.start()
    load = ColdLoad(broker, root, "one", run.seed)
    load.prepare()
    killer = asyncio.create_task(_kill(run, broker))
    await load.run(float(seconds))
    killer.cancel()
    await asyncio.gather(killer, return_exceptions=True)
    report = broker.cold.report()
    last = report.process
    await broker.close()
    run.counts |= {"process_starts": report.process_starts, "uploads": len(broker.cold.map.rows)}
    if report.process_starts < run.counts.get("kills", 0):
        run.fail(f"{run.counts['kills']} kills, and the process was started {report.process_starts} times")
    if last is not None and not await _is_gone(last):
        run.fail(f"the process {last} goes on though its broker has closed")


async def _kill(run: ProgrammeRun, broker: Broker) -> None:
    """Kill each process some time after its start, or stop it for a while."""
    while True:
        pid = broker.cold.report().process
        if pid is None:
            await asyncio.sleep(_LOOK_S)
            continue
        await asyncio.sleep(run.random.random() * LONGEST_LIFE_S)
        if run.random.random() < _STOPS:
            if _signal(pid, signal.SIGSTOP):
                run.count("stops")
                await asyncio.sleep(STOPPED_S)
                _signal(pid, signal.SIGCONT)
        elif _signal(pid, signal.SIGKILL):
            run.count("kills")
            await _see_gone(broker, pid)


async def _see_gone(broker: Broker, pid: int) -> None:
    """Wait until the broker knows that the process has ended."""
    while broker.cold.report().process == pid:  # noqa: ASYNC110 - a broker has no event for it
        await asyncio.sleep(_LOOK_S)


def _signal(pid: int, number: int) -> bool:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True


async def _is_gone(pid: int) -> bool:
    until_s = time.monotonic() + END_LIMIT_S
    while time.monotonic() < until_s:
        if not _signal(pid, 0):
            return True
        await asyncio.sleep(_LOOK_S)
    return False
