"""The permissions that each request code of a nameserver needs, as in RocketMQ's access control 2.0."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from millstream.protocol.remoting.codes import RequestCode
from millstream.protocol.remoting.command import RemotingCommand
from millstream.security.policy import Action, RequiredAccess
from millstream.security.resource import Resource, ResourceKind
from millstream.transport.gate import Needs, everything, topic_field

__all__ = ["NAMESERVER_NEEDS"]

_TEMPLATE_TOPIC: Final = "TBW102"
"""RocketMQ's name for what new topics are made after. Its producers ask for the route every 30 s, whatever they send
to; it tells no more than the brokers' addresses."""


def _route(command: RemotingCommand) -> Iterable[RequiredAccess]:
    topic = command.ext.get("topic", "")
    if topic != _TEMPLATE_TOPIC:
        yield RequiredAccess(Resource.topic(topic), (Action.PUB, Action.SUB, Action.GET))


NAMESERVER_NEEDS: Final[dict[int, Needs]] = {
    RequestCode.GET_ROUTE_BY_TOPIC: _route,
    RequestCode.GET_BROKER_CLUSTER_INFO: everything(ResourceKind.CLUSTER, Action.GET),
    RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: everything(ResourceKind.TOPIC, Action.LIST),
    RequestCode.DELETE_TOPIC_IN_NAMESERVER: topic_field("topic", Action.DELETE),
    RequestCode.REGISTER_BROKER: everything(ResourceKind.CLUSTER, Action.UPDATE),
    RequestCode.UNREGISTER_BROKER: everything(ResourceKind.CLUSTER, Action.UPDATE),
    RequestCode.BROKER_HEARTBEAT: everything(ResourceKind.CLUSTER, Action.UPDATE),
    RequestCode.QUERY_DATA_VERSION: everything(ResourceKind.CLUSTER, Action.UPDATE),
    RequestCode.GET_TOPICS_BY_CLUSTER: everything(ResourceKind.TOPIC, Action.LIST),
    RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NAMESERVER: everything(ResourceKind.TOPIC, Action.LIST),
    RequestCode.GET_BROKER_MEMBER_GROUP: everything(ResourceKind.CLUSTER, Action.GET),
    RequestCode.GET_KV_CONFIG: everything(ResourceKind.CLUSTER, Action.GET),
    RequestCode.GET_KV_LIST_BY_NAMESPACE: everything(ResourceKind.CLUSTER, Action.GET),
    RequestCode.REGISTER_TOPIC_IN_NAMESERVER: topic_field("topic", Action.CREATE),
}
"""Request code -> what it needs. Those that change keys, settings or brokers' permissions are for super users."""
