"""Whether all replicas of a set have the same log: the same epochs and the same bytes up to where all have it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path
from typing import Final

import msgspec

from crash.replica_cluster import SET_NAME, ReplicaCluster, wait_until
from millstream.protocol.remoting.administration.replica_requests import BrokerEpochs
from millstream.protocol.remoting.codes import RequestCode
from millstream.protocol.remoting.command import RemotingCommand

__all__ = ["commit_log", "compare_logs", "find_differences", "read_epochs"]

LEVEL_S: Final = 10.0
"""Seconds after the load within which all replicas have the same end of the log."""

_CHUNK_BYTES = 1024 * 1024


def read_epochs(cluster: ReplicaCluster, name: str) -> BrokerEpochs:
    """The epochs of a replica's log and where that ends."""
    command = RemotingCommand(RequestCode.GET_BROKER_EPOCH_CACHE, {"brokerName": SET_NAME})
    answer = cluster.ask(cluster.replica_address(name), command)
    return msgspec.json.decode(answer.body, type=BrokerEpochs)


def commit_log(cluster: ReplicaCluster, name: str) -> Path:
    """The folder of the segments of a replica's log."""
    return cluster.directory / name / "store" / "commitlog"


def compare_logs(cluster: ReplicaCluster, names: tuple[str, ...]) -> list[str]:
    """What differs between the replicas, after the load: waits until their logs end at one place, then kills them.

    The set must be all of them, so that all before that place is confirmed.
    """
    found: list[BrokerEpochs] = []

    def is_level() -> bool:
        found[:] = [read_epochs(cluster, name) for name in names]
        return len({one.max_offset for one in found}) == 1

    wrong = [] if wait_until(is_level, LEVEL_S) else [f"{LEVEL_S:g} s after the load the logs do not end at one place"]
    for name in names:
        cluster.processes[name].kill()
    starts = [[(part.epoch, part.start_offset) for part in one.epoch_list] for one in found]
    if any(one != starts[0] for one in starts):
        wrong.append(f"the epochs differ: {starts}")
    end = min(one.max_offset for one in found)
    first, *others = (commit_log(cluster, name) for name in names)
    different = frozenset().union(*(find_differences(first, other, end) for other in others))
    if different:
        wrong.append(f"before {end} the logs differ at {len(different)} places, first {sorted(different)[:3]}")
    return wrong


def find_differences(one: Path, other: Path, end: int) -> frozenset[int]:
    """The log offsets before `end` at which two logs differ. The folders hold segments, named by their first offsets.

    Bytes that only one of them has differ.
    """
    found: list[int] = []
    for segment in sorted(one.iterdir()):
        start = int(segment.name)
        found += (start + at for at in _other_bytes(segment, other / segment.name, end - start))
    return frozenset(found)


def _other_bytes(one: Path, other: Path, length: int) -> Iterator[int]:
    with one.open("rb") as left, other.open("rb") as right:
        for start in range(0, min(length, one.stat().st_size), _CHUNK_BYTES):
            size = min(_CHUNK_BYTES, length - start)
            first, second = left.read(size), right.read(size)
            if first != second:
                pairs = zip_longest(first, second)
                yield from (start + at for at, (mine, theirs) in enumerate(pairs) if mine != theirs)
