"""How far consumer groups are behind, looked up when somebody asks."""

from __future__ import annotations

from dataclasses import dataclass

from millstream.broker.broker import Broker
from millstream.broker.queues.offsets import GroupPosition
from millstream.broker.statistics import MAX_COUNTED_PAIRS
from millstream.server.metrics.labels import group_flags
from millstream.server.metrics.turns import in_turns
from millstream.store.message_store import MessageStore
from millstream.telemetry.exposition import MetricsPage

__all__ = ["add_groups"]


@dataclass(slots=True)
class _Standing:
    """Where one group stands in one topic, over all queues; None is unknown."""

    behind: int = 0
    in_flight: int | None = None
    ready: int | None = None
    oldest_ms: int | None = None
    oldest_ready_ms: int | None = None

    def add(self, store: MessageStore, position: GroupPosition) -> None:
        """Take one queue into account."""
        end = store.max_offset(position.topic, position.queue_id)
        begin = store.min_offset(position.topic, position.queue_id)
        committed = max(position.committed, begin)
        self.oldest_ms = _older(self.oldest_ms, _stored_ms(store, position, committed, end))
        if position.next_offset is None or position.in_flight is None:
            self.behind += max(end - committed, 0)
            return
        next_offset = max(position.next_offset, begin)
        self.in_flight = (self.in_flight or 0) + position.in_flight
        self.ready = (self.ready or 0) + max(end - next_offset, 0)
        self.behind += position.in_flight + max(end - next_offset, 0)
        self.oldest_ready_ms = _older(self.oldest_ready_ms, _stored_ms(store, position, next_offset, end))


async def add_groups(page: MetricsPage, broker: Broker) -> None:
    """Lag, and for groups that pop what is in flight and what is ready. Gives others a turn now and then."""
    positions, left_out = broker.queues.all_offsets(MAX_COUNTED_PAIRS)
    page.add("millstream_groups_left_out", left_out)
    standings: dict[tuple[str, str], _Standing] = {}
    async for position in in_turns(positions):
        standings.setdefault((position.group, position.topic), _Standing()).add(broker.maintenance.store, position)
    page.add("rocketmq_pop_checkpoint_buffer_size", sum(position.in_flight or 0 for position in positions))
    now_ms = broker.clock.now_ms()
    async for (group, topic), standing in in_turns(standings.items()):
        labels = (topic, group, *group_flags(group, topic))
        page.add("rocketmq_consumer_lag_messages", standing.behind, *labels)
        page.add("rocketmq_consumer_lag_latency_milliseconds", _age_ms(now_ms, standing.oldest_ms), *labels)
        if standing.in_flight is not None and standing.ready is not None:
            page.add("rocketmq_consumer_inflight_messages", standing.in_flight, *labels)
            page.add("rocketmq_consumer_ready_messages", standing.ready, *labels)
            queueing_ms = _age_ms(now_ms, standing.oldest_ready_ms)
            page.add("rocketmq_consumer_queueing_latency_milliseconds", queueing_ms, *labels)


def _stored_ms(store: MessageStore, position: GroupPosition, queue_offset: int, end: int) -> int | None:
    """When the first message from the offset on was stored; None if there is none or it cannot be told."""
    if queue_offset >= end:
        return None
    found = store.entries(position.topic, position.queue_id, queue_offset, 1)
    return store.stored_ms(found[0]) or None if found else None


def _older(one_ms: int | None, other_ms: int | None) -> int | None:
    return min((time_ms for time_ms in (one_ms, other_ms) if time_ms is not None), default=None)


def _age_ms(now_ms: int, stored_ms: int | None) -> int:
    return 0 if stored_ms is None else max(now_ms - stored_ms, 0)
