"""What the programmes over a set of replicas have in common: the cluster, the load, and what must hold at the end."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from crash.checker import check_history
from crash.direct_load import DirectLoad, check_direct, create_direct_topic
from crash.history import Event, HistoryWriter, read_history
from crash.network import Network
from crash.official_load import FIFO_TOPIC, GROUPS, NORMAL_TOPIC, OfficialLoad
from crash.programme import ProgrammeRun, scratch_directory
from crash.replica_cluster import LEASE_S, REPLICAS, ReplicaCluster, wait_until
from crash.replica_logs import compare_logs
from millstream.client.blocking import BlockingClient
from millstream.model.group import GroupConfig
from millstream.model.topic import MessageType, TopicConfig

__all__ = ["FULL_SET_S", "ReplicaRun", "note_times", "resumed_s", "run_replicas"]

FULL_SET_S: Final = 15.0
"""Seconds within which a replica that came back is in the set again."""

RESUMED_S: Final = 15.0
"""Seconds after a fault within which sends are taken again, directly and through the proxy."""

INVISIBLE_S: Final = 10
QUIET_S: Final = 25.0

_PAUSE_S = 0.02
_ATTEMPTS = 1000
_SENDERS = ("direct", "proxy")


class ReplicaRun:
    """One run under load. `fault` and `healed` note what is done; `failed_sends` are those through the proxy."""

    def __init__(self, run: ProgrammeRun, cluster: ReplicaCluster, histories: Path, proxy: str) -> None:
        self.run = run
        self.cluster = cluster
        self.without_locks_s: list[float] = []
        """After each change of the master, between its last lock and the first one of the next master."""
        self._proxy = proxy
        self._histories = {name: histories / name for name in _SENDERS}
        for directory in self._histories.values():
            directory.mkdir(parents=True)
        self._faults = HistoryWriter(histories, "faults")
        self._all = histories
        _create_topics(cluster.nameservers)
        self.direct = DirectLoad(cluster.nameservers, self._histories["direct"])
        self.official = OfficialLoad(
            proxy, self._histories["proxy"], 0, has_one_queue=False, pause_s=_PAUSE_S, invisible_s=INVISIBLE_S
        )
        self.await_sends("the start", time.monotonic())

    @property
    def failed_sends(self) -> int:
        """Sends through the proxy that its clients gave up."""
        return len(self.official.failed_sends)

    def fault(self, what: str) -> float:
        """Note that something of that kind is broken now; when that is."""
        self._faults.write("fault", what)
        self.run.count(what)
        return time.monotonic()

    def healed(self) -> None:
        """Note that all should go on from now."""
        self._faults.write("healed")

    def await_sends(self, what: str, since_s: float, timeout_s: float = RESUMED_S) -> None:
        """Wait until sends of both kinds were taken that began since then."""
        acknowledged = self.direct.acknowledged

        def is_resumed() -> bool:
            # Two for each sender: the first may have been under way before.
            through_proxy = max(self.official.last_ok_s.values(), default=0.0) > since_s + _PAUSE_S
            return self.direct.acknowledged >= acknowledged + 4 and through_proxy

        if not wait_until(is_resumed, timeout_s):
            last_s = time.monotonic() - max(self.official.last_ok_s.values(), default=0.0)
            words = (
                f"{self.direct.acknowledged - acknowledged} direct sends since, through the proxy {last_s:.1f} s ago"
            )
            last = (self.direct.failures or ["-"])[-1]
            self.run.fail(f"{timeout_s:g} s after {what} sends are not taken: {words}; {last}")

    def await_full_set(self, what: str, members: Sequence[str] = REPLICAS, timeout_s: float = FULL_SET_S) -> None:
        """Wait until the set is these again, and note how long that took."""
        took_s = self.cluster.await_members(members, timeout_s)
        if took_s == float("inf"):
            self.run.fail(f"{timeout_s:g} s after {what} the set is {self.cluster.view()}")
        else:
            self.run.counts["slowest_set_ms"] = max(self.run.counts.get("slowest_set_ms", 0), round(took_s * 1000))

    def finish(self) -> None:
        """End the load and check all that was promised; the replicas are dead then."""
        run = self.run
        run.counts["direct_failed"] = len(self.direct.failures)
        run.counts["proxy_failed"] = self.failed_sends
        self.direct.stop()
        self.official.stop()
        self._faults.close()
        self._drain()
        events = {name: read_history(directory) for name, directory in self._histories.items()}
        for broken in check_direct(self.cluster.nameservers, events["direct"], LEASE_S).broken():
            run.fail(f"direct: {broken}")
        self._judge_proxy(events["proxy"])
        run.counts["direct_acknowledged"] = self.direct.acknowledged
        for wrong in compare_logs(self.cluster, REPLICAS):
            run.fail(wrong)
        faults = read_history(self._all)
        for name in _SENDERS:
            for what, times_s in resumed_s(faults, events[name]).items():
                note_times(run, f"{name}_{what}", times_s)

    def _drain(self) -> None:
        directory = self._histories["proxy"]
        events = read_history(directory)
        missing = {event.message for event in events if event.kind == "ok"}
        missing -= {event.message for event in events if event.kind == "delivered"}
        self.run.count("drained", len(missing))
        load = OfficialLoad(self._proxy, directory, 1, is_sending=False, invisible_s=INVISIBLE_S)
        known, quiet_since_s = 0, time.monotonic()
        while not missing <= load.delivered and time.monotonic() - quiet_since_s < QUIET_S:
            time.sleep(0.1)
            if len(load.delivered) != known:
                known, quiet_since_s = len(load.delivered), time.monotonic()
        load.stop()

    def _judge_proxy(self, events: list[Event]) -> None:
        verdict = check_history(events, stuck_after_s=RESUMED_S)
        for broken in verdict.broken():
            self.run.fail(f"through the proxy: {broken}")
        if not verdict.acknowledged or not self.direct.acknowledged:
            self.run.fail("nothing was acknowledged, so nothing was tested")
        self.run.counts |= {
            "proxy_acknowledged": verdict.acknowledged,
            "unknown": verdict.unknown,
            "deliveries": verdict.deliveries,
            "duplicates": verdict.duplicates,
        }


@contextmanager
def run_replicas(run: ProgrammeRun, settings: Sequence[str] = ()) -> Iterator[ReplicaRun]:
    """A whole set under load. What is left at the end of the block is checked."""
    with scratch_directory(on_disk=True) as root, Network() as network, ExitStack() as running:
        cluster = ReplicaCluster(network, root, running, settings=settings)
        proxy = cluster.start()
        if cluster.await_members(REPLICAS, FULL_SET_S) == float("inf"):
            run.fail(f"the set is not complete at the start: {cluster.view()}", root)
            return
        replicas = ReplicaRun(run, cluster, root / "histories", proxy)
        yield replicas
        replicas.finish()
        if run.failures:
            run.fail("the logs and histories of this run", root)


def _create_topics(nameservers: str) -> None:
    create_direct_topic(nameservers)
    with BlockingClient(nameservers) as client:
        client.create_topic(TopicConfig(NORMAL_TOPIC, read_queues=2, write_queues=2))
        client.create_topic(TopicConfig(FIFO_TOPIC, MessageType.FIFO, read_queues=2, write_queues=2))
        client.create_group(GroupConfig(GROUPS[NORMAL_TOPIC], max_attempts=_ATTEMPTS))
        client.create_group(GroupConfig(GROUPS[FIFO_TOPIC], fifo=True, max_attempts=_ATTEMPTS))


def resumed_s(faults: Sequence[Event], events: Sequence[Event]) -> dict[str, list[float]]:
    """By kind of fault, seconds from each to the answer of the first send that began after it and was taken."""
    began = {event.message: event.at_s for event in events if event.kind == "invoke"}
    taken = sorted((event.at_s, began[event.message]) for event in events if event.kind == "ok")
    found: dict[str, list[float]] = {}
    for fault in faults:
        if fault.kind == "fault":
            first_s = next((at_s for at_s, begun_s in taken if begun_s >= fault.at_s), None)
            if first_s is not None:
                found.setdefault(fault.message, []).append(first_s - fault.at_s)
    return found


def note_times(run: ProgrammeRun, what: str, times_s: Sequence[float]) -> None:
    """Count the median and the 95th percentile in milliseconds."""
    ordered = sorted(times_s)
    for percent in (50, 95):
        at = min(len(ordered) - 1, len(ordered) * percent // 100)
        run.counts[f"{what}_p{percent}_ms"] = round(ordered[at] * 1000)
