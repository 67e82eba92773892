"""C3: masters, replicas and controllers of a set are killed, stopped and restarted, while clients send and consume."""

from __future__ import annotations

import time
from typing import Final

from crash.programme import ProgrammeRun
from crash.replica_cluster import CONTROLLERS, REPLICAS
from crash.replica_run import ReplicaRun, run_replicas

__all__ = ["kill_replicas"]

_QUIET_S: Final = 0.3
"""Seconds of load between two faults, at least."""


def kill_replicas(run: ProgrammeRun) -> None:
    """C3. Kills of the master, of a replica and of the leading controller, clean stops and rolling restarts in turn."""
    rounds = run.by_size(2, 30, 1_000)
    with run_replicas(run) as replicas:
        for number in range(rounds):
            _kill_master(replicas)
            if number % 3 == 0:
                _kill_replica(replicas)
            if number % 3 == 1:
                _kill_leader(replicas)
            if number % 5 == 0:
                _stop_master(replicas)
            if number % 10 == 0:
                _restart_all(replicas)


def _kill_master(replicas: ReplicaRun) -> None:
    master = replicas.cluster.master()
    began_s = replicas.fault("kill_master")
    replicas.cluster.processes[master].kill()
    replicas.await_sends("a kill of the master", began_s)
    _bring_back(replicas, master)


def _kill_replica(replicas: ReplicaRun) -> None:
    cluster, run = replicas.cluster, replicas.run
    name = run.random.choice([name for name in REPLICAS if name != cluster.master()])
    began_s = replicas.fault("kill_replica")
    cluster.processes[name].kill()
    # Beyond what the master waits for a member that is gone.
    replicas.await_sends("a kill of a replica", began_s)
    _bring_back(replicas, name)


def _kill_leader(replicas: ReplicaRun) -> None:
    """Of the controllers: no send may fail."""
    cluster = replicas.cluster
    leader = cluster.leader() or CONTROLLERS[0]
    before = replicas.failed_sends
    began_s = replicas.fault("kill_leader")
    cluster.processes[leader].kill()
    replicas.await_sends("a kill of the leading controller", began_s)
    cluster.restart(leader)
    replicas.healed()
    time.sleep(_QUIET_S)
    _refuse_failures(replicas, "a kill of the leading controller", before)


def _stop_master(replicas: ReplicaRun) -> None:
    """As an orderly shutdown does."""
    master, before = replicas.cluster.master(), replicas.failed_sends
    began_s = replicas.fault("stop_master")
    replicas.cluster.processes[master].stop()
    took_ms = round((time.monotonic() - began_s) * 1000)
    replicas.run.counts["slowest_stop_ms"] = max(replicas.run.counts.get("slowest_stop_ms", 0), took_ms)
    replicas.await_sends("a stop of the master", began_s)
    _bring_back(replicas, master)
    _refuse_failures(replicas, "a stop of the master", before)


def _restart_all(replicas: ReplicaRun) -> None:
    """One after the other, as an upgrade does."""
    before = replicas.failed_sends
    for name in REPLICAS:
        began_s = replicas.fault("rolling_restart")
        replicas.cluster.processes[name].stop()
        replicas.await_sends(f"a stop of {name}", began_s)
        _bring_back(replicas, name)
    _refuse_failures(replicas, "a rolling restart", before)


def _refuse_failures(replicas: ReplicaRun, what: str, before: int) -> None:
    """Through the proxy no send may have failed since there were `before`."""
    failed = replicas.failed_sends - before
    if failed:
        replicas.run.fail(f"{failed} sends through the proxy failed by {what}")


def _bring_back(replicas: ReplicaRun, name: str) -> None:
    replicas.cluster.restart(name)
    replicas.healed()
    replicas.await_full_set(f"the start of {name}")
    time.sleep(_QUIET_S)
