"""The nameserver's answers over remoting: routes, topics, the cluster, and brokers' registrations."""

from __future__ import annotations

import logging
import zlib
from collections.abc import Awaitable
from functools import partial
from typing import Final

from millstream.cluster.key_values import ORDER_NAMESPACE, KeyValues
from millstream.cluster.nameserver import BrokerRegistration, RouteRegistry
from millstream.cluster.tools import data_version_of, tool_handlers
from millstream.model.clock import Clock, SystemClock
from millstream.model.errors import ConsumeRefused, MessageRefused, NameRefused
from millstream.model.topic import RETRY_PREFIX
from millstream.protocol.remoting.bodies import (
    ClusterInfo,
    KeyValueTable,
    RegisterBrokerBody,
    TopicList,
    encode_body,
)
from millstream.protocol.remoting.codes import RequestCode
from millstream.protocol.remoting.command import RemotingCommand
from millstream.protocol.remoting.fields import integer, optional_integer, text
from millstream.protocol.remoting.registration import MAX_REGISTRATION_BYTES, WHOLE_FIELD, decode_registration
from millstream.protocol.remoting.settings import topics_of
from millstream.transport.heavy_work import HEAVY_BYTES, HEAVY_WORK
from millstream.transport.remoting_connection import Connection, Handler

__all__ = ["nameserver_handlers"]

_log = logging.getLogger(__name__)

_CRC_MASK: Final = 0x7FFF_FFFF


def nameserver_handlers(
    registry: RouteRegistry, *, clock: Clock | None = None, key_values: KeyValues | None = None
) -> dict[int, Handler]:
    """The handlers of a nameserver's port, by request code. `key_values` are what tools keep in it."""
    clock, key_values = clock or SystemClock(), key_values or KeyValues()
    handlers = _Handlers(registry, clock, key_values)
    return {
        **tool_handlers(registry, key_values, clock),
        RequestCode.GET_ROUTE_BY_TOPIC: handlers.route,
        RequestCode.GET_BROKER_CLUSTER_INFO: handlers.cluster_info,
        RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: handlers.topics,
        RequestCode.DELETE_TOPIC_IN_NAMESERVER: handlers.delete_topic,
        RequestCode.REGISTER_BROKER: handlers.register_broker,
        RequestCode.UNREGISTER_BROKER: handlers.unregister_broker,
    }


class _Handlers:
    def __init__(self, registry: RouteRegistry, clock: Clock, key_values: KeyValues) -> None:
        self._registry = registry
        self._key_values = key_values
        self._clock = clock
        self._registered_by: dict[tuple[str, int], Connection] = {}

    def _current(self) -> RouteRegistry:
        self._registry.expire(self._clock.monotonic_s())
        return self._registry

    def route(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        topic = command.ext.get("topic", "")
        registry = self._current()
        route = registry.route(topic)
        if route is None and topic.startswith(RETRY_PREFIX):
            route = registry.retry_route(topic)
        if route is None:
            raise NameRefused("TOPIC_NOT_FOUND", f"The topic {topic[:200]!r} does not exist.")
        route.order_topic_conf = self._key_values.get(ORDER_NAMESPACE, topic)
        return command.response(body=encode_body(route))

    def cluster_info(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        info: ClusterInfo = self._current().cluster_info()
        return command.response(body=encode_body(info))

    def topics(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        return command.response(body=encode_body(TopicList(self._current().topics())))

    def delete_topic(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        self._registry.delete_topic(command.ext.get("topic", ""))
        return command.response()

    def register_broker(
        self, command: RemotingCommand, connection: Connection
    ) -> RemotingCommand | Awaitable[RemotingCommand]:
        is_compressed = command.ext.get("compressed") == "true"
        if is_compressed or len(command.body) > HEAVY_BYTES:
            return self._register_heavy(command, connection, is_compressed)
        return self._register(command, connection, _registration(command, is_compressed))

    async def _register_heavy(
        self, command: RemotingCommand, connection: Connection, is_compressed: bool
    ) -> RemotingCommand:
        size_bytes = MAX_REGISTRATION_BYTES if is_compressed else len(command.body)
        body = await HEAVY_WORK.run(size_bytes, partial(_registration, command, is_compressed))
        return self._register(command, connection, body)

    def _register(self, command: RemotingCommand, connection: Connection, body: RegisterBrokerBody) -> RemotingCommand:
        ext = command.ext
        registration = BrokerRegistration(
            cluster=text(ext, "clusterName"),
            broker_name=text(ext, "brokerName"),
            address=text(ext, "brokerAddr"),
            topics=tuple(topics_of(body.topic_config_serialize_wrapper)),
            broker_id=integer(ext, "brokerId"),
            data_version=data_version_of(body.topic_config_serialize_wrapper.data_version),
            mappings=body.topic_config_serialize_wrapper.topic_queue_mapping_info_map,
        )
        whole = ext.get(WHOLE_FIELD) == "true"
        self._warn_of_another(registration, connection)
        if not self._current().register(registration, self._clock.monotonic_s(), whole=whole):
            raise ConsumeRefused("TOO_MANY_REQUESTS", "The nameserver knows as many brokers as it can.")
        self._own(registration, connection)
        master = self._registry.master_address(registration.broker_name)
        answer = {} if master is None or registration.broker_id == 0 else {"masterAddr": master, "haServerAddr": ""}
        orders = KeyValueTable(self._key_values.table(ORDER_NAMESPACE))
        return command.response(ext=answer, body=encode_body(orders))

    def unregister_broker(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        name, broker_id = text(command.ext, "brokerName"), integer(command.ext, "brokerId")
        self._registered_by.pop((name, broker_id), None)
        self._registry.unregister(name, broker_id)
        return command.response()

    def _own(self, registration: BrokerRegistration, connection: Connection) -> None:
        """A broker is there as long as the connection by which it registered last."""
        key = registration.broker_name, registration.broker_id
        if self._registered_by.get(key) is not connection:
            self._registered_by[key] = connection
            connection.on_close.append(partial(self._closed, key))

    def _closed(self, key: tuple[str, int], connection: Connection) -> None:
        if self._registered_by.get(key) is connection:
            del self._registered_by[key]
            self._registry.unregister(*key)

    def _warn_of_another(self, registration: BrokerRegistration, connection: Connection) -> None:
        known = self._registry.address(registration.broker_name, registration.broker_id)
        key = registration.broker_name, registration.broker_id
        before = self._registered_by.get(key)
        if known not in (None, registration.address) and before is not connection and before is not None:
            _log.warning(
                "Two brokers call themselves %s: %s was at %s, now one registers from %s. Give each its own name.",
                registration.broker_name, registration.broker_name, known, registration.address,
            )  # fmt: skip


def _registration(command: RemotingCommand, is_compressed: bool) -> RegisterBrokerBody:
    expected = optional_integer(command.ext, "bodyCrc32", 0)
    if expected and zlib.crc32(command.body) & _CRC_MASK != expected & _CRC_MASK:
        raise MessageRefused("MESSAGE_MALFORMED", "The registration's body fails its checksum.")
    return decode_registration(command.body, is_compressed=is_compressed)
