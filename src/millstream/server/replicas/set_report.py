"""A master's report about its replica set, for administrators."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from millstream.protocol.remoting.administration.broker_report import ReplicaProgress, SetReport
from millstream.replication.source import LogSource
from millstream.server.replicas.replicated_broker import ReplicatedBroker

__all__ = ["set_report"]


def set_report(replicated: ReplicatedBroker, controllers: Sequence[str]) -> SetReport | None:
    """The set as of now; None where this replica is no master."""
    source = replicated.port.source
    if source is None:
        return None
    found, policy = source.sync_set, source.sync_set.policy
    left_s = replicated.lease.left_s(found.epoch, asyncio.get_running_loop().time())
    return SetReport(
        found.broker_id,
        found.epoch,
        found.set_epoch,
        sorted(found.members),
        _replicas(replicated, source),
        found.takes_writes,
        policy.all_in_set,
        policy.in_sync_replicas,
        policy.min_in_sync,
        replicated.log.end,
        found.confirmed,
        round(left_s * 1000),
        [*controllers],
        replicated.mender.damaged_bytes,
    )


def _replicas(replicated: ReplicatedBroker, source: LogSource) -> list[ReplicaProgress]:
    found, peers = source.sync_set, replicated.port.replicas
    ids = sorted((found.members | peers.keys()) - {found.broker_id})
    return [
        ReplicaProgress(
            one,
            peers.get(one),
            one in found.members,
            _behind(found.ack_of(one), replicated.log.end),
            replicated.port.damaged_bytes_of(one),
        )
        for one in ids
    ]


def _behind(acked: int | None, end: int) -> int | None:
    return None if acked is None else max(end - acked, 0)
