"""The requests that a replica's port answers: reads of confirmed messages, and nothing that changes state."""

from __future__ import annotations

import asyncio

from millstream.broker.broker import Broker
from millstream.broker.remoting.bulk import BulkFetches
from millstream.broker.remoting.clients import ConsumerRegistry
from millstream.broker.remoting.heartbeats import ClientLiveness
from millstream.broker.remoting.offsets import RangeHandlers
from millstream.broker.remoting.producers import ProducerRegistry
from millstream.broker.remoting.reading import PullHandler, SearchHandlers
from millstream.broker.runtime_report import describe_replica
from millstream.model.errors import NameRefused
from millstream.model.group import GroupConfig, check_group, is_tool_group
from millstream.protocol.remoting.bodies import KeyValueTable, encode_body
from millstream.protocol.remoting.codes import RequestCode
from millstream.protocol.remoting.command import RemotingCommand
from millstream.transport.remoting_connection import Connection, Handler

__all__ = ["replica_client_handlers", "replica_read_handlers", "replica_tool_handlers"]


def replica_read_handlers(broker: Broker, consumers: ConsumerRegistry) -> dict[int, Handler]:
    """The handlers of reading requests, for one attached broker; `consumers` are those who sent heartbeats here."""
    queues = broker.replica_queues
    pull = PullHandler(queues, consumers, broker.suggest_reader)
    search = SearchHandlers(queues, broker.clock)
    ranges = RangeHandlers(queues, broker.name, lambda _: 0.0)
    return {
        RequestCode.PULL_MESSAGE: pull,
        RequestCode.LITE_PULL_MESSAGE: pull,
        RequestCode.BULK_FETCH: BulkFetches(queues).fetch,
        RequestCode.QUERY_MESSAGE: search.by_key,
        RequestCode.VIEW_MESSAGE_BY_ID: search.by_offset,
        RequestCode.GET_MAX_OFFSET: ranges.max_offset,
        RequestCode.GET_MIN_OFFSET: ranges.min_offset,
        RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: ranges.offset_by_time,
        RequestCode.GET_EARLIEST_MSG_STORE_TIME: ranges.earliest_stored,
        RequestCode.GET_TOPIC_STATS_INFO: ranges.topic_statistics,
    }


def replica_tool_handlers(broker: Broker) -> dict[int, Handler]:
    """The handlers of requests that RocketMQ's tools send to each broker of a route."""
    store, clock = broker.replica_queues.queues.store, broker.clock
    began_s = clock.monotonic_s()

    async def runtime(command: RemotingCommand, _connection: Connection) -> RemotingCommand:
        # The disk may let a question wait.
        disk = await asyncio.to_thread(lambda: store.disk)
        elapsed_ms = round((clock.monotonic_s() - began_s) * 1000)
        told = describe_replica(store, clock.now_ms(), elapsed_ms, disk)
        return command.response(body=encode_body(KeyValueTable(told)))

    return {RequestCode.GET_BROKER_RUNTIME_INFO: runtime}


def replica_client_handlers(broker: Broker, consumers: ConsumerRegistry) -> dict[int, Handler]:
    """The handlers by which RocketMQ's consumers say who they are and what they subscribe to, before they pull."""
    clients = _Clients(broker, ClientLiveness(broker.clock, consumers, ProducerRegistry()))
    return {
        RequestCode.HEART_BEAT: clients.heartbeat,
        RequestCode.UNREGISTER_CLIENT: clients.liveness.unregister,
        RequestCode.CHECK_CLIENT_CONFIG: clients.liveness.check,
    }


class _Clients:
    def __init__(self, broker: Broker, liveness: ClientLiveness) -> None:
        self._groups = broker.groups
        self.liveness = liveness

    def heartbeat(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        """Keep what the client says. Groups that are missing the master makes, a moment later maybe."""
        data, groups = self.liveness.read(command)
        return self.liveness.hear(command, data, connection, {group for group in groups if self._may_be(group)})

    def _may_be(self, group: str) -> bool:
        if self._groups.find(group) is not None or is_tool_group(group):
            return True
        try:
            check_group(GroupConfig(group))
        except NameRefused:
            return False
        return True
