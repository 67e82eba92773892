"""Copies topics and groups from the other brokers of a cluster to a new broker."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from millstream.client.cluster_operations import ClusterOperations, RegisteredBroker
from millstream.client.operations import ClientOperation, ClientOperations
from millstream.model.errors import NameRefused
from millstream.model.group import GroupConfig, is_tool_group
from millstream.model.topic import TopicConfig, is_system_topic
from millstream.protocol.remoting.administration.settings import (
    decode_group_table,
    decode_topic_table,
    encode_group,
    topic_fields,
)
from millstream.protocol.remoting.codes import RequestCode
from millstream.protocol.remoting.command import RemotingCommand

__all__ = ["BrokerMetadataCopier", "CopiedMetadata"]

_MASTER_ID: Final = 0
_OWN_PREFIX: Final = "%"
"""Before the names of topics that brokers make for groups, each when it needs them."""
_REPLY_SUFFIX: Final = "_REPLY_TOPIC"


@dataclass(frozen=True, slots=True)
class CopiedMetadata:
    """What a broker was given, by name, and which topics it has with other settings than another broker."""

    topics: tuple[str, ...]
    groups: tuple[str, ...]
    differing: tuple[str, ...]


class BrokerMetadataCopier:
    """Works over the servers that `conversations` finds."""

    def __init__(self, conversations: ClientOperations) -> None:
        self._conversations = conversations
        self._cluster = ClusterOperations(conversations)

    def equip(self, name: str) -> ClientOperation[CopiedMetadata]:
        """Give the broker what the others of its cluster have and it has not; BROKER_NOT_FOUND.

        Groups go first, so that no consumer finds a topic before its group is as it should be. Static topics stay
        where they are: their queues do not multiply.
        """
        place = yield from self._cluster.find_broker(name)
        others = [
            other
            for other in (yield from self._cluster.list_brokers())
            if other.cluster == place.cluster and other.broker_id == _MASTER_ID and other.name != name
        ]
        groups = yield from self._give_groups(place, others)
        topics, differing = yield from self._give_topics(place, others)
        return CopiedMetadata(tuple(topics), tuple(groups), tuple(differing))

    def _give_groups(self, place: RegisteredBroker, others: list[RegisteredBroker]) -> ClientOperation[list[str]]:
        present = {group.name for group in (yield from self._groups(place))}
        missing: dict[str, GroupConfig] = {}
        for other in others:
            for group in (yield from self._groups(other)):
                if group.name not in present and not is_tool_group(group.name):
                    missing.setdefault(group.name, group)
        for group in missing.values():
            code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTION_GROUP
            yield from self._conversations.ask(place.address, RemotingCommand(code, {}, encode_group(group)))
        return sorted(missing)

    def _give_topics(
        self, place: RegisteredBroker, others: list[RegisteredBroker]
    ) -> ClientOperation[tuple[list[str], list[str]]]:
        present = {topic.name: topic for topic in (yield from self._topics(place))}
        own = {place.cluster, place.name, *(other.name for other in others)}
        missing: dict[str, TopicConfig] = {}
        differing = set()
        for other in others:
            for topic in (yield from self._topics(other)):
                name = topic.name
                if name in own or is_system_topic(name) or name.startswith(_OWN_PREFIX) or name.endswith(_REPLY_SUFFIX):
                    continue
                if name not in present:
                    missing.setdefault(name, topic)
                elif present[name] != topic:
                    differing.add(name)
        given = []
        for topic in missing.values():
            if not (yield from self._is_static(topic.name)):
                command = RemotingCommand(RequestCode.UPDATE_AND_CREATE_TOPIC, topic_fields(topic))
                yield from self._conversations.ask(place.address, command)
                given.append(topic.name)
                self._conversations.forget_route(topic.name)
        return sorted(given), sorted(differing)

    def _groups(self, place: RegisteredBroker) -> ClientOperation[list[GroupConfig]]:
        command = RemotingCommand(RequestCode.GET_ALL_SUBSCRIPTION_GROUP_CONFIG)
        return decode_group_table((yield from self._conversations.ask(place.address, command)).body)

    def _topics(self, place: RegisteredBroker) -> ClientOperation[list[TopicConfig]]:
        command = RemotingCommand(RequestCode.GET_ALL_TOPIC_CONFIG)
        return decode_topic_table((yield from self._conversations.ask(place.address, command)).body)

    def _is_static(self, topic: str) -> ClientOperation[bool]:
        try:
            route = yield from self._conversations.route(topic)
        except NameRefused:
            return False
        return bool(isinstance(route.topic_queue_mapping_by_broker, dict) and route.topic_queue_mapping_by_broker)
