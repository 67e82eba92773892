"""Metrics of a replicated broker, as master or as replica."""

from __future__ import annotations

from typing import Final

from millstream.protocol.remoting.administration.broker_report import SetReport
from millstream.server.replicas.replicated_broker import ReplicaRole, ReplicatedBroker
from millstream.server.replicas.set_report import set_report
from millstream.telemetry.metrics import MetricsPage

__all__ = ["add_replica"]

_ROLES: Final = {ReplicaRole.REGISTERING: 0, ReplicaRole.REPLICA: 1, ReplicaRole.MASTER: 2}


def add_replica(page: MetricsPage, replicated: ReplicatedBroker) -> None:
    """What it is, how far its log counts, and the set at the master or the lag at a replica."""
    page.add("millstream_replica_role", _ROLES[replicated.role])
    page.add("millstream_replica_epoch", replicated.view.epoch)
    page.add("millstream_replica_confirmed_offset", replicated.store.confirmed_log_offset)
    page.add("millstream_replica_reads_total", replicated.reads.requests)
    page.add("millstream_replica_read_bytes_total", replicated.reads.size_bytes)
    page.add("millstream_replica_damaged_bytes", replicated.mender.damaged_bytes)
    page.add("millstream_replica_mended_bytes_total", replicated.mender.mended_bytes)
    report = set_report(replicated, ())
    if report is not None:
        _add_set(page, report)
    elif replicated.role is ReplicaRole.REPLICA:
        end = replicated.log.end
        page.add("millstream_replica_behind_bytes", max(replicated.master_end - end, 0))
        page.add("millstream_replica_apply_lag_bytes", max(end - replicated.store.visible_log_offset, 0))


def _add_set(page: MetricsPage, report: SetReport) -> None:
    page.add("millstream_replica_set_size", len(report.members))
    page.add("millstream_replica_takes_writes", int(report.takes_writes))
    page.add("millstream_replica_lease_left_seconds", report.lease_left_ms / 1000)
    for one in report.replicas:
        if one.behind_bytes is not None:
            page.add("millstream_replica_lag_bytes", one.behind_bytes, str(one.broker_id), str(one.in_set).lower())
