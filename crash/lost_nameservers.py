"""N1: all nameservers are killed under load, stay dead for a while, and come back knowing nothing."""

from __future__ import annotations

import time
from contextlib import ExitStack

from crash.cluster_load import ClusterLoad, ClusterProcesses
from crash.programme import ProgrammeRun, scratch_directory

__all__ = ["lose_all_nameservers"]

_NAMESERVERS = ("ns-0", "ns-1")
_BROKERS = ("a", "b")
_AT_LEAST = 20


def lose_all_nameservers(run: ProgrammeRun) -> None:
    """N1. They are dead for 2 s once (ci), for a minute three times (full), for ten minutes six times (soak)."""
    rounds, dead_s = run.by_size(1, 3, 6), run.by_size(2, 60, 600)
    with scratch_directory(on_disk=True) as root, ExitStack() as running:
        cluster = ClusterProcesses(root, running)
        for name in _NAMESERVERS:
            cluster.nameserver(name)
        for name in _BROKERS:
            cluster.broker(name)
        load = ClusterLoad(cluster.nameservers)
        with load:
            for _ in range(rounds):
                load.go_on(_AT_LEAST)
                for name in _NAMESERVERS:
                    cluster.processes[name].kill()
                _stay_dead(load, dead_s)
                for name in run.random.sample(_NAMESERVERS, len(_NAMESERVERS)):
                    cluster.nameserver(name)
                load.go_on(_AT_LEAST)
                run.count("rounds")
        load.judge(run)
        if run.failures:
            run.fail("the logs of this run", root)


def _stay_dead(load: ClusterLoad, dead_s: float) -> None:
    deadline_s = time.monotonic() + dead_s
    while time.monotonic() < deadline_s:
        load.go_on(_AT_LEAST)
