"""What admin tools ask of a broker beside topics, groups and resets."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from millstream.broker.broker import Broker
from millstream.broker.remoting.clients import ConsumerRegistry
from millstream.broker.remoting.inspection import InspectionHandlers
from millstream.broker.remoting.runtime import RuntimeHandlers
from millstream.broker.remoting.settings import SettingHandlers
from millstream.broker.remoting.storage_tools import StorageToolHandlers
from millstream.protocol.remoting.codes import RequestCode
from millstream.protocol.remoting.command import RemotingCommand
from millstream.security.policy import Action, Wish
from millstream.security.resource import Resource, ResourceKind
from millstream.transport.gate import Needs, everything
from millstream.transport.remoting_connection import Handler

__all__ = ["TOOL_NEEDS", "tool_handlers"]

_READ: Final = (Action.SUB, Action.GET)


def _topic_and_group(field: str) -> Needs:
    """Reading the topic and, where that field names one, the group."""

    def needs(command: RemotingCommand) -> Iterable[Wish]:
        yield Wish(Resource.topic(command.ext.get("topic", "")), _READ)
        if command.ext.get(field):
            yield Wish(Resource.group(command.ext[field]), _READ)

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
