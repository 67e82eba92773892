"""What admin tools ask of a broker beside topics, groups and resets."""

from __future__ import annotations

from typing import Final

from millstream.broker.broker import Broker
from millstream.broker.remoting.clients import ConsumerRegistry
from millstream.broker.remoting.inspection import InspectionHandlers
from millstream.broker.remoting.runtime import RuntimeHandlers
from millstream.broker.remoting.settings import SettingHandlers
from millstream.protocol.remoting.codes import RequestCode
from millstream.security.policy import Action
from millstream.security.resource import ResourceKind
from millstream.transport.gate import Needs, everything, topic_field
from millstream.transport.remoting_connection import Handler

__all__ = ["TOOL_NEEDS", "tool_handlers"]

_READ: Final = (Action.SUB, Action.GET)

TOOL_NEEDS: Final[dict[int, Needs]] = {
    RequestCode.GET_BROKER_RUNTIME_INFO: everything(ResourceKind.CLUSTER, Action.GET),
    RequestCode.VIEW_BROKER_STATS_DATA: everything(ResourceKind.CLUSTER, Action.GET),
    RequestCode.GET_BROKER_CONSUME_STATS: everything(ResourceKind.GROUP, Action.LIST),
    RequestCode.QUERY_CONSUME_TIME_SPAN: topic_field("topic", *_READ),
    RequestCode.QUERY_CORRECTION_OFFSET: topic_field("topic", *_READ),
    RequestCode.QUERY_CONSUME_QUEUE: topic_field("topic", *_READ),
    RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER: topic_field("topic", *_READ),
}
"""What some of them need. Those that show or change settings, remove messages or move offsets are for super users."""


def tool_handlers(broker: Broker, consumers: ConsumerRegistry) -> dict[int, Handler]:
    """The handlers by request code."""
    runtime = RuntimeHandlers(broker)
    settings = SettingHandlers(broker)
    inspection = InspectionHandlers(broker, consumers)
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
    }
