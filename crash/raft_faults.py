"""C1, raft-faults: groups of controllers under loss, delay, cuts, crashes, full disks and drifting clocks."""

from __future__ import annotations

import random
from collections import Counter

from crash.programme import ProgrammeRun
from crash.raft_group import BrokenInvariant, RaftGroup

__all__ = ["run_raft_groups"]

_EVENTS = 400


def run_raft_groups(run: ProgrammeRun) -> None:
    """C1. 200 (CI), 5,000 (full) or 100,000 (soak) groups, each with 400 events and a healing at its end."""
    counts: Counter[str] = Counter()
    groups = run.by_size(200, 5_000, 100_000)
    for number in range(groups):
        seed = run.seed * 1_000_003 + number
        choose = random.Random(seed)
        group = RaftGroup(choose, choose.choice((1, 3, 3, 3, 5)))
        try:
            group.run(_EVENTS)
            group.check_logs()
        except (BrokenInvariant, AssertionError) as error:
            run.fail(f"group {number} (seed {seed}) after {group.now_ms} ms: {error!r}")
        counts.update(group.counts)
    run.counts |= {"groups": groups, **counts}
    for name in ("elections", "crashes", "snapshots_installed", "reads"):
        if not counts[name]:
            run.fail(f"there were no {name}, so nothing was tested")
