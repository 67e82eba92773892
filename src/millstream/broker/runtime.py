"""What tools print of a running broker, by the names that RocketMQ's tools look for.

A number stands only for what is counted here. Threads and their queues are none of this broker's parts: those fields
are told as 0 where tools cannot do without them, and left out elsewhere.
Source of the names: RocketMQ 5.3 (facts only).
"""

from __future__ import annotations

from typing import Final

from millstream import __version__
from millstream.broker.broker import Broker
from millstream.broker.traffic import Flow
from millstream.broker.traffic_history import HOUR_MS, MINUTE_MS
from millstream.protocol.record import MIN_RECORD_BYTES, store_timestamp_ms
from millstream.protocol.remoting.command import PROTOCOL_VERSION
from millstream.store.retention import DiskState

__all__ = ["describe_runtime"]

_RATE_SPANS_MS: Final = (10_000, MINUTE_MS, 10 * MINUTE_MS)
_ABSENT_QUEUES: Final = ("send", "pull", "query")


def describe_runtime(broker: Broker, disk: DiskState) -> dict[str, str]:
    """The fields by name; `disk` is the one that the store is on."""
    return {**_traffic(broker), **_log(broker, disk), **_timers(broker), **_process(broker)}


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


def _log(broker: Broker, disk: DiskState) -> dict[str, str]:
    store = broker.maintenance.store
    used_ratio = 1 - disk.free_bytes / disk.size_bytes if disk.size_bytes else 0.0
    first = store.raw(store.log_start, MIN_RECORD_BYTES)
    first_ms = store_timestamp_ms(first) if first is not None else 0
    return {
        "commitLogMinOffset": str(store.log_start),
        "commitLogMaxOffset": str(store.written_log_offset),
        "commitLogDiskRatio": f"{used_ratio:.4f}",
        "commitLogDirCapacity": f"Total : {disk.size_bytes} B, Free : {disk.free_bytes} B.",
        "remainHowManyDataToFlush": f"{store.written_log_offset - store.flushed_log_offset} B",
        "earliestMessageTimeStamp": str(first_ms or broker.clock.now_ms()),
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


def _process(broker: Broker) -> dict[str, str]:
    now_ms = broker.clock.now_ms()
    told = {
        "brokerActive": str(broker.maintenance.store.failure is None).lower(),
        "brokerVersion": str(PROTOCOL_VERSION),
        "brokerVersionDesc": f"MILLSTREAM_{__version__}",
        "bootTimestamp": str(now_ms - broker.maintenance.traffic.elapsed_ms),
        "runtime": _words(broker.maintenance.traffic.elapsed_ms),
        "pageCacheLockTimeMills": "0",
    }
    for name in _ABSENT_QUEUES:
        told |= {f"{name}ThreadPoolQueueSize": "0", f"{name}ThreadPoolQueueHeadWaitTimeMills": "0"}
    return told


def _words(elapsed_ms: int) -> str:
    hours, rest = divmod(elapsed_ms, HOUR_MS)
    minutes, rest = divmod(rest, MINUTE_MS)
    return f"[ {hours // 24} days, {hours % 24} hours, {minutes} minutes, {rest // 1000} seconds ]"
