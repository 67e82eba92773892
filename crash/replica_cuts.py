"""C4: masters and controllers are cut off, stopped for longer than a lease, or lost, while clients send and consume."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Sequence
from typing import Final

from crash.direct_load import DIRECT_TOPIC
from crash.lock_watch import LockWatch, find_overlap_s
from crash.programme import ProgrammeRun
from crash.replica_cluster import CONTROLLERS, LEASE_S, NAMESERVER, PROXY, REPLICAS, SET_NAME
from crash.replica_run import ReplicaRun, note_times, run_replicas
from millstream.client.blocking import BlockingConnection
from millstream.client.requests import send_one
from millstream.client.values import QueueAddress
from millstream.model.errors import MillstreamError
from millstream.protocol.remoting.command import RemotingCommand

__all__ = ["cut_replicas"]

CUT_S: Final = 2 * LEASE_S
PAUSE_S: Final = 3 * LEASE_S

MAX_OVERLAP_S: Final = 0.0
"""For how long two masters may give locks: the new one waits for the end of the old one's lease."""

_STALE_SENDERS: Final = 4
_STALE_TIMEOUT_S: Final = PAUSE_S + 10
_QUIET_S: Final = 0.5


def cut_replicas(run: ProgrammeRun) -> None:
    """C4. Two kinds of fault (ci), each kind twice (full), a thousand faults (soak)."""
    kinds = [
        _isolate,
        _isolate_with_controller,
        _isolate_with_leader,
        _silence,
        _deafen,
        _lose_controllers,
        _pause_master,
        _cut_bridge,
    ]
    rounds = run.by_size(2, 2 * len(kinds), 1_000)
    chosen = [_pause_master, _isolate_with_controller] if run.is_small else kinds
    with run_replicas(run) as replicas:
        for number in range(rounds):
            chosen[number % len(chosen)](replicas)
            replicas.await_full_set("the healing")
            time.sleep(_QUIET_S)
        if replicas.without_locks_s:
            note_times(run, "without_locks", replicas.without_locks_s)


def _isolate(replicas: ReplicaRun) -> None:
    """Cut the master off from all but its clients."""
    master = replicas.cluster.master()
    _cut_master(replicas, "isolate_master", master, [(master, other) for other in _others(master)])


def _isolate_with_controller(replicas: ReplicaRun) -> None:
    """As before, but it reaches one controller, which does not lead."""
    cluster = replicas.cluster
    master, leader = cluster.master(), cluster.leader()
    kept = replicas.run.random.choice([name for name in CONTROLLERS if name != leader])
    pairs = [(master, other) for other in _others(master) if other != kept]
    _cut_master(replicas, "isolate_master_with_controller", master, pairs)


def _isolate_with_leader(replicas: ReplicaRun) -> None:
    """It reaches the leading controller alone, and so stays the master: only those go on who reach it."""
    cluster = replicas.cluster
    master, leader = cluster.master(), cluster.leader()
    pairs = [(master, other) for other in _others(master) if other != leader]
    with _Cut(replicas, "isolate_master_with_leader", pairs):
        time.sleep(CUT_S)
    replicas.await_sends("the end of isolate_master_with_leader", time.monotonic())


def _silence(replicas: ReplicaRun) -> None:
    """Nothing that the master says reaches others."""
    master = replicas.cluster.master()
    _cut_master(replicas, "silence_master", master, [(master, other) for other in _others(master)], one_way=True)


def _deafen(replicas: ReplicaRun) -> None:
    """Nothing that others say reaches the master."""
    master = replicas.cluster.master()
    _cut_master(replicas, "deafen_master", master, [(other, master) for other in _others(master)], one_way=True)


def _cut_bridge(replicas: ReplicaRun) -> None:
    """The master and the other replicas reach the controllers, but not one another."""
    master = replicas.cluster.master()
    pairs = [(master, name) for name in REPLICAS if name != master]
    with _Cut(replicas, "cut_replicas_apart", pairs) as began_s:
        replicas.await_sends("a cut between the replicas", began_s)


def _lose_controllers(replicas: ReplicaRun) -> None:
    """The majority of the controllers dies: nothing can be decided, and sends go on."""
    cluster, before = replicas.cluster, replicas.failed_sends
    lost = replicas.run.random.sample(CONTROLLERS, 2)
    began_s = replicas.fault("lose_controllers")
    for name in lost:
        cluster.processes[name].kill()
    _stay(replicas, "the loss of two controllers", began_s)
    for name in lost:
        cluster.restart(name)
    replicas.healed()
    if replicas.failed_sends > before:
        replicas.run.fail("sends through the proxy failed while two of three controllers were lost")
    replicas.await_sends("the return of two controllers", time.monotonic())


def _pause_master(replicas: ReplicaRun) -> None:
    """Stop the master's process for three leases. What waits in its sockets must not be acknowledged afterwards."""
    cluster = replicas.cluster
    master = cluster.master()
    watch, stale = LockWatch(cluster), _StaleSends(cluster.replica_address(master))
    time.sleep(_QUIET_S)
    began_s = replicas.fault("pause_master")
    cluster.signal(master, signal.SIGSTOP)
    stale.send()
    replicas.await_sends("a stop of the master's process", began_s)
    time.sleep(max(0.0, began_s + PAUSE_S - time.monotonic()))
    cluster.signal(master, signal.SIGCONT)
    replicas.healed()
    if cluster.master() == master:
        replicas.run.fail(f"{master} is the master again after {PAUSE_S:g} s without a word")
    taken = stale.taken()
    if taken:
        replicas.run.fail(f"a master acknowledged {taken} sends after it was stopped for {PAUSE_S:g} s")
    _judge_locks(replicas, watch, master)


def _cut_master(
    replicas: ReplicaRun, what: str, master: str, pairs: Sequence[tuple[str, str]], *, one_way: bool = False
) -> None:
    watch = LockWatch(replicas.cluster)
    time.sleep(_QUIET_S)
    with _Cut(replicas, what, pairs, one_way=one_way) as began_s:
        replicas.await_sends(what, began_s)
        _stay(replicas, what, began_s)
    replicas.await_sends(f"the end of {what}", time.monotonic())
    _judge_locks(replicas, watch, master)


def _stay(replicas: ReplicaRun, what: str, began_s: float) -> None:
    """Until the cut is over sends go on."""
    while time.monotonic() < began_s + CUT_S:
        replicas.await_sends(what, time.monotonic())


def _judge_locks(replicas: ReplicaRun, watch: LockWatch, master: str) -> None:
    watch.stop()
    if not watch.grants:
        replicas.run.fail("nobody gave a lock, so nothing was tested")
    overlap_s = find_overlap_s(watch.grants, master) if replicas.cluster.master() != master else 0.0
    if overlap_s > MAX_OVERLAP_S:
        replicas.run.fail(f"two masters gave locks for {overlap_s:.3f} s")
    counts = replicas.run.counts
    counts["lock_overlap_ms"] = max(counts.get("lock_overlap_ms", 0), round(overlap_s * 1000))
    first_s = [grant.answered_s for grant in watch.grants if grant.replica != master]
    last_s = [grant.answered_s for grant in watch.grants if grant.replica == master]
    if first_s and last_s:
        replicas.without_locks_s.append(max(0.0, min(first_s) - max(last_s)))


def _others(master: str) -> list[str]:
    return [NAMESERVER, PROXY, *CONTROLLERS, *(name for name in REPLICAS if name != master)]


class _Cut:
    """Cuts these pairs of nodes within its block, which gets when that was."""

    def __init__(
        self, replicas: ReplicaRun, what: str, pairs: Sequence[tuple[str, str]], *, one_way: bool = False
    ) -> None:
        self._replicas = replicas
        self._what = what
        self._pairs = pairs
        self._one_way = one_way

    def __enter__(self) -> float:
        for pair in self._pairs:
            self._replicas.cluster.cut(*pair, one_way=self._one_way)
        # Only now: each cut takes some milliseconds, in which the master still acknowledges.
        return self._replicas.fault(self._what)

    def __exit__(self, *_exception: object) -> None:
        for pair in self._pairs:
            self._replicas.cluster.heal(*pair)
        self._replicas.healed()


class _StaleSends:
    """Connections to one broker over which sends are on their way while it cannot read."""

    def __init__(self, address: str) -> None:
        self._queue = QueueAddress(DIRECT_TOPIC, SET_NAME, 0, address)
        self._connections = [BlockingConnection(address, timeout_s=2.0) for _ in range(_STALE_SENDERS)]
        self._answers: list[RemotingCommand] = []
        self._threads = [
            threading.Thread(target=self._send, args=[number, connection])
            for number, connection in enumerate(self._connections)
        ]

    def send(self) -> None:
        """Send one message over each connection; nobody waits for the answers yet."""
        for thread in self._threads:
            thread.start()

    def taken(self) -> int:
        """How many of them were acknowledged, once each has an answer or none."""
        for thread in self._threads:
            thread.join()
        for connection in self._connections:
            connection.close()
        return sum(answer.code == 0 for answer in self._answers)

    def _send(self, number: int, connection: BlockingConnection) -> None:
        body = b"stale.%d too late" % number
        try:
            self._answers.append(connection.request(send_one(self._queue, body, {}, group="stale"), _STALE_TIMEOUT_S))
        except MillstreamError:
            return
