"""The /metrics page of one server.

How far consumer groups are behind, looked up when somebody asks.

Metrics of clients: who is there, and how long their requests took.

How many requests of each kind wait for their answer at a broker's remoting port.

Metrics of a broker's traffic, store and timers.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from millstream import __version__
from millstream.broker.broker import Broker
from millstream.broker.cold_tier import ColdTier
from millstream.broker.column_copies import ColumnReport
from millstream.broker.queues.offsets import GroupPosition
from millstream.broker.remoting.clients import ConsumerRegistry
from millstream.broker.remoting.producers import ProducerRegistry
from millstream.broker.statistics import MAX_COUNTED_PAIRS, Statistics
from millstream.controller.elections import ElectionOutcome
from millstream.controller.remoting import ControllerHandlers
from millstream.model.clock import Clock
from millstream.protocol.grpc import messages as m
from millstream.protocol.record import store_timestamp_ms
from millstream.protocol.remoting.codes import RequestCode, ResponseCode
from millstream.proxy.processor import Processor
from millstream.proxy.tracer import Tracer
from millstream.server.metrics.cooperative import iterate_cooperatively
from millstream.server.metrics.labels import OTHER, UNKNOWN, group_flags, limit_rows, topic_flag
from millstream.server.metrics.replicas import add_replica
from millstream.server.replicas.replicated_broker import ReplicatedBroker
from millstream.store.message_store import MessageStore
from millstream.telemetry.metrics import CONTENT_TYPE, MetricsPage
from millstream.telemetry.processes import ProcessSample, ProcessTree
from millstream.transport.http_pages import Page
from millstream.transport.remoting_server import RemotingServer

__all__ = [
    "MAX_CLIENT_KINDS",
    "PROCESS_SAMPLE_S",
    "TIMER_BOUNDS_S",
    "ServerMetrics",
    "add_broker",
    "add_connections",
    "add_controller",
    "add_groups",
    "add_proxy",
    "add_remoting",
    "watermarks",
]

_DISK: Final = ("local", "disk")
_CONTROLLER: Final = "controller"
TIMER_BOUNDS_S: Final = (0, 5, 60, 300, 900, 3600, 14_400, 28_800, 86_400)
"""RocketMQ's own bounds, and 0 for what is due."""


async def add_broker(page: MetricsPage, broker: Broker) -> None:
    """Everything but the groups' lag. Gives others a turn now and then."""
    page.add("rocketmq_broker_permission", int(broker.maintenance.permission.value))
    page.add("rocketmq_topic_number", len(broker.topics.all()))
    page.add("rocketmq_consumer_group_number", len(broker.groups.all()))
    page.add("millstream_waiting_requests", broker.maintenance.waiting_requests)
    routes = broker.maintenance.light_queues.dispatcher.table
    page.add("millstream_light_queues", len(routes))
    page.add("millstream_light_queue_bindings", routes.binding_count)
    lengths = broker.maintenance.light_queues.lengths
    page.add("millstream_light_queue_overflow_total", lengths.dropped, "dropped")
    page.add("millstream_light_queue_overflow_total", lengths.rejected, "rejected")
    await _add_traffic(page, broker.maintenance.statistics)
    await _add_deliveries(page, broker.maintenance.statistics)
    _add_store(page, broker.maintenance.store, broker.clock.now_ms())
    if broker.cold.is_enabled:
        _add_cold(page, broker.cold)
        _add_columns(page, broker.columns.report())
    await _add_timers(page, broker)
    await _add_transactions(page, broker)


async def add_controller(page: MetricsPage, handlers: ControllerHandlers) -> None:
    """What a controller decided, and who lives. Gives others a turn now and then."""
    controller = handlers.controller
    page.add("millstream_controller_role", int(controller.log.role), node_type=_CONTROLLER)
    for outcome in ElectionOutcome:
        number = controller.election_counts[outcome]
        page.add("millstream_controller_election_total", number, outcome.value, node_type=_CONTROLLER)
    for (kind, status), number in handlers.counts.items():
        page.add("millstream_controller_request_total", number, kind, status, node_type=_CONTROLLER)
    async for name, number in iterate_cooperatively(controller.count_active().items()):
        page.add("millstream_controller_active_broker_num", number, name, node_type=_CONTROLLER)


async def _add_traffic(page: MetricsPage, statistics: Statistics) -> None:
    async for key, incoming in iterate_cooperatively(statistics.incoming.rows()):
        topic, kind = (key[0], key[1].lower()) if key is not None else (OTHER, OTHER)
        labels = (topic, kind, topic_flag(topic))
        page.add("rocketmq_messages_in_total", incoming.messages, *labels)
        page.add("rocketmq_throughput_in_total", incoming.size_bytes, *labels)
        page.add_histogram("rocketmq_message_size", incoming.sizes, *labels)


async def _add_deliveries(page: MetricsPage, statistics: Statistics) -> None:
    async for pair, outgoing in iterate_cooperatively(statistics.outgoing.rows()):
        group, topic = pair or (OTHER, OTHER)
        is_retry, is_system = group_flags(group, topic)
        page.add("rocketmq_messages_out_total", outgoing.messages, topic, group, is_retry, is_system)
        page.add("rocketmq_throughput_out_total", outgoing.size_bytes, topic, group, is_retry, is_system)
        page.add("rocketmq_pop_revive_retry_messages_total", outgoing.again, topic, group, is_system)
    async for pair, count in iterate_cooperatively(statistics.dead_letters.rows()):
        group, topic = pair or (OTHER, OTHER)
        page.add("rocketmq_send_to_dlq_messages_total", count.number, group, topic, group_flags(group, topic)[1])
    async for pair, count in iterate_cooperatively(statistics.expired.rows()):
        group, topic = pair or (OTHER, OTHER)
        page.add("millstream_expired_messages_total", count.number, group, topic, group_flags(group, topic)[1])


def _add_store(page: MetricsPage, store: MessageStore, now_ms: int) -> None:
    written = store.written_log_offset
    page.add("rocketmq_storage_size_bytes", written - store.log_start, *_DISK)
    page.add("rocketmq_storage_flush_behind_bytes", max(written - store.flushed_log_offset, 0), *_DISK)
    page.add("rocketmq_storage_dispatch_behind_bytes", max(written - store.visible_log_offset, 0), *_DISK)
    oldest = store.record_at(store.log_start)
    if oldest is not None:
        age_ms = max(now_ms - store_timestamp_ms(oldest), 0)
        page.add("rocketmq_storage_message_reserve_time_milliseconds", age_ms, *_DISK)


def _add_columns(page: MetricsPage, found: ColumnReport) -> None:
    page.add("millstream_columns_files", found.files)
    page.add("millstream_columns_bytes", found.bytes)
    page.add("millstream_columns_rows", found.rows)
    page.add("millstream_columns_malformed_rows", found.malformed)
    page.add("millstream_columns_lost_messages", found.lost)
    page.add("millstream_columns_refused_total", found.refused)
    page.add("millstream_columns_errors_total", found.errors)


def _add_cold(page: MetricsPage, cold: ColdTier) -> None:
    found = cold.report()
    page.add("millstream_tiered_objects", found.objects)
    page.add("millstream_tiered_bytes", found.bytes)
    page.add("millstream_tiered_behind_bytes", found.behind_bytes)
    page.add("millstream_tiered_uploaded_bytes_total", found.bytes_written)
    page.add("millstream_tiered_downloaded_bytes_total", found.bytes_read)
    page.add("millstream_tiered_cache_access_total", found.blocks_wanted)
    page.add("millstream_tiered_cache_hit_total", found.blocks_cached)
    page.add("millstream_tiered_requests_total", found.requests)
    page.add("millstream_tiered_errors_total", found.errors)
    page.add("millstream_tiered_damaged_total", found.damaged)
    page.add("millstream_tiered_passed_over_total", found.passed_over)
    page.add("millstream_tiered_dropped_bytes_total", found.dropped_bytes)
    page.add("millstream_tiered_merges_total", found.merges)
    page.add("millstream_tiered_process_running", int(found.process is not None))
    page.add("millstream_tiered_process_starts_total", found.process_starts)


async def _add_transactions(page: MetricsPage, broker: Broker) -> None:
    page.add("rocketmq_half_messages", broker.maintenance.open_transactions)
    async for name, traffic in iterate_cooperatively(broker.maintenance.statistics.transactions.rows()):
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
    async for name, traffic in iterate_cooperatively(broker.maintenance.statistics.timers.rows()):
        topic = name or OTHER
        page.add("rocketmq_timer_enqueue_total", traffic.scheduled, topic, *_DISK)
        page.add("rocketmq_timer_dequeue_total", traffic.settled, topic, *_DISK)
        page.add_histogram("rocketmq_delay_message_latency_seconds", traffic.delays, topic, *_DISK)


_ADMIN: Final = "admin"
_KINDS: Final[dict[str, tuple[RequestCode, ...]]] = {
    "send": (
        RequestCode.SEND_MESSAGE,
        RequestCode.SEND_MESSAGE_V2,
        RequestCode.SEND_BATCH_MESSAGE,
        RequestCode.BULK_PUT,
        RequestCode.CONSUMER_SEND_MSG_BACK,
        RequestCode.RECALL_MESSAGE,
    ),
    "reply": (RequestCode.SEND_REPLY_MESSAGE, RequestCode.SEND_REPLY_MESSAGE_V2),
    "ack": (RequestCode.ACK_MESSAGE, RequestCode.BATCH_ACK_MESSAGE, RequestCode.CHANGE_MESSAGE_INVISIBLE_TIME),
    "query_message": (RequestCode.QUERY_MESSAGE, RequestCode.VIEW_MESSAGE_BY_ID),
    "client_manager": (RequestCode.UNREGISTER_CLIENT, RequestCode.CHECK_CLIENT_CONFIG),
    "heartbeat": (RequestCode.HEART_BEAT,),
    "consumer_manager": (
        RequestCode.GET_CONSUMER_LIST_BY_GROUP,
        RequestCode.QUERY_CONSUMER_OFFSET,
        RequestCode.UPDATE_CONSUMER_OFFSET,
    ),
    "transaction": (RequestCode.END_TRANSACTION, RequestCode.END_TRANSACTION_BY_ID),
}
"""RocketMQ's names for kinds of requests; `_ADMIN` is that of all others."""

_WAITING_FOR_MESSAGES: Final = frozenset((
    RequestCode.PULL_MESSAGE,
    RequestCode.LITE_PULL_MESSAGE,
    RequestCode.BULK_FETCH,
    RequestCode.POP_MESSAGE,
    RequestCode.SEGMENT_POP,
    RequestCode.PEEK_MESSAGE,
    RequestCode.NOTIFICATION,
))  # fmt: skip
"""They are answered at once or wait on purpose, so that a number of them would say nothing of load."""

_KIND_OF: Final[dict[int, str]] = {code: kind for kind, codes in _KINDS.items() for code in codes}


def watermarks(unanswered: Mapping[int, int]) -> dict[str, int]:
    """Requests that were read and are not answered yet, by kind; `unanswered` has them by request code."""
    found = Counter(dict.fromkeys((*_KINDS, _ADMIN), 0))
    for code, number in unanswered.items():
        if code not in _WAITING_FOR_MESSAGES:
            found[_KIND_OF.get(code, _ADMIN)] += number
    return found


MAX_CLIENT_KINDS: Final = 100
"""Pairs of language and version of producers that are distinguished; clients may call themselves anything."""

_REQUESTS: Final[dict[int | str, str]] = {code.value: code.name.lower() for code in RequestCode}
_RESPONSES: Final[dict[int, str]] = {code.value: code.name.lower() for code in ResponseCode}
_WAITING_CODES: Final = frozenset((RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE, RequestCode.BULK_FETCH))
_WAITING_METHODS: Final = frozenset(("ReceiveMessage",))
_MODES_OF_KINDS: Final = {"PUSH_CONSUMER": "push", "SIMPLE_CONSUMER": "pop", "PULL_CONSUMER": "pull"}
_MODES_OF_TYPES: Final = {"CONSUME_PASSIVELY": "push", "CONSUME_ACTIVELY": "pull", "CONSUME_POP": "pop"}
_REFUSED: Final = "process_request_failed"
_BROKER: Final = "broker"
_LATENCY: Final = "rocketmq_rpc_latency_milliseconds"


def add_connections(
    page: MetricsPage,
    processor: Processor | None,
    consumers: ConsumerRegistry | None,
    producers: ProducerRegistry | None = None,
) -> None:
    """Producers and consumers. A producer that speaks remoting counts once for each of its groups."""
    producing: Counter[tuple[str, ...]] = Counter()
    consuming: Counter[tuple[str, ...]] = Counter()
    for client in processor.clients.all() if processor is not None else ():
        client_labels = (client.language or UNKNOWN, client.version or UNKNOWN)
        if client.kind == "PRODUCER":
            producing[*client_labels, "grpc"] += 1
        for group in client.groups:
            consuming[group, *client_labels, _MODES_OF_KINDS.get(client.kind, UNKNOWN), "grpc"] += 1
    for known in producers.all() if producers is not None else ():
        producing[known.told.language.lower(), str(known.told.version), "remoting"] += 1
    for member in consumers.all() if consumers is not None else ():
        mode = _MODES_OF_TYPES.get(member.consume_type, UNKNOWN)
        consuming[member.group, member.language, str(member.version), mode, "remoting"] += 1
    for labels, number in limit_rows(producing, MAX_CLIENT_KINDS).items():
        page.add("rocketmq_producer_connections", number, *labels)
    for labels, number in limit_rows(consuming, MAX_COUNTED_PAIRS).items():
        page.add("rocketmq_consumer_connections", number, *labels, group_flags(labels[0], "")[1])


def add_proxy(page: MetricsPage, processor: Processor) -> None:
    """The proxy and its calls."""
    page.add("rocketmq_proxy_up", 1, "local", node_type="proxy")
    page.add("millstream_renewed_deliveries", len(processor.renewer.table), node_type="proxy")
    page.add("millstream_feed_queues", processor.feed.readers, node_type="proxy")
    page.add("millstream_feed_skipped_total", processor.feed.skipped, node_type="proxy")
    ok = _grpc_code(m.OK)
    for key, histogram in processor.latency.rows():
        method, code = (str(key[0]), _grpc_code(key[1])) if key is not None else (OTHER, OTHER)
        waits = "true" if method in _WAITING_METHODS else "false"
        result = "success" if code == ok else _REFUSED
        page.add_histogram(_LATENCY, histogram, "grpc", method, code, waits, result, node_type="proxy")


def add_remoting(page: MetricsPage, server: RemotingServer, node_type: str) -> None:
    """A remoting port and its requests."""
    page.add("millstream_remoting_connections", server.connections, node_type=node_type)
    if node_type == _BROKER:
        for kind, number in watermarks(server.unanswered).items():
            page.add("rocketmq_processor_watermark", number, kind, node_type=node_type)
    for key, histogram in server.latency.rows():
        request, response = key if key is not None else (-1, -1)
        labels = (
            _REQUESTS.get(request, OTHER),
            _RESPONSES.get(response, OTHER),
            "true" if request in _WAITING_CODES else "false",
        )
        result = "success" if response == ResponseCode.SUCCESS else _REFUSED
        page.add_histogram(_LATENCY, histogram, "remoting", *labels, result, node_type=node_type)


def _grpc_code(number: int) -> str:
    named = m.Code.DESCRIPTOR.values_by_number.get(number)
    return named.name.lower() if named else str(number)


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
    async for position in iterate_cooperatively(positions):
        standings.setdefault((position.group, position.topic), _Standing()).add(broker.maintenance.store, position)
    page.add("rocketmq_pop_checkpoint_buffer_size", sum(position.in_flight or 0 for position in positions))
    now_ms = broker.clock.now_ms()
    async for (group, topic), standing in iterate_cooperatively(standings.items()):
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
    return store.stored_ms_at(position.topic, position.queue_id, queue_offset) or None


def _older(one_ms: int | None, other_ms: int | None) -> int | None:
    return min((time_ms for time_ms in (one_ms, other_ms) if time_ms is not None), default=None)


def _age_ms(now_ms: int, stored_ms: int | None) -> int:
    return 0 if stored_ms is None else max(now_ms - stored_ms, 0)


PROCESS_SAMPLE_S: Final = 5.0
"""Seconds for which memory and processor time are told again before they are read again."""


@dataclass(slots=True)
class ServerMetrics:
    """Makes the page. Parts that are None are not there (yet), and nothing is told of them."""

    clock: Clock
    cluster: str = "DefaultCluster"
    node_id: str = "broker-a"
    broker: Broker | None = None
    consumers: ConsumerRegistry | None = None
    producers: ProducerRegistry | None = None
    controller: ControllerHandlers | None = None
    replicated: ReplicatedBroker | None = None
    processor: Processor | None = None
    tracer: Tracer | None = None
    remoting: dict[str, RemotingServer] = field(default_factory=dict)
    """Remoting ports by node type."""
    additions: list[Callable[[MetricsPage], None]] = field(default_factory=list)
    """What other roles add to the page."""
    _processes: list[ProcessSample] | None = None
    _sampled_s: float | None = None

    async def page(self) -> Page:
        """The page as of now. Gives others a turn where it looks at many groups."""
        page = MetricsPage(cluster=self.cluster, node_id=self.node_id)
        page.add("millstream_build_info", 1, __version__, node_type="server")
        if self.broker is not None:
            await add_broker(page, self.broker)
            await add_groups(page, self.broker)
        if self.replicated is not None:
            add_replica(page, self.replicated)
        add_connections(page, self.processor, self.consumers, self.producers)
        if self.controller is not None:
            await add_controller(page, self.controller)
        if self.processor is not None:
            add_proxy(page, self.processor)
        if self.tracer is not None:
            page.add("millstream_trace_records_dropped_total", self.tracer.dropped, node_type="proxy")
        for node_type, server in self.remoting.items():
            add_remoting(page, server, node_type)
        for add in self.additions:
            add(page)
        await self._add_processes(page)
        return Page(200, CONTENT_TYPE, page.text())

    async def _add_processes(self, page: MetricsPage) -> None:
        now_s = self.clock.monotonic_s()
        if self._sampled_s is None or now_s - self._sampled_s >= PROCESS_SAMPLE_S:
            self._processes = await asyncio.to_thread(ProcessTree([os.getpid()]).sample)
            self._sampled_s = now_s
        memory_bytes: Counter[str] = Counter()
        cpu_s: dict[str, float] = {}
        for sample in self._processes or ():
            memory_bytes[sample.kind] += sample.memory_bytes
            cpu_s[sample.kind] = cpu_s.get(sample.kind, 0.0) + sample.cpu_s
        for kind, number in memory_bytes.items():
            page.add("millstream_process_memory_bytes", number, kind, node_type="server")
        for kind, seconds in cpu_s.items():
            page.add("millstream_process_cpu_seconds", seconds, kind, node_type="server")
