"""The runtime report of a broker: backlog, disk usage and speed, and the figures that RocketMQ's tools print."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from millstream import __version__
from millstream.broker.broker import Broker
from millstream.broker.cold_tier import ColdTier
from millstream.broker.traffic import HOUR_MS, MINUTE_MS, Flow
from millstream.model.errors import MillstreamError
from millstream.model.topic import is_system_topic
from millstream.protocol.record import MIN_RECORD_BYTES, store_timestamp_ms
from millstream.protocol.remoting.administration.broker_report import BrokerReport, ColdReport, GroupBacklog
from millstream.protocol.remoting.command import PROTOCOL_VERSION
from millstream.store.files import FileLayer
from millstream.store.message_store import MessageStore
from millstream.store.retention import DiskState
from millstream.telemetry.processes import descriptor_limit, descriptors_in_use
from millstream.tiered.probe import ObjectStoreProbe

__all__ = ["MAX_LOOKED_AT", "MAX_TOLD", "broker_report", "describe_replica", "describe_runtime"]


MAX_LOOKED_AT: Final = 10_000
"""Pairs of group and topic that one report looks at at most."""

MAX_TOLD: Final = 100
"""Backlogs and topics that a report names at most; the numbers are of all."""

_PAIRS_A_TURN: Final = 50
_PROBE_FILE: Final = "probe"
_PROBE_BYTES: Final = 4096


async def broker_report(broker: Broker, *, probes_disk: bool = False, tells_readers: bool = False) -> BrokerReport:
    """The report as of now. Gives others a turn where it looks at many groups.

    `probes_disk` times a sync, `tells_readers` names the groups of each topic.
    """
    backlog, left_out = await _backlog(broker)
    store = broker.maintenance.store
    size_bytes, free_bytes = FileLayer().disk(broker.directory)
    return BrokerReport(
        name=broker.name,
        cluster=broker.cluster,
        address=f"{broker.advertised.host}:{broker.advertised.port}",
        version=__version__,
        now_ms=broker.clock.now_ms(),
        is_drained=broker.maintenance.permission.is_drained,
        topics=len(broker.topics.all()),
        groups=len(broker.groups.all()),
        log_bytes=store.written_log_offset - store.log_start,
        disk_bytes=size_bytes,
        disk_free_bytes=free_bytes,
        is_disk_full=store.is_disk_full,
        failure=store.failure,
        sync_flush=broker.options.store.sync_flush,
        backlog=sorted(backlog, key=lambda one: -(one.ready + one.in_flight))[:MAX_TOLD],
        waiting_messages=sum(one.ready + one.in_flight for one in backlog),
        uncounted_pairs=left_out,
        unread_topics=_unread_topics(broker)[:MAX_TOLD],
        delayed_messages=broker.maintenance.delayed_messages,
        open_transactions=broker.maintenance.open_transactions,
        readers=_readers(broker) if tells_readers else None,
        sync_ms=await asyncio.to_thread(_sync_ms, broker.directory) if probes_disk else None,
        descriptors_in_use=descriptors_in_use(),
        descriptor_limit=descriptor_limit(),
        replica_set=broker.report_set(),
        cold=await _cold_report(broker.cold, probes_store=probes_disk) if broker.cold.is_enabled else None,
    )


async def _cold_report(cold: ColdTier, *, probes_store: bool) -> ColdReport:
    probe: ObjectStoreProbe | None = None
    if probes_store:
        with suppress(MillstreamError):
            # What it failed with is the tier's last error.
            probe = await cold.probe()
    found = cold.report()
    return ColdReport(
        found.objects,
        found.bytes,
        found.behind_bytes,
        found.removed_objects,
        found.damaged,
        found.last_error,
        None if probe is None else probe.took_ms,
        probe is None or probe.keeps_what_is_there,
    )


async def _backlog(broker: Broker) -> tuple[list[GroupBacklog], int]:
    positions, left_out = broker.queues.all_offsets(MAX_LOOKED_AT)
    found = []
    for number, (group, topic) in enumerate(dict.fromkeys((one.group, one.topic) for one in positions)):
        if number % _PAIRS_A_TURN == 0:
            await asyncio.sleep(0)
        # What the system keeps for itself has positions as well, and no group that anybody made.
        if broker.topics.find(topic) is None or broker.groups.find(group) is None:
            continue
        progress = broker.queues.own_progress(group, topic)
        ready, in_flight = sum(one.ready for one in progress), sum(one.in_flight for one in progress)
        if ready or in_flight:
            found.append(GroupBacklog(group, topic, ready, in_flight))
    return found, left_out


def _unread_topics(broker: Broker) -> list[str]:
    """Without those of the system, of dead letters and of retries, which nobody is expected to read."""
    store = broker.maintenance.store
    return [
        topic.name
        for topic in broker.topics.all()
        if not is_system_topic(topic.name)
        and not topic.name.startswith("%")
        and any(
            store.max_offset(topic.name, queue_id) > store.min_offset(topic.name, queue_id)
            for queue_id in range(topic.queues)
        )
        and not broker.queues.readers(topic.name)
    ]


def _readers(broker: Broker) -> dict[str, list[str]]:
    found: dict[str, set[str]] = {}
    for position in broker.queues.all_offsets(MAX_LOOKED_AT)[0]:
        if broker.groups.find(position.group) is not None:
            found.setdefault(position.topic, set()).add(position.group)
    return {topic: sorted(groups) for topic, groups in found.items()}


def _sync_ms(directory: Path) -> float | None:
    """How long a small write and its sync take; None where the disk refuses them."""
    files = FileLayer()
    path = directory / _PROBE_FILE
    try:
        with files.open_descriptor(path, create=True) as descriptor:
            files.pwrite(descriptor, bytes(_PROBE_BYTES), 0)
            begin_s = time.perf_counter()
            files.fdatasync(descriptor)
            elapsed_ms = (time.perf_counter() - begin_s) * 1000
        files.remove(path)
    except OSError:
        return None
    return elapsed_ms


_RATE_SPANS_MS: Final = (10_000, MINUTE_MS, 10 * MINUTE_MS)
_SILENCE: Final = dict.fromkeys(("putTps", "getTransferredTps", "getFoundTps"), "0.00 0.00 0.00")
_ABSENT_QUEUES: Final = ("send", "pull", "query")


def describe_runtime(broker: Broker, disk: DiskState) -> dict[str, str]:
    """The fields by name; `disk` is the one that the store is on."""
    store, now_ms = broker.maintenance.store, broker.clock.now_ms()
    process = _process(store, now_ms, broker.maintenance.traffic.elapsed_ms)
    return {**_traffic(broker), **_log(store, now_ms, disk), **_timers(broker), **process}


def describe_replica(store: MessageStore, now_ms: int, elapsed_ms: int, disk: DiskState) -> dict[str, str]:
    """The same of a replica, which counts no traffic: its log and its process, which runs for `elapsed_ms`."""
    return {**_SILENCE, **_log(store, now_ms, disk), **_process(store, now_ms, elapsed_ms)}


def _traffic(broker: Broker) -> dict[str, str]:
    put, got = broker.maintenance.traffic.day(Flow.ALL_PUT), broker.maintenance.traffic.day(Flow.ALL_GET)
    total = broker.maintenance.traffic.total(Flow.ALL_PUT)
    return {
        "putTps": _rates(broker, Flow.ALL_PUT),
        "getTransferredTps": _rates(broker, Flow.ALL_GET),
        "getFoundTps": _rates(broker, Flow.ALL_GET),
        "putMessageTimesTotal": str(total.messages),
        "putMessageSizeTotal": str(total.size_bytes),
        "putMessageAverageSize": str(total.size_bytes / total.messages if total.messages else 0.0),
        "msgPutTotalYesterdayMorning": str(put.yesterday_morning),
        "msgPutTotalTodayMorning": str(put.today_morning),
        "msgPutTotalTodayNow": str(put.now),
        "msgGetTotalYesterdayMorning": str(got.yesterday_morning),
        "msgGetTotalTodayMorning": str(got.today_morning),
        "msgGetTotalTodayNow": str(got.now),
    }


def _rates(broker: Broker, flow: Flow) -> str:
    """Messages a second in the last ten seconds, the last minute and the last ten minutes."""
    return " ".join(f"{broker.maintenance.traffic.rate(flow, span_ms=span_ms):.2f}" for span_ms in _RATE_SPANS_MS)


def _log(store: MessageStore, now_ms: int, disk: DiskState) -> dict[str, str]:
    used_ratio = 1 - disk.free_bytes / disk.size_bytes if disk.size_bytes else 0.0
    first = store.raw(store.log_start, MIN_RECORD_BYTES)
    first_ms = store_timestamp_ms(first) if first is not None else 0
    return {
        "commitLogMinOffset": str(store.log_start),
        "commitLogMaxOffset": str(store.written_log_offset),
        "commitLogDiskRatio": f"{used_ratio:.4f}",
        "commitLogDirCapacity": f"Total : {disk.size_bytes} B, Free : {disk.free_bytes} B.",
        "remainHowManyDataToFlush": f"{store.written_log_offset - store.flushed_log_offset} B",
        "earliestMessageTimeStamp": str(first_ms or now_ms),
        "isDiskFull": str(store.is_disk_full).lower(),
    }


def _timers(broker: Broker) -> dict[str, str]:
    timers = broker.maintenance.timers
    scheduled = broker.maintenance.traffic.rate(Flow.SCHEDULED)
    settled = broker.maintenance.traffic.rate(Flow.SETTLED)
    return {
        "timerReadBehind": str((timers.schedule_lag_ms or 0) // 1000),
        "timerOffsetBehind": str(timers.unscheduled),
        "timerCongestNum": str(timers.pending),
        "timerEnqueueTps": f"{scheduled:.2f}",
        "timerDequeueTps": f"{settled:.2f}",
    }


def _process(store: MessageStore, now_ms: int, elapsed_ms: int) -> dict[str, str]:
    told = {
        "brokerActive": str(store.failure is None).lower(),
        "brokerVersion": str(PROTOCOL_VERSION),
        "brokerVersionDesc": f"MILLSTREAM_{__version__}",
        "bootTimestamp": str(now_ms - elapsed_ms),
        "runtime": _words(elapsed_ms),
        "pageCacheLockTimeMills": "0",
    }
    for name in _ABSENT_QUEUES:
        told |= {f"{name}ThreadPoolQueueSize": "0", f"{name}ThreadPoolQueueHeadWaitTimeMills": "0"}
    return told


def _words(elapsed_ms: int) -> str:
    hours, rest = divmod(elapsed_ms, HOUR_MS)
    minutes, rest = divmod(rest, MINUTE_MS)
    return f"[ {hours // 24} days, {hours % 24} hours, {minutes} minutes, {rest // 1000} seconds ]"
