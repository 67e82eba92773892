"""The nameserver's requests for tools: key-values, broker permissions, topic lists, and settings."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from millstream.cluster.key_values import KeyValues
from millstream.cluster.nameserver import LEASE_S, RouteRegistry
from millstream.model.clock import Clock
from millstream.model.errors import NameRefused
from millstream.model.topic import Permission, TopicConfig
from millstream.protocol.remoting.administration.controller_requests import BrokerHeartbeat, MemberGroupQuery
from millstream.protocol.remoting.bodies import (
    BrokerMemberGroup,
    BrokerMemberGroupBody,
    DataVersion,
    KeyValueTable,
    TopicList,
    TopicRouteData,
    decode_body,
    encode_body,
)
from millstream.protocol.remoting.codes import RequestCode, ResponseCode
from millstream.protocol.remoting.command import RemotingCommand
from millstream.protocol.remoting.fields import integer, text
from millstream.protocol.remoting.java_formats import decode_java_properties, encode_java_properties
from millstream.transport.remoting_connection import Connection, Handler

__all__ = ["data_version_of", "tool_handlers"]

_SETTINGS: Final = {
    "orderMessageEnable": "true",
    "returnOrderTopicConfigToBroker": "true",
    "brokerLeaseSeconds": f"{LEASE_S:g}",
}
"""What a nameserver does and does not let anybody change; the first two by RocketMQ's names."""


def data_version_of(told: Any) -> DataVersion | None:
    """The version of a broker's topics; None where what it told is none."""
    try:
        return None if told is None else msgspec.convert(told, DataVersion, strict=False)
    except msgspec.ValidationError:
        return None


def tool_handlers(registry: RouteRegistry, key_values: KeyValues, clock: Clock) -> dict[int, Handler]:
    """The handlers of these requests, by request code."""
    handlers = _Handlers(registry, key_values, clock)
    return {
        RequestCode.PUT_KV_CONFIG: handlers.put_value,
        RequestCode.GET_KV_CONFIG: handlers.value,
        RequestCode.DELETE_KV_CONFIG: handlers.delete_value,
        RequestCode.GET_KV_LIST_BY_NAMESPACE: handlers.values,
        RequestCode.WIPE_WRITE_PERM_OF_BROKER: handlers.wipe_writes,
        RequestCode.ADD_WRITE_PERM_OF_BROKER: handlers.add_writes,
        RequestCode.REGISTER_TOPIC_IN_NAMESERVER: handlers.register_topic,
        RequestCode.GET_TOPICS_BY_CLUSTER: handlers.topics_of_cluster,
        RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NAMESERVER: handlers.system_topics,
        RequestCode.UPDATE_NAMESERVER_CONFIG: handlers.change_settings,
        RequestCode.GET_NAMESERVER_CONFIG: handlers.settings,
        RequestCode.QUERY_DATA_VERSION: handlers.data_version,
        RequestCode.GET_BROKER_MEMBER_GROUP: handlers.members,
        RequestCode.BROKER_HEARTBEAT: handlers.beat,
    }


class _Handlers:
    """Codes 100 to 102, 205, 217, 219, 224, 304, 318, 319, 322, 327, 901 and 904."""

    def __init__(self, registry: RouteRegistry, key_values: KeyValues, clock: Clock) -> None:
        self._registry = registry
        self._key_values = key_values
        self._clock = clock

    def _current(self) -> RouteRegistry:
        self._registry.expire(self._clock.monotonic_s())
        return self._registry

    def put_value(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        ext = command.ext
        self._key_values.put(text(ext, "namespace"), text(ext, "key"), text(ext, "value"))
        return command.response()

    def value(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        namespace, key = text(command.ext, "namespace"), text(command.ext, "key")
        value = self._key_values.get(namespace, key)
        if value is None:
            raise NameRefused("KEY_VALUE_NOT_FOUND", f"Nothing is kept under {key[:80]!r} of {namespace[:80]!r}.")
        return command.response(ext={"value": value})

    def delete_value(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        self._key_values.delete(text(command.ext, "namespace"), text(command.ext, "key"))
        return command.response()

    def values(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        namespace = text(command.ext, "namespace")
        table = self._key_values.table(namespace)
        if not table:
            raise NameRefused("KEY_VALUE_NOT_FOUND", f"Nothing is kept in the namespace {namespace[:80]!r}.")
        return command.response(body=encode_body(KeyValueTable(table)))

    def wipe_writes(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        """Routes told from now on name none of the broker's queues as writable, until writes are allowed again."""
        return command.response(ext={"wipeTopicCount": str(self._set_writable(command, False))})

    def add_writes(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        return command.response(ext={"addTopicCount": str(self._set_writable(command, True))})

    def _set_writable(self, command: RemotingCommand, is_writable: bool) -> int:
        # RocketMQ's tools take 0 topics as the answer for a broker that is not there.
        return self._current().set_writable(text(command.ext, "brokerName"), is_writable) or 0

    def register_topic(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        """Routes name the topic at these brokers until they register again."""
        topic, registry = text(command.ext, "topic"), self._current()
        for queues in decode_body(TopicRouteData, command.body).queue_datas:
            permission = Permission(queues.perm & int(Permission.INHERIT | Permission.READ | Permission.WRITE))
            config = TopicConfig(
                topic,
                read_queues=queues.read_queue_nums,
                write_queues=queues.write_queue_nums,
                permission=permission,
            )
            registry.add_topic(queues.broker_name, config)
        return command.response()

    def topics_of_cluster(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        return command.response(body=encode_body(TopicList(self._current().topics(text(command.ext, "cluster")))))

    def system_topics(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        """The names of clusters and brokers, which are topics too, and a broker who knows the others."""
        info = self._current().cluster_info()
        names = {*info.cluster_addr_table, *info.broker_addr_table}
        addresses = [address for broker in info.broker_addr_table.values() for address in broker.broker_addrs.values()]
        return command.response(body=encode_body(TopicList(sorted(names), min(addresses, default=None))))

    def change_settings(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        """Nothing can be changed; says so of a setting that is there and of one that is not."""
        for name in decode_java_properties(command.body):
            if name not in _SETTINGS:
                raise NameRefused("SETTING_UNKNOWN", f"A nameserver has no setting {name[:80]!r}.")
            raise NameRefused("SETTING_FIXED", f"The setting {name!r} of a nameserver cannot be changed.", remedy="")
        return command.response()

    def settings(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        return command.response(body=encode_java_properties(_SETTINGS))

    def data_version(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        """Whether the broker has to tell its topics again; where it has not, its registration counts on."""
        name, broker_id = text(command.ext, "brokerName"), integer(command.ext, "brokerId")
        registry = self._current()
        known = registry.data_version(name, broker_id)
        is_changed = known is None or known != decode_body(DataVersion, command.body)
        if not is_changed:
            registry.renew(name, broker_id, self._clock.monotonic_s())
        body = b"" if known is None else encode_body(known)
        return command.response(ext={"changed": "true" if is_changed else "false"}, body=body)

    def members(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        query = MemberGroupQuery.decode(command.ext)
        group = BrokerMemberGroup(query.cluster, query.name, self._current().members(query.name))
        return command.response(ResponseCode.SUCCESS, body=encode_body(BrokerMemberGroupBody(group)))

    def beat(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        """A broker lives, so its registration counts on. Its id here is that of its role, so its address decides."""
        told, registry = BrokerHeartbeat.decode(command.ext), self._current()
        for number, address in registry.members(told.name).items():
            if address == told.address:
                registry.renew(told.name, number, self._clock.monotonic_s())
        return command.response()
