"""C6: nothing but failovers, thousands of them: the master of a set is killed under load, again and again."""

from __future__ import annotations

import time
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from benchmarks.broker_set import BrokerSet

from crash.direct_load import DirectLoad, check_direct, create_direct_topic
from crash.history import HistoryWriter, read_history
from crash.programme import ProgrammeRun, scratch_directory
from crash.replica_logs import find_differences
from crash.replica_run import note_times, resumed_s

__all__ = ["fail_over"]

SET_FAILOVERS: Final = 500
"""Failovers of one set at most; then its history is checked, and the next ones come to a new set."""

MAX_STALE_S: Final = 10.0
"""How old what a master says of a queue may be: a lease, and what a busy machine adds."""

RESUMED_S: Final = 30.0
"""Seconds after a kill within which sends are taken again, on a busy machine as well; it is 0.05 in the middle."""

FULL_SET_S: Final = 60.0
"""Seconds within which a replica that came back is in the set again; it is 0.1 in the middle."""

_REPLICAS: Final = ("a", "b", "c")
_LOAD_S: Final = (0.05, 0.3)
"""Seconds of load between two kills."""


def fail_over(run: ProgrammeRun) -> None:
    """C6. After each kill somebody sends again, and the old master is in the set again before the next kill."""
    left = run.by_size(100, 5_000, 50_000)
    resumed: list[float] = []
    back: list[float] = []
    while left > 0:
        count = min(left, SET_FAILOVERS)
        left -= count
        with scratch_directory(on_disk=True) as root:
            _run_set(run, root, count, resumed, back)
            if run.failures:
                run.fail("the logs and histories of this set", root)
                break
    note_times(run, "first_send", resumed)
    note_times(run, "back_in_the_set", back)


def _run_set(run: ProgrammeRun, root: Path, count: int, resumed: list[float], back: list[float]) -> None:
    histories = root / "histories"
    histories.mkdir()
    with ExitStack() as running:
        brokers = BrokerSet(root / "set", running)
        for name in _REPLICAS:
            brokers.add(name)
        brokers.await_members(len(_REPLICAS))
        create_direct_topic(brokers.nameserver)
        faults = HistoryWriter(histories, "faults")
        load = DirectLoad(brokers.nameserver, histories)
        try:
            for number in range(count):
                time.sleep(run.random.uniform(*_LOAD_S))
                back.append(_fail_over_once(run, brokers, load, faults, number))
        finally:
            load.stop()
            faults.close()
        events = read_history(histories)
        for broken in check_direct(brokers.nameserver, events, MAX_STALE_S).broken():
            run.fail(f"after {count} failovers of a set: {broken}")
        resumed += resumed_s([event for event in events if event.kind == "fault"], events).get("kill_master", [])
        run.count("acknowledged", load.acknowledged)
        run.count("failed_sends", len(load.failures))
        if not load.acknowledged:
            run.fail("nothing was acknowledged, so nothing was tested")
        _compare_logs(run, brokers, root / "set")


def _fail_over_once(
    run: ProgrammeRun, brokers: BrokerSet, load: DirectLoad, faults: HistoryWriter, number: int
) -> float:
    """Seconds from the start of the old master's next process to its place in the set."""
    master = brokers.master()
    port = brokers.brokers[master].addresses["broker"].rpartition(":")[2]
    faults.write("fault", "kill_master")
    run.count("kill_master")
    acknowledged = load.acknowledged
    brokers.brokers[master].kill()
    deadline_s = time.monotonic() + RESUMED_S
    # One for each of two senders, and one that may have been under way before.
    while load.acknowledged < acknowledged + 3:
        if time.monotonic() > deadline_s:
            run.fail(f"{RESUMED_S:g} s after failover {number} sends are not taken: {(load.failures or ['-'])[-1]}")
            break
        time.sleep(0.005)
    brokers.add(master, port)
    faults.write("healed")
    began_s = time.monotonic()
    brokers.await_members(len(_REPLICAS))
    took_s = time.monotonic() - began_s
    if took_s > FULL_SET_S:
        run.fail(f"after failover {number} the set was complete only after {took_s:.1f} s")
    return took_s


def _compare_logs(run: ProgrammeRun, brokers: BrokerSet, directory: Path) -> None:
    """The set is whole, so all that its shortest log has is confirmed and the same everywhere."""
    end = min(brokers.log_bytes(name) for name in _REPLICAS)
    for name in _REPLICAS:
        brokers.brokers[name].kill()
    first, *others = (directory / name / "store" / "commitlog" for name in _REPLICAS)
    for other in others:
        if different := find_differences(first, other, end):
            run.fail(f"before {end} the logs differ at {len(different)} places, first {sorted(different)[:3]}")
