"""N2: brokers are added, drained and stopped, and killed under load, in turns that the seed draws."""

from __future__ import annotations

from contextlib import ExitStack

from crash.cluster_load import ClusterLoad, ClusterProcesses
from crash.programme import ProgrammeRun, scratch_directory

__all__ = ["change_brokers_under_load"]

_NAMESERVER = "ns"
_AT_LEAST = 20
_LEAST_BROKERS = 2
_MOST_BROKERS = 4


def change_brokers_under_load(run: ProgrammeRun) -> None:
    """N2. 3 changes (ci: one of each), 60 (full), 2,000 (soak). A killed broker is started again over its data."""
    changes = run.by_size(3, 60, 2_000)
    with scratch_directory(on_disk=True) as root, ExitStack() as running:
        cluster = ClusterProcesses(root, running)
        cluster.nameserver(_NAMESERVER)
        brokers = [f"b{number}" for number in range(_LEAST_BROKERS)]
        for name in brokers:
            cluster.broker(name)
        load = ClusterLoad(cluster.nameservers)
        with load:
            acts = [_add, _drain, _kill]
            run.random.shuffle(acts)
            for number in range(changes):
                act = acts[number % len(acts)] if number < len(acts) else run.random.choice(acts)
                act(run, cluster, brokers)
                load.go_on(_AT_LEAST)
        load.judge(run)
        if run.failures:
            run.fail("the logs of this run", root)


def _add(run: ProgrammeRun, cluster: ClusterProcesses, brokers: list[str]) -> None:
    if len(brokers) < _MOST_BROKERS:
        name = f"b{len(cluster.processes)}"
        cluster.broker(name)
        brokers.append(name)
        run.count("added")


def _drain(run: ProgrammeRun, cluster: ClusterProcesses, brokers: list[str]) -> None:
    """Empty one and stop it for good; with too few another one is added before."""
    while len(brokers) <= _LEAST_BROKERS:
        _add(run, cluster, brokers)
    name = brokers.pop(run.random.randrange(len(brokers)))
    wrong = cluster.drain(name)
    if wrong:
        run.fail(wrong)
    cluster.processes[name].stop()
    run.count("drained")


def _kill(run: ProgrammeRun, cluster: ClusterProcesses, brokers: list[str]) -> None:
    name = run.random.choice(brokers)
    cluster.processes[name].kill()
    cluster.broker(name)
    run.count("killed")
