"""Administration of topics and groups: create, list, delete, settings, members and resets."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Final

from millstream.broker.broker import Broker
from millstream.broker.remoting.clients import ConsumerRegistry
from millstream.broker.traffic import Flow
from millstream.model.errors import NameRefused
from millstream.model.light_queue import is_light_queue
from millstream.model.operations import QueueProgress, ResetRequest
from millstream.model.topic import is_system_topic
from millstream.protocol.remoting.administration.consumption import (
    ConnectionData,
    GroupList,
    encode_consume_statistics,
    encode_reset_list,
    encode_reset_offsets,
)
from millstream.protocol.remoting.administration.settings import (
    changed_topic,
    decode_group,
    decode_groups,
    encode_group,
    encode_group_table,
    encode_topic_table,
    parse_topic_fields,
)
from millstream.protocol.remoting.administration.static_topics import (
    decode_mapping,
    encode_topic_state,
    parse_static_topic,
)
from millstream.protocol.remoting.administration.topic_requests import (
    GroupCreation,
    GroupDeletion,
    GroupMembersRequest,
    GroupQuery,
    StaticTopicChange,
    TopicCreation,
    TopicQuery,
)
from millstream.protocol.remoting.bodies import TopicConfigList, TopicList, decode_body, encode_body
from millstream.protocol.remoting.codes import RequestCode, ResponseCode
from millstream.protocol.remoting.command import FLAG_ONEWAY, RemotingCommand
from millstream.protocol.remoting.messages.offsets import decode_progress_query, decode_reset
from millstream.protocol.remoting.messages.popped import parse_pop, pop_answer
from millstream.transport.remoting_connection import Connection

__all__ = ["AdministrationHandlers", "GroupHandlers", "StaticTopicHandlers"]


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
        return command.response(body=encode_group_table(self._broker.groups.list_known()))


_LISTS: Final = "CPP"
"""The language of consumers that read a list of offsets."""


class GroupHandlers:
    """Codes 203, 208, 222, 300, 343 and 352."""

    def __init__(self, broker: Broker, consumers: ConsumerRegistry) -> None:
        self._broker = broker
        self._consumers = consumers

    def group(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        """With our own field `create` a group that is missing is made, where groups may be made on the fly."""
        call = GroupQuery.decode(command.ext)
        groups = self._broker.groups
        found = groups.ensure(call.group) if call.create else groups.look_up(call.group)
        return command.response(body=encode_group(found))

    async def progress(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        """Of one topic, of those of a list that are there, or of all topics in which the group has a position.

        Of a static topic it is told of the logic queues that this broker leads, unless its own ones are asked for.
        """
        broker, call = self._broker, decode_progress_query(command.ext)
        group = call.group
        topics = [name for name in call.topics if broker.topics.find(name) is not None]
        if call.topic is not None:
            topics = [call.topic]
        elif not call.topics:
            topics = broker.queues.topics_of(broker.groups.look_up(group).name)
        found: list[QueueProgress] = []
        for name in topics:
            if call.with_bytes and is_light_queue(name):
                found += await broker.queues.measure_progress(group, name)
                continue
            progress = broker.queues.progress(group, name, physical=call.is_physical)
            found += await progress if isinstance(progress, Awaitable) else progress
        rates = (broker.maintenance.traffic.rate(Flow.GET, name, group) for name in topics)
        return command.response(body=encode_consume_statistics(broker.name, found, per_second=sum(rates)))

    async def reset(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        """Put the group elsewhere, and have its members go on there at once."""
        call = decode_reset(command.ext)
        request, topic = call.request, call.request.topic
        done = self._broker.queues.reset(request, physical=call.is_physical)
        resets = await done if isinstance(done, Awaitable) else done
        body = encode_reset_offsets(self._broker.name, topic, resets)
        if resets:
            self._tell_members(
                request, body, encode_reset_list(self._broker.name, topic, resets), str(call.timestamp_ms)
            )
        return command.response(body=body)

    def _tell_members(self, request: ResetRequest, table: bytes, listed: bytes, timestamp: str) -> None:
        """Have the group's members go on elsewhere at once; broadcast ones keep their positions themselves."""
        ext = {
            "topic": request.topic,
            "group": request.group,
            "timestamp": timestamp,
            "isForce": "true",
        }
        for member in self._consumers.online(request.group):
            body = listed if member.language == _LISTS else table
            code = RequestCode.RESET_CONSUMER_CLIENT_OFFSET
            member.connection.send(RemotingCommand(code, dict(ext), body, flag=FLAG_ONEWAY))

    def members(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        """Consumers of remoting and of the proxy in this process; CONSUMER_NOT_ONLINE where there are none."""
        group = GroupMembersRequest.decode(command.ext).group
        self._consumers.expire(self._broker.clock.monotonic_s())
        found = self._consumers.connections(group)
        found.connection_set += [ConnectionData(*member) for member in self._broker.groups.members_elsewhere(group)]
        if not found.connection_set:
            return command.response(ResponseCode.CONSUMER_NOT_ONLINE, remark=f"Group {group} has no consumer here.")
        return command.response(body=encode_body(found))

    def groups_of_topic(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        """Those with a position in it, and those whose members subscribe to it now."""
        topic = self._broker.topics.get(TopicQuery.decode(command.ext).topic)
        found = self._consumers.groups_of(topic.name).union(self._broker.queues.readers(topic.name))
        return command.response(body=encode_body(GroupList(sorted(found))))

    def topics_of_group(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        group = self._broker.groups.look_up(GroupQuery.decode(command.ext).group)
        return command.response(body=encode_body(TopicList(self._broker.queues.topics_of(group.name))))


class StaticTopicHandlers:
    """Codes 351, 513 and 9121."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    async def change(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        """Create or change a static topic; what moves away has stored its last message when this is answered."""
        config, mapping = parse_static_topic(command.ext), decode_mapping(command.body)
        await self._broker.queues.change_static(config, mapping, force=StaticTopicChange.decode(command.ext).force)
        return command.response()

    def state(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        """A topic's settings, with its mapping where it is static."""
        topics = self._broker.topics
        config = topics.get(TopicQuery.decode(command.ext).topic)
        return command.response(body=encode_topic_state(config, topics.mapping(config.name)))

    async def pop_segment(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        """Messages of one of this broker's own queues, for the broker that leads the logic queue now."""
        taken, is_consumed = await self._broker.delivery.pop_segment(parse_pop(command))
        return pop_answer(command, taken, is_consumed)
