"""Creating, listing and deleting topics and groups."""

from __future__ import annotations

from millstream.broker.broker import Broker
from millstream.model.errors import NameRefused
from millstream.model.topic import is_system_topic
from millstream.protocol.remoting.administration.group_requests import GroupCreation, GroupDeletion
from millstream.protocol.remoting.administration.settings import (
    changed_topic,
    decode_group,
    decode_groups,
    encode_group_table,
    encode_topic_table,
    parse_topic_fields,
)
from millstream.protocol.remoting.administration.topic_requests import TopicCreation, TopicQuery
from millstream.protocol.remoting.bodies import TopicConfigList, TopicList, decode_body, encode_body
from millstream.protocol.remoting.command import RemotingCommand
from millstream.transport.remoting_connection import Connection

__all__ = ["AdministrationHandlers"]


class AdministrationHandlers:
    """Codes 17, 18, 21, 200, 201, 207, 215, 225 and 305."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def create_topic(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        """Creates or changes, as RocketMQ's; with the field `createOnly` other settings are refused."""
        topics, call = self._broker.topics, TopicCreation.decode(command.ext)
        name = call.topic
        if topics.mapping(name) is not None and not call.is_physical:
            raise NameRefused(
                "ILLEGAL_STATIC_TOPIC",
                f"The topic {name!r} is static; its queues are not counted by broker.",
                remedy="Delete it first, or move its queues: millstream topic remap NAME --brokers A,B.",
            )
        if call.create_only:
            topics.create(parse_topic_fields(command.ext))
        else:
            topics.update(parse_topic_fields(command.ext, topics.find(name)))
        return command.response()

    def create_topics(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        """Nothing is changed where one of them cannot be read; what the registry refuses ends the list there."""
        topics = self._broker.topics
        asked = decode_body(TopicConfigList, command.body).topic_config_list
        for topic in [changed_topic(data, topics.find(data.topic_name)) for data in asked]:
            topics.update(topic)
        return command.response()

    def delete_topic(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        """As with RocketMQ's, it is no error where there is none: tools ask every broker."""
        name, topics = TopicQuery.decode(command.ext).topic, self._broker.topics
        if topics.find(name) is not None or is_system_topic(name):
            topics.delete(name)
        return command.response()

    def own_topics(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        return command.response(body=encode_body(TopicList(self._broker.topics.own())))

    def topics(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        return command.response(body=encode_topic_table(self._broker.topics.all()))

    def create_group(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        """Creates or changes, as RocketMQ's; with the field `createOnly` other settings are refused."""
        groups = self._broker.groups
        group = decode_group(command.body)
        if GroupCreation.decode(command.ext).create_only:
            groups.create(group)
        else:
            groups.update(decode_group(command.body, groups.find(group.name)))
        return command.response()

    def create_groups(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        """Nothing is changed where one of them cannot be read; what the registry refuses ends the list there."""
        groups = self._broker.groups
        for group in decode_groups(command.body, groups.find):
            groups.update(group)
        return command.response()

    def delete_group(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        """With the field `cleanOffset` false, as tools send it, a group of that name goes on where this one is.

        As with RocketMQ's, it is no error where there is none; with the field `mustExist` it is GROUP_NOT_FOUND.
        """
        call = GroupDeletion.decode(command.ext)
        name = call.group
        if not call.must_exist and self._broker.groups.find(name) is None:
            return command.response()
        queues = self._broker.queues
        kept = queues.offsets_by_topic(name) if call.keeps_offsets else {}
        self._broker.groups.delete(name)
        queues.restore_offsets(name, kept)
        return command.response()

    def groups(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        return command.response(body=encode_group_table(self._broker.groups.all()))
