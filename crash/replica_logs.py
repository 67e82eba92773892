"""Whether all replicas of a set have the same log: the same epochs and the same bytes up to where all have it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from crash.replica_cluster import SET_NAME, ReplicaCluster, wait_until
from millstream.protocol.remoting.administration.replica_requests import BrokerEpochs
from millstream.protocol.remoting.codes import RequestCode
from millstream.protocol.remoting.command import RemotingCommand

__all__ = ["compare_logs", "find_difference", "read_epochs"]

LEVEL_S: Final = 10.0
"""Seconds after the load within which all replicas have the same end of the log."""

_CHUNK_BYTES = 1024 * 1024


def read_epochs(cluster: ReplicaCluster, name: str) -> BrokerEpochs:
    """The epochs of a replica's log and where that ends."""
    command = RemotingCommand(RequestCode.GET_BROKER_EPOCH_CACHE, {"brokerName": SET_NAME})
    answer = cluster.ask(cluster.replica_address(name), command)
    return msgspec.json.decode(answer.body, type=BrokerEpochs)


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
    starts = {name: [(e.epoch, e.start_offset) for e in one.epoch_list] for name, one in zip(names, found, strict=True)}
    if any(one != starts[names[0]] for one in starts.values()):
        wrong.append(f"the epochs differ: {starts}")
    end = min(one.max_offset for one in found)
    folders = {name: cluster.directory / name / "store" / "commitlog" for name in names}
    return wrong + find_difference(folders, end)


def find_difference(folders: Mapping[str, Path], end: int) -> list[str]:
    """Where the first log and another one have other bytes before `end`. The folders hold segments, named by their
    first offsets."""
    first, *others = folders
    wrong = []
    for segment in sorted(folders[first].iterdir()):
        length = min(segment.stat().st_size, end - int(segment.name))
        for other in others:
            at = _first_other_byte(segment, folders[other] / segment.name, length)
            if at is not None:
                wrong.append(f"{first} and {other} have other bytes at {int(segment.name) + at}, before {end}")
    return wrong


def _first_other_byte(one: Path, other: Path, length: int) -> int | None:
    with one.open("rb") as left, other.open("rb") as right:
        for start in range(0, length, _CHUNK_BYTES):
            size = min(_CHUNK_BYTES, length - start)
            a, b = left.read(size), right.read(size)
            if a != b:
                return start + next((k for k in range(min(len(a), len(b))) if a[k] != b[k]), min(len(a), len(b)))
    return None
