"""Requests of admin tools other than those about topics, groups and resets."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Final

from millstream.broker.broker import Broker
from millstream.broker.remoting.clients import ConsumerRegistry
from millstream.broker.runtime_report import describe_runtime
from millstream.broker.settings import change_settings, settings_of
from millstream.broker.traffic import DAY_MS, HOUR_MS, MINUTE_MS, Flow, Growth
from millstream.model.errors import ConsumeRefused, NameRefused
from millstream.model.operations import QueueProgress
from millstream.protocol.remoting.administration.broker_requests import ReadAheadMode, StatisticQuery
from millstream.protocol.remoting.administration.consumption import encode_consume_statistics
from millstream.protocol.remoting.administration.inspection import (
    CorrectionOffsets,
    GrowthSum,
    GrowthSums,
    IndexEntryData,
    IndexEntryList,
    SubscriptionAnswer,
    TimeSpan,
    TimeSpans,
    encode_all_consume_statistics,
)
from millstream.protocol.remoting.administration.replica_requests import ReplicationStatus
from millstream.protocol.remoting.administration.topic_requests import (
    CorrectionQuery,
    GroupTopic,
    IndexQuery,
    ProgressOfAll,
)
from millstream.protocol.remoting.bodies import CamelBody, KeyValueTable, encode_body
from millstream.protocol.remoting.codes import RequestCode
from millstream.protocol.remoting.command import RemotingCommand
from millstream.protocol.remoting.java_formats import decode_java_properties, encode_java_properties
from millstream.protocol.remoting.messages.offsets import QueueName, decode_clone
from millstream.security.policy import Action, RequiredAccess
from millstream.security.resource import Resource, ResourceKind
from millstream.transport.gate import Needs, everything
from millstream.transport.remoting_connection import Connection, Handler

__all__ = [
    "MAX_INDEX_ENTRIES",
    "MAX_TOLD_BYTES",
    "TOOL_NEEDS",
    "InspectionHandlers",
    "RuntimeHandlers",
    "SettingHandlers",
    "StorageToolHandlers",
    "tool_handlers",
]


MAX_INDEX_ENTRIES: Final = 1000
"""Entries of a queue that one request is told at most."""

MAX_TOLD_BYTES: Final = 15 * 1024 * 1024
"""Bytes of the positions of all groups that one request is told at most: a frame holds 16 MiB."""

_NO_BOUND: Final = 0x7FFF_FFFF_FFFF_FFFF
"""What RocketMQ says of a queue whose group has come farther than the one that it is compared with."""


class InspectionHandlers:
    """Codes 303, 308, 314, 317, 321 and 345."""

    def __init__(self, broker: Broker, consumers: ConsumerRegistry) -> None:
        self._broker = broker
        self._consumers = consumers

    def time_spans(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        """When each queue's first, last and last consumed message were stored, and for how long the next one waits."""
        call = GroupTopic.decode(command.ext)
        found = self._broker.queues.own_progress(call.group, call.topic)
        return command.response(body=encode_body(TimeSpans([self._time_span(item) for item in found])))

    def _time_span(self, item: QueueProgress) -> TimeSpan:
        store = self._broker.maintenance.store
        has_some = item.min_offset < item.max_offset
        first_ms = store.stored_ms_at(item.topic, item.queue_id, item.min_offset) if has_some else -1
        return TimeSpan(
            QueueName(item.topic, self._broker.name, item.queue_id),
            min_time_stamp=first_ms,
            max_time_stamp=store.last_store_timestamp_ms(item.topic, item.queue_id) or -1,
            consume_time_stamp=item.consumed_ms or first_ms,
            delay_time=max(self._broker.clock.now_ms() - item.oldest_ms, 0) if item.oldest_ms else 0,
        )

    def correction_offsets(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        """The smallest offset that any group has in each queue, or no bound where the compared group is behind it."""
        call = CorrectionQuery.decode(command.ext)
        topic = call.topic
        queues = self._broker.queues
        smallest: dict[int, int] = {}
        for group in queues.readers(topic):
            if group not in call.left_out:
                for queue_id, offset in queues.own_offsets(group, topic).items():
                    smallest[queue_id] = min(offset, smallest.get(queue_id, offset))
        for queue_id, offset in queues.own_offsets(call.compared, topic).items():
            if smallest.get(queue_id, offset) > offset:
                smallest[queue_id] = _NO_BOUND
        return command.response(body=encode_body(CorrectionOffsets(smallest)))

    def clone_offsets(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        call = decode_clone(command.ext)
        self._broker.queues.clone_offsets(call.source, call.target, call.topic)
        return command.response()

    async def all_progress(self, command: RemotingCommand, _connection: Connection) -> RemotingCommand:
        """How far all groups are in all topics; others get their turn after each group."""
        broker, only_ordered = self._broker, ProgressOfAll.decode(command.ext).only_ordered
        told: list[tuple[str, bytes]] = []
        behind = in_flight = size_bytes = 0
        for group in broker.groups.list_known():
            if not broker.groups.is_known(group.name):
                continue
            for topic in broker.queues.topics_of(group.name):
                if only_ordered and not broker.topics.get(topic).ordered:
                    continue
                found = broker.queues.own_progress(group.name, topic)
                behind += sum(item.max_offset - item.committed for item in found)
                in_flight += sum(item.next_offset - item.committed for item in found)
                rate = broker.maintenance.traffic.rate(Flow.GET, topic, group.name)
                told.append((group.name, encode_consume_statistics(broker.name, found, per_second=rate)))
                size_bytes += len(told[-1][1])
            if size_bytes > MAX_TOLD_BYTES:
                raise ConsumeRefused("TOO_MANY_REQUESTS", "There are too many positions.", remedy="Ask by group.")
            await asyncio.sleep(0)
        address = f"{broker.advertised.host}:{broker.advertised.port}"
        return command.response(body=encode_all_consume_statistics(told, address, behind, in_flight))

    def index_entries(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        """Entries of a queue as they stand in its index, from a queue offset on."""
        call = IndexQuery.decode(command.ext)
        topic, queue_id, count = call.topic, call.queue_id, call.count
        if not 1 <= count <= MAX_INDEX_ENTRIES:
            raise NameRefused("ILLEGAL_SETTING", f"The request asks for {count} entries; 1 to {MAX_INDEX_ENTRIES}.")
        held = self._broker.queues.own_range(topic, queue_id)
        entries = self._broker.queues.own_entries(topic, queue_id, max(call.first, 0), count)
        found = [IndexEntryData(entry.log_offset, entry.size_bytes, entry.tags_code) for entry in entries]
        subscription = self._consumers.subscription(call.group, topic)
        answer = IndexEntryList(found, held.max_offset, held.min_offset, subscription)
        return command.response(body=encode_body(answer))

    def subscription(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        """What the members of a group want of a topic; null where none is there. Raises GROUP_NOT_FOUND."""
        call = GroupTopic.decode(command.ext)
        group, topic = self._broker.groups.get(call.group).name, call.topic
        answer = SubscriptionAnswer(group, topic, self._consumers.subscription(group, topic))
        return command.response(body=encode_body(answer))


_READ: Final = (Action.SUB, Action.GET)


def _topic_and_group(field: str) -> Needs:
    """Reading the topic and, where that field names one, the group."""

    def needs(command: RemotingCommand) -> Iterable[RequiredAccess]:
        yield RequiredAccess(Resource.topic(command.ext.get("topic", "")), _READ)
        if command.ext.get(field):
            yield RequiredAccess(Resource.group(command.ext[field]), _READ)

    return needs


TOOL_NEEDS: Final[dict[int, Needs]] = {
    RequestCode.GET_BROKER_RUNTIME_INFO: everything(ResourceKind.CLUSTER, Action.GET),
    RequestCode.VIEW_BROKER_STATS_DATA: everything(ResourceKind.CLUSTER, Action.GET),
    RequestCode.GET_BROKER_CONSUME_STATS: everything(ResourceKind.GROUP, Action.LIST),
    RequestCode.QUERY_CONSUME_TIME_SPAN: _topic_and_group("group"),
    RequestCode.QUERY_CORRECTION_OFFSET: _topic_and_group("compareGroup"),
    RequestCode.QUERY_CONSUME_QUEUE: _topic_and_group("consumerGroup"),
    RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER: _topic_and_group("group"),
    RequestCode.CHECK_ROCKSDB_CQ_WRITE_PROGRESS: everything(ResourceKind.CLUSTER, Action.GET),
    RequestCode.GET_BROKER_HA_STATUS: everything(ResourceKind.CLUSTER, Action.GET),
    RequestCode.GET_COLD_DATA_FLOW_CTR_INFO: everything(ResourceKind.CLUSTER, Action.GET),
}
"""What some of them need. Those that show or change settings, remove messages or move offsets are for super users."""


def tool_handlers(broker: Broker, consumers: ConsumerRegistry) -> dict[int, Handler]:
    """The handlers by request code."""
    runtime = RuntimeHandlers(broker)
    settings = SettingHandlers(broker)
    inspection = InspectionHandlers(broker, consumers)
    storage = StorageToolHandlers(broker)
    return {
        RequestCode.GET_BROKER_RUNTIME_INFO: runtime.runtime,
        RequestCode.VIEW_BROKER_STATS_DATA: runtime.sums,
        RequestCode.UPDATE_BROKER_CONFIG: settings.change,
        RequestCode.GET_BROKER_CONFIG: settings.settings,
        RequestCode.CLEAN_EXPIRED_CONSUME_QUEUE: settings.retain,
        RequestCode.DELETE_EXPIRED_COMMIT_LOG: settings.retain,
        RequestCode.CLEAN_UNUSED_TOPIC: settings.clean_unused,
        RequestCode.QUERY_CONSUME_TIME_SPAN: inspection.time_spans,
        RequestCode.QUERY_CORRECTION_OFFSET: inspection.correction_offsets,
        RequestCode.CLONE_GROUP_OFFSET: inspection.clone_offsets,
        RequestCode.GET_BROKER_CONSUME_STATS: inspection.all_progress,
        RequestCode.QUERY_CONSUME_QUEUE: inspection.index_entries,
        RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER: inspection.subscription,
        RequestCode.CHECK_ROCKSDB_CQ_WRITE_PROGRESS: storage.check_index,
        RequestCode.GET_BROKER_HA_STATUS: storage.replicas,
        RequestCode.RESET_MASTER_FLUSH_OFFSET: storage.do_nothing,
        RequestCode.UPDATE_COLD_DATA_FLOW_CTR_CONFIG: storage.limit_cold_reads,
        RequestCode.REMOVE_COLD_DATA_FLOW_CTR_CONFIG: storage.do_nothing,
        RequestCode.GET_COLD_DATA_FLOW_CTR_INFO: storage.cold_reads,
        RequestCode.SET_COMMITLOG_READ_MODE: storage.set_read_ahead,
        RequestCode.POP_ROLLBACK: storage.do_nothing,
    }


_NUMBERS, _SIZE = "_NUMS", "_SIZE"
_FLOWS: Final = {
    "TOPIC_PUT": Flow.PUT,
    "GROUP_GET": Flow.GET,
    "DLQ_PUT": Flow.DEAD,
    "BROKER_PUT": Flow.ALL_PUT,
    "BROKER_GET": Flow.ALL_GET,
}
"""The first part of a statistic's name. Of the whole broker are the last two, whatever the key says."""


class RuntimeHandlers:
    """Codes 28 and 315."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    async def runtime(self, command: RemotingCommand, _connection: Connection) -> RemotingCommand:
        # The disk may let a question wait.
        disk = await asyncio.to_thread(lambda: self._broker.maintenance.store.disk)
        return command.response(body=encode_body(KeyValueTable(describe_runtime(self._broker, disk))))

    def sums(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        """Zeros where nothing was counted; refused where there is no such statistic, or it is not counted alone."""
        call = StatisticQuery.decode(command.ext)
        name, key = call.name, call.key
        flow = _FLOWS.get(name.removesuffix(_NUMBERS).removesuffix(_SIZE))
        if flow is None or not name.endswith((_NUMBERS, _SIZE)):
            raise NameRefused("STATISTIC_UNKNOWN", f"There is no statistic {name[:80]!r}.")
        topic, _, group = key.partition("@")
        if flow is Flow.ALL_PUT or flow is Flow.ALL_GET:
            topic = group = ""
        if not self._broker.maintenance.traffic.is_apart(flow, topic, group):
            raise NameRefused("STATISTIC_UNKNOWN", f"{key[:200]!r} is counted together with others.", remedy="")
        spans = (
            self._broker.maintenance.traffic.growth(flow, topic, group, span_ms)
            for span_ms in (MINUTE_MS, HOUR_MS, DAY_MS)
        )
        return command.response(body=encode_body(GrowthSums(*(_sum(growth, name) for growth in spans))))


def _sum(growth: Growth, name: str) -> GrowthSum:
    if name.endswith(_NUMBERS):
        return GrowthSum(growth.messages, growth.messages_per_s, 1.0 if growth.messages else 0.0)
    average = growth.size_bytes / growth.messages if growth.messages else 0.0
    return GrowthSum(growth.size_bytes, growth.bytes_per_s, average)


class SettingHandlers:
    """Codes 25, 26, 306, 316 and 329."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def settings(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        return command.response(body=encode_java_properties(settings_of(self._broker)))

    def change(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        """All or none of them; what is changed holds until the broker stops."""
        change_settings(self._broker, decode_java_properties(command.body))
        return command.response()

    async def retain(self, command: RemotingCommand, _connection: Connection) -> RemotingCommand:
        """Let old messages and their queues' entries go now, as the broker does by itself every 10 s."""
        await self._broker.maintenance.retain()
        return command.response()

    def clean_unused(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        """Nothing to do: a topic's queues are deleted with it."""
        return command.response()


_CHECK_ERROR: Final = 3
"""RocketMQ's status of a check that cannot be made."""


class _ColdReads(CamelBody):
    runtime_table: dict[str, str]
    config_table: dict[str, str]
    cg_cold_read_threshold: int
    global_cold_read_threshold: int
    global_acc: int


class _IndexCheck(CamelBody):
    check_result: str
    check_status: int


class StorageToolHandlers:
    """Codes 354, 907, 908, 2001 to 2004 and 200056."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def replicas(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        """A master without replicas, and where its log ends."""
        status = ReplicationStatus(True, self._broker.maintenance.store.written_log_offset)
        return command.response(body=encode_body(status))

    def do_nothing(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        """There is nothing to reset, export or remove."""
        return command.response()

    def cold_reads(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        return command.response(body=encode_body(_ColdReads({}, {}, 0, 0, 0)))

    def limit_cold_reads(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        reason = "Cold reads of a group have no threshold: this broker does not count them."
        raise NameRefused("UNSUPPORTED_FEATURE", reason, remedy="")

    def set_read_ahead(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        mode = ReadAheadMode.decode(command.ext).mode
        if mode != "0":
            reason = f"The read-ahead mode cannot be {mode[:80]!r}: the log is always read in mode 0."
            raise NameRefused("SETTING_FIXED", reason, remedy="")
        # The tool prints the remark of a success.
        return command.response(remark="The log is read in mode 0.")

    def check_index(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        check = _IndexCheck("This broker keeps no consume queues in RocksDB.", _CHECK_ERROR)
        return command.response(body=encode_body(check))
