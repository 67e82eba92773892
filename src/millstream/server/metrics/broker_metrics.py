"""Metrics of a broker's traffic, store and timers."""

from __future__ import annotations

from typing import Final

from millstream.broker.broker import Broker
from millstream.broker.statistics import Statistics
from millstream.protocol.record import store_timestamp_ms
from millstream.server.metrics.labels import OTHER, group_flags, topic_flag
from millstream.server.metrics.turns import in_turns
from millstream.store.message_store import MessageStore
from millstream.telemetry.exposition import MetricsPage

__all__ = ["TIMER_BOUNDS_S", "add_broker"]

_DISK: Final = ("local", "disk")
TIMER_BOUNDS_S: Final = (0, 5, 60, 300, 900, 3600, 14_400, 28_800, 86_400)
"""RocketMQ's own bounds, and 0 for what is due."""


async def add_broker(page: MetricsPage, broker: Broker) -> None:
    """Everything but the groups' lag. Gives others a turn now and then."""
    page.add("rocketmq_broker_permission", int(broker.maintenance.permission.value))
    page.add("rocketmq_topic_number", len(broker.topics.all()))
    page.add("rocketmq_consumer_group_number", len(broker.groups.all()))
    page.add("millstream_waiting_requests", broker.maintenance.waiting_requests)
    await _add_traffic(page, broker.maintenance.statistics)
    await _add_deliveries(page, broker.maintenance.statistics)
    _add_store(page, broker.maintenance.store, broker.clock.now_ms())
    await _add_timers(page, broker)
    await _add_transactions(page, broker)


async def _add_traffic(page: MetricsPage, statistics: Statistics) -> None:
    async for key, incoming in in_turns(statistics.incoming.rows()):
        topic, kind = (key[0], key[1].lower()) if key is not None else (OTHER, OTHER)
        labels = (topic, kind, topic_flag(topic))
        page.add("rocketmq_messages_in_total", incoming.messages, *labels)
        page.add("rocketmq_throughput_in_total", incoming.size_bytes, *labels)
        page.add_histogram("rocketmq_message_size", incoming.sizes, *labels)


async def _add_deliveries(page: MetricsPage, statistics: Statistics) -> None:
    async for pair, outgoing in in_turns(statistics.outgoing.rows()):
        group, topic = pair or (OTHER, OTHER)
        is_retry, is_system = group_flags(group, topic)
        page.add("rocketmq_messages_out_total", outgoing.messages, topic, group, is_retry, is_system)
        page.add("rocketmq_throughput_out_total", outgoing.size_bytes, topic, group, is_retry, is_system)
        page.add("rocketmq_pop_revive_retry_messages_total", outgoing.again, topic, group, is_system)
    async for pair, count in in_turns(statistics.dead_letters.rows()):
        group, topic = pair or (OTHER, OTHER)
        page.add("rocketmq_send_to_dlq_messages_total", count.number, group, topic, group_flags(group, topic)[1])


def _add_store(page: MetricsPage, store: MessageStore, now_ms: int) -> None:
    written = store.written_log_offset
    page.add("rocketmq_storage_size_bytes", written - store.log_start, *_DISK)
    page.add("rocketmq_storage_flush_behind_bytes", max(written - store.flushed_log_offset, 0), *_DISK)
    page.add("rocketmq_storage_dispatch_behind_bytes", max(written - store.visible_log_offset, 0), *_DISK)
    oldest = store.record_at(store.log_start)
    if oldest is not None:
        age_ms = max(now_ms - store_timestamp_ms(oldest), 0)
        page.add("rocketmq_storage_message_reserve_time_milliseconds", age_ms, *_DISK)


async def _add_transactions(page: MetricsPage, broker: Broker) -> None:
    page.add("rocketmq_half_messages", broker.maintenance.open_transactions)
    async for name, traffic in in_turns(broker.maintenance.statistics.transactions.rows()):
        topic = name or OTHER
        page.add("rocketmq_commit_messages_total", traffic.committed, topic)
        page.add("rocketmq_rollback_messages_total", traffic.rolled_back, topic)
        page.add_histogram("rocketmq_finish_message_latency_milliseconds", traffic.finishes, topic)


async def _add_timers(page: MetricsPage, broker: Broker) -> None:
    timers = broker.maintenance.timers
    counts = timers.counts(TIMER_BOUNDS_S)
    page.add("rocketmq_timing_messages", timers.pending, *_DISK)
    for bound_s, number in zip((*map(str, TIMER_BOUNDS_S), "+Inf"), counts, strict=True):
        page.add("rocketmq_timer_message_snapshot", number, *_DISK, bound_s)
    page.add("rocketmq_timer_enqueue_lag", timers.unscheduled, *_DISK)
    schedule_lag_ms = timers.schedule_lag_ms
    if schedule_lag_ms is not None:
        page.add("rocketmq_timer_enqueue_latency_milliseconds", schedule_lag_ms, *_DISK)
    page.add("rocketmq_timer_dequeue_lag", counts[0], *_DISK)
    page.add("rocketmq_timer_dequeue_latency_milliseconds", timers.delivery_lag_ms, *_DISK)
    page.add_histogram("millstream_delivery_lateness_milliseconds", broker.maintenance.statistics.lateness)
    async for name, traffic in in_turns(broker.maintenance.statistics.timers.rows()):
        topic = name or OTHER
        page.add("rocketmq_timer_enqueue_total", traffic.scheduled, topic, *_DISK)
        page.add("rocketmq_timer_dequeue_total", traffic.settled, topic, *_DISK)
        page.add_histogram("rocketmq_delay_message_latency_seconds", traffic.delays, topic, *_DISK)
