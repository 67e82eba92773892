"""What admin tools ask of a broker beside topics, groups and resets."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Final

from millstream.broker.broker import Broker
from millstream.broker.remoting.clients import ConsumerRegistry
from millstream.broker.remoting.inspection import InspectionHandlers
from millstream.broker.runtime import describe_runtime
from millstream.broker.settings import change_settings, settings_of
from millstream.broker.traffic import Flow
from millstream.broker.traffic_history import DAY_MS, HOUR_MS, MINUTE_MS, Growth
from millstream.model.errors import NameRefused
from millstream.protocol.remoting.administration.broker_requests import ReadAheadMode, StatisticQuery
from millstream.protocol.remoting.administration.replica_requests import ReplicationStatus
from millstream.protocol.remoting.administration.sums import GrowthSum, GrowthSums
from millstream.protocol.remoting.bodies import CamelBody, KeyValueTable, encode_body
from millstream.protocol.remoting.codes import RequestCode
from millstream.protocol.remoting.command import RemotingCommand
from millstream.protocol.remoting.java_properties import decode_java_properties, encode_java_properties
from millstream.security.policy import Action, RequiredAccess
from millstream.security.resource import Resource, ResourceKind
from millstream.transport.gate import Needs, everything
from millstream.transport.remoting_connection import Connection, Handler

__all__ = ["TOOL_NEEDS", "RuntimeHandlers", "SettingHandlers", "StorageToolHandlers", "tool_handlers"]

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
