"""Administering groups: their settings, how far they are, who their members are, and resets."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Final

from millstream.broker.broker import Broker
from millstream.broker.remoting.clients import ConsumerRegistry
from millstream.broker.traffic import Flow
from millstream.model.operations import QueueProgress, ResetRequest
from millstream.protocol.remoting.administration.consumption import (
    ConnectionData,
    GroupList,
    encode_consume_statistics,
    encode_reset_list,
    encode_reset_offsets,
)
from millstream.protocol.remoting.administration.group_requests import GroupMembersRequest, GroupQuery
from millstream.protocol.remoting.administration.settings import encode_group
from millstream.protocol.remoting.administration.topic_requests import TopicQuery
from millstream.protocol.remoting.bodies import TopicList, encode_body
from millstream.protocol.remoting.codes import RequestCode, ResponseCode
from millstream.protocol.remoting.command import FLAG_ONEWAY, RemotingCommand
from millstream.protocol.remoting.messages.offsets import decode_progress_query, decode_reset
from millstream.transport.remoting_connection import Connection

__all__ = ["GroupHandlers"]

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
        found = groups.ensure(call.group) if call.create else groups.get(call.group)
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
            topics = broker.queues.topics_of(broker.groups.get(group).name)
        found: list[QueueProgress] = []
        for name in topics:
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
        group = self._broker.groups.get(GroupQuery.decode(command.ext).group)
        return command.response(body=encode_body(TopicList(self._broker.queues.topics_of(group.name))))
