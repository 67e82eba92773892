"""The table of every metric that is exposed, and the page of the Prometheus text format 0.0.4."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

from millstream.telemetry.counters import Histogram

__all__ = ["CONTENT_TYPE", "METRICS", "NODE_LABELS", "Metric", "MetricKind", "MetricsPage"]


NODE_LABELS: Final = ("cluster", "node_type", "node_id")
"""The labels that every metric has before its own."""


class MetricKind(Enum):
    """What can be done with a metric's value; the words are those of the text format."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class Metric:
    """One row: `labels` are its own, which stand behind `NODE_LABELS`."""

    name: str
    kind: MetricKind
    labels: tuple[str, ...]
    meaning: str


def _rows(*rows: tuple[str, MetricKind, str, str]) -> dict[str, Metric]:
    return {name: Metric(name, kind, tuple(labels.split()), meaning) for name, kind, labels, meaning in rows}


_COUNTER, _GAUGE, _HISTOGRAM = MetricKind.COUNTER, MetricKind.GAUGE, MetricKind.HISTOGRAM
_IN, _OUT = "topic message_type is_system", "topic consumer_group is_retry is_system"
_RPC = "protocol_type request_code response_code is_long_polling result"
_STORAGE = "storage_type storage_medium"

METRICS: dict[str, Metric] = _rows(
    ("rocketmq_messages_in_total", _COUNTER, _IN, "Messages that clients sent and the broker stored."),
    ("rocketmq_throughput_in_total", _COUNTER, _IN, "Bytes of their records in the log."),
    ("rocketmq_message_size", _HISTOGRAM, _IN, "Bytes of one stored message; of a batch the mean of its messages."),
    ("rocketmq_messages_out_total", _COUNTER, _OUT, "Messages handed to consumers, each delivery counted."),
    ("rocketmq_throughput_out_total", _COUNTER, _OUT, "Bytes handed to consumers: of whole records for pulls, of bodies for pops."),
    ("rocketmq_send_to_dlq_messages_total", _COUNTER, "consumer_group topic is_system", "Messages moved to the group's dead-letter topic; topic is where they came from."),
    ("rocketmq_commit_messages_total", _COUNTER, "topic", "Transactions that their producers committed."),
    ("rocketmq_rollback_messages_total", _COUNTER, "topic", "Transactions that their producers rolled back."),
    ("rocketmq_finish_message_latency_milliseconds", _HISTOGRAM, "topic", "Milliseconds from the sending of a half message to the end of its transaction."),
    ("rocketmq_half_messages", _GAUGE, "", "Half messages that wait for the end of their transaction."),
    ("rocketmq_producer_connections", _GAUGE, "language version protocol_type", "Connected producers."),
    ("rocketmq_consumer_connections", _GAUGE, "consumer_group language version consume_mode protocol_type is_system", "Connected consumers, by group."),
    ("rocketmq_consumer_lag_messages", _GAUGE, _OUT, "Messages that the group has not consumed, those in flight included."),
    ("rocketmq_consumer_lag_latency_milliseconds", _GAUGE, _OUT, "Milliseconds since the oldest message was stored that the group has not consumed; 0 with no lag."),
    ("rocketmq_consumer_inflight_messages", _GAUGE, _OUT, "Messages delivered to the group and not acknowledged; groups that pop only."),
    ("rocketmq_consumer_ready_messages", _GAUGE, _OUT, "Messages that were never delivered to the group; groups that pop only."),
    ("rocketmq_consumer_queueing_latency_milliseconds", _GAUGE, _OUT, "Milliseconds since the oldest message was stored that was never delivered to the group; groups that pop only."),
    ("rocketmq_broker_permission", _GAUGE, "", "What clients may do: 6 read and write, 4 read alone."),
    ("rocketmq_topic_number", _GAUGE, "", "Topics of the broker."),
    ("rocketmq_consumer_group_number", _GAUGE, "", "Consumer groups of the broker."),
    ("rocketmq_rpc_latency_milliseconds", _HISTOGRAM, _RPC, "Milliseconds from a request's arrival to its answer. request_code is RocketMQ's name of the code, or the gRPC method, or what a request over HTTP does; is_long_polling means that the request may wait for messages."),
    ("rocketmq_processor_watermark", _GAUGE, "processor", "Requests of the broker's remoting port, by RocketMQ's names for their kinds, that were read and are not answered yet. Pulls and pops are left out: they are answered at once or wait for messages (millstream_waiting_requests)."),
    ("rocketmq_storage_size_bytes", _GAUGE, _STORAGE, "Bytes of the log that are kept."),
    ("rocketmq_storage_flush_behind_bytes", _GAUGE, _STORAGE, "Bytes of the log that are written and not yet on the disk."),
    ("rocketmq_storage_dispatch_behind_bytes", _GAUGE, _STORAGE, "Bytes of the log that are written and that readers do not see yet."),
    ("rocketmq_storage_message_reserve_time_milliseconds", _GAUGE, _STORAGE, "Milliseconds since the oldest message of the log was stored."),
    ("rocketmq_timing_messages", _GAUGE, _STORAGE, "Delayed messages that wait for their time."),
    ("rocketmq_timer_message_snapshot", _GAUGE, f"{_STORAGE} timer_bound_s", "The same by the time until they are due: up to that many seconds, each message in one of them."),
    ("rocketmq_timer_enqueue_total", _COUNTER, f"topic {_STORAGE}", "Delayed messages that began to wait."),
    ("rocketmq_timer_dequeue_total", _COUNTER, f"topic {_STORAGE}", "Delayed messages that were delivered to their topic."),
    ("rocketmq_timer_enqueue_lag", _GAUGE, _STORAGE, "Delayed messages that are stored and whose time is not noted yet."),
    ("rocketmq_timer_enqueue_latency_milliseconds", _GAUGE, _STORAGE, "Milliseconds since the first of them was stored; 0 with none."),
    ("rocketmq_timer_dequeue_lag", _GAUGE, _STORAGE, "Delayed messages that are due and not yet delivered to their topic."),
    ("rocketmq_timer_dequeue_latency_milliseconds", _GAUGE, _STORAGE, "Milliseconds since the first of them was due; 0 with none."),
    ("rocketmq_delay_message_latency_seconds", _HISTOGRAM, f"topic {_STORAGE}", "Seconds for which delayed messages are to wait, as of when they were stored."),
    ("millstream_delivery_lateness_milliseconds", _HISTOGRAM, "", "Milliseconds from the time at which a delayed message was due to its delivery to its topic."),
    ("rocketmq_pop_revive_retry_messages_total", _COUNTER, "topic consumer_group is_system", "Deliveries of messages that were not acknowledged in time, all but the first of each message."),
    ("rocketmq_pop_checkpoint_buffer_size", _GAUGE, "", "Deliveries that the broker keeps in memory because they are not acknowledged."),
    ("rocketmq_proxy_up", _GAUGE, "proxy_mode", "1 while the proxy answers."),
    ("millstream_remoting_connections", _GAUGE, "", "Open connections of a remoting port; node_type says whose."),
    ("millstream_port_connections", _GAUGE, "protocol_type", "Open connections of a proxy's port for mqtt, amqp or http."),
    ("millstream_port_sessions", _GAUGE, "protocol_type", "Sessions of MQTT clients, channels of AMQP clients, and requests over HTTP that wait for messages."),
    ("millstream_port_messages_in_total", _COUNTER, "protocol_type", "Messages that clients of such a port sent."),
    ("millstream_port_messages_out_total", _COUNTER, "protocol_type", "Messages that clients of such a port were sent."),
    ("millstream_port_refused_total", _COUNTER, "protocol_type", "Connections, subscriptions, sends and declarations that such a port refused."),
    ("millstream_port_dropped_total", _COUNTER, "protocol_type", "Messages that a client of such a port did not get and will not: it did not read, or takes none of that size."),
    ("millstream_feed_queues", _GAUGE, "", "Queues that the proxy follows for its sessions, each with one read that waits."),
    ("millstream_feed_skipped_total", _COUNTER, "", "Records that all who follow a queue missed: they were removed before they could be read, or the proxy was too far behind."),
    ("millstream_waiting_requests", _GAUGE, "", "Requests that wait in the broker for messages."),
    ("millstream_expired_messages_total", _COUNTER, "consumer_group topic is_system", "Messages that pops of the group passed over because their time was over (__EXPIRES_MS)."),
    ("millstream_light_queues", _GAUGE, "", "Light queues of the broker."),
    ("millstream_light_queue_bindings", _GAUGE, "", "Bindings of the broker's light queues."),
    ("millstream_light_queue_overflow_total", _COUNTER, "outcome", "Messages that full light queues dropped, or rejected and so did not get; topics and other queues have them."),
    ("millstream_renewed_deliveries", _GAUGE, "", "Deliveries whose invisible duration the proxy prolongs."),
    ("millstream_trace_records_dropped_total", _COUNTER, "", "Trace records that were not written, because too many waited or the log refused them."),
    ("millstream_groups_left_out", _GAUGE, "", "Pairs of group and topic whose lag is not shown, because there are too many."),
    ("millstream_controller_role", _GAUGE, "", "What the controller is among the others: 3 the leader, 2 a follower, 1 a candidate, 0 not known. RocketMQ calls it role."),
    ("millstream_controller_active_broker_num", _GAUGE, "broker_set", "Replicas of a broker name whose heartbeats the controller hears. RocketMQ: active_broker_num."),
    ("millstream_controller_election_total", _COUNTER, "election_result", "Elections that the controller held: new_master_elected, keep_current_master, no_master_elected. RocketMQ: election_total."),
    ("millstream_controller_request_total", _COUNTER, "request_type request_handle_status", "Requests to the controller by RocketMQ's name, and how they ended: success, failed, timeout. RocketMQ: request_total."),
    ("millstream_replica_role", _GAUGE, "", "What a broker with replicas is: 2 the master, 1 a replica, 0 neither yet."),
    ("millstream_replica_epoch", _GAUGE, "", "The epoch of its master; each change of the master makes it grow."),
    ("millstream_replica_confirmed_offset", _GAUGE, "", "Up to which byte of the log messages count: what senders were answered and readers see."),
    ("millstream_replica_reads_total", _COUNTER, "", "Requests of readers that it answered as a replica, since its start."),
    ("millstream_replica_read_bytes_total", _COUNTER, "", "Bytes of these answers."),
    ("millstream_replica_damaged_bytes", _GAUGE, "", "Bytes of the log that fail their checksums and are not fetched again from another replica yet."),
    ("millstream_replica_mended_bytes_total", _COUNTER, "", "Bytes of the log that were damaged and fetched again from another replica, since the start."),
    ("millstream_replica_set_size", _GAUGE, "", "Members of the sync state set, the master among them; at the master."),
    ("millstream_replica_takes_writes", _GAUGE, "", "1 while the set has as many members as min_in_sync demands, else 0; at the master."),
    ("millstream_replica_lag_bytes", _GAUGE, "replica_id in_set", "Bytes of the log that a connected replica does not have; at the master."),
    ("millstream_replica_lease_left_seconds", _GAUGE, "", "Seconds for which the controllers let it go on as the master; at the master."),
    ("millstream_replica_behind_bytes", _GAUGE, "", "Bytes that a replica lacks of its master's log, as of that one's last answer; at a replica."),
    ("millstream_replica_apply_lag_bytes", _GAUGE, "", "Bytes of its log that a replica does not show yet: it would have to, were it elected; at a replica."),
    ("millstream_tiered_objects", _GAUGE, "", "Objects with cold messages that readers find."),
    ("millstream_tiered_bytes", _GAUGE, "", "Their bytes, as they lie in the object store."),
    ("millstream_tiered_behind_bytes", _GAUGE, "", "Bytes of the log that did not go into the object store yet."),
    ("millstream_tiered_uploaded_bytes_total", _COUNTER, "", "Bytes of objects that were put, since the start."),
    ("millstream_tiered_downloaded_bytes_total", _COUNTER, "", "Bytes of objects that were read, by readers and by merges, since the start."),
    ("millstream_tiered_cache_access_total", _COUNTER, "", "Blocks of cold messages that readers wanted."),
    ("millstream_tiered_cache_hit_total", _COUNTER, "", "Of these, blocks that were in memory or on their way."),
    ("millstream_tiered_requests_total", _COUNTER, "", "Requests to the object store, since the start."),
    ("millstream_tiered_errors_total", _COUNTER, "", "Uploads, reads and clean-ups of cold messages that failed."),
    ("millstream_tiered_damaged_total", _COUNTER, "", "Reads of objects that failed their checksums."),
    ("millstream_tiered_merges_total", _COUNTER, "", "Times that small objects with cold messages were merged into larger ones."),
    ("millstream_tiered_dropped_bytes_total", _COUNTER, "", "Bytes of the log that a full disk let go of before they were in the object store (tiered.when_behind)."),
    ("millstream_tiered_process_running", _GAUGE, "", "Whether the process for cold messages is there; it ends where nobody needs it."),
    ("millstream_tiered_process_starts_total", _COUNTER, "", "Starts of the process for cold messages, since the start; many in a short time are ends before its time."),
    ("millstream_tiered_passed_over_total", _COUNTER, "", "Blocks and objects that stayed damaged or missing and that readers were led past; each is tried again after 10 minutes."),
    ("millstream_columns_files", _GAUGE, "", "Parquet files that copies of cold topics have."),
    ("millstream_columns_bytes", _GAUGE, "", "Their bytes."),
    ("millstream_columns_rows", _GAUGE, "", "Their rows: one for each message."),
    ("millstream_columns_malformed_rows", _GAUGE, "", "Of these, rows whose bodies do not fit the declared columns; they have the body as it is."),
    ("millstream_columns_lost_messages", _GAUGE, "", "Messages that are damaged, so that no row of these files has them."),
    ("millstream_columns_refused_total", _COUNTER, "", "Declarations of columns that were refused, since the start."),
    ("millstream_columns_errors_total", _COUNTER, "", "Copies and changes of tables that failed, to be tried again, since the start."),
    ("millstream_ingest_taken_total", _COUNTER, "input", "Events that an input of millstream ingest received."),
    ("millstream_ingest_taken_bytes_total", _COUNTER, "input", "Bytes of these events."),
    ("millstream_ingest_events_total", _COUNTER, "input outcome", "What became of events: stored, refused, cut, dead (letters), malformed, dropped, kernel_drops (datagrams), turned_away (posts), broken (off connections), unreadable (files)."),
    ("millstream_ingest_retries_total", _COUNTER, "input", "Batches of events that were sent again."),
    ("millstream_ingest_waiting_bytes", _GAUGE, "input", "Bytes of events that the broker has not acknowledged."),
    ("millstream_ingest_unread_bytes", _GAUGE, "input", "Bytes of followed files that are not acknowledged, as of the last pause."),
    ("millstream_ingest_peers", _GAUGE, "input", "Open connections of senders."),
    ("millstream_job_state", _GAUGE, "job state", "1 for the state that the job is in: queued, starting, running, paused, failed, ended, cancelled; at the job server that leads."),
    ("millstream_job_restarts_total", _COUNTER, "job", "Times that the job was started again after its driver or it had failed."),
    ("millstream_job_rows_in_total", _COUNTER, "job", "Rows that it has read since it was last started; jobs that share a query read them together."),
    ("millstream_job_rows_out_total", _COUNTER, "job sink", "Rows that it has written since it was last started."),
    ("millstream_job_batches_total", _COUNTER, "job", "Micro-batches since it was last started."),
    ("millstream_job_late_rows_total", _COUNTER, "job", "Rows behind the watermark since it was last started."),
    ("millstream_job_malformed_rows_total", _COUNTER, "job", "Messages that were no rows of their table since it was last started."),
    ("millstream_job_lag_messages", _GAUGE, "job", "Messages that are stored and that it has not read."),
    ("millstream_job_lag_seconds", _GAUGE, "job", "Seconds from the store time up to which it has read everything to now; 0 where no message waits, absent where that time is not known."),
    ("millstream_job_watermark_seconds", _GAUGE, "job", "Its watermark, in seconds since 1970; absent before the first event time."),
    ("millstream_job_watermark_lag_seconds", _GAUGE, "job", "Seconds from its watermark to now."),
    ("millstream_job_batch_seconds", _GAUGE, "job", "Seconds that its last micro-batch with rows took."),
    ("millstream_job_checkpoint_timestamp_seconds", _GAUGE, "job", "When its last micro-batch was over and its checkpoint complete, in seconds since 1970; absent before the first one."),
    ("millstream_job_state_bytes", _GAUGE, "job", "Bytes that its operators keep on the disk, at most 15 s old; absent for state in other places, and for jobs that share a query, which keep none."),
    ("millstream_job_query_restarts_total", _COUNTER, "job", "Times that its queries started again by themselves since it was last started, as after a broker was away."),
    ("millstream_process_memory_bytes", _GAUGE, "kind", "Memory of the server and all processes that it started (proportional set size)."),
    ("millstream_process_cpu_seconds", _GAUGE, "kind", "Processor time of the server and of the processes below it that live."),
    ("millstream_build_info", _GAUGE, "version", "1; the version stands in the label."),
)  # fmt: skip


CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


class MetricsPage:
    """One page, filled and then read by `text`. Only metrics of the table can be added, with exactly their labels."""

    def __init__(self, *, cluster: str, node_id: str) -> None:
        self._node = (cluster, node_id)
        self._lines: dict[str, list[str]] = {}
        self._prefixes: dict[str, str] = {}

    def add(self, name: str, number: float, *labels: str, node_type: str = "broker") -> None:
        """A value of a counter or gauge; the labels in the order of the table."""
        written = self._labels(METRICS[name], labels, node_type)
        self._lines.setdefault(name, []).append(f"{name}{{{written}}} {number}")

    def add_histogram(self, name: str, histogram: Histogram, *labels: str, node_type: str = "broker") -> None:
        """A distribution."""
        metric = METRICS[name]
        if metric.kind is not MetricKind.HISTOGRAM:
            raise ValueError(f"{name} is no histogram")
        written = self._labels(metric, labels, node_type)
        lines = self._lines.setdefault(name, [])
        count = 0
        for bound, found in zip((*histogram.bounds, "+Inf"), histogram.counts, strict=True):
            count += found
            lines.append(f'{name}_bucket{{{written},le="{bound}"}} {count}')
        lines.append(f"{name}_sum{{{written}}} {histogram.total}")
        lines.append(f"{name}_count{{{written}}} {count}")

    def text(self) -> str:
        """The page; metrics without a value are not on it."""
        parts = []
        for name, lines in self._lines.items():
            metric = METRICS[name]
            parts.append(f"# HELP {name} {metric.meaning}\n# TYPE {name} {metric.kind.value}")
            parts += lines
        return "\n".join(parts) + "\n"

    def _labels(self, metric: Metric, labels: tuple[str, ...], node_type: str) -> str:
        prefix = self._prefixes.get(node_type)
        if prefix is None:
            cluster, node_id = self._node
            prefix = self._prefixes[node_type] = _pairs(NODE_LABELS, (cluster, node_type, node_id))
        return f"{prefix},{_pairs(metric.labels, labels)}" if metric.labels or labels else prefix


def _pairs(names: tuple[str, ...], values: tuple[str, ...]) -> str:
    return ",".join([f'{name}="{_escape(value)}"' for name, value in zip(names, values, strict=True)])


def _escape(value: str) -> str:
    if value.isidentifier():
        return value
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
