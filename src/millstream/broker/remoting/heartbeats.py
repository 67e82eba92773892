"""Heartbeats, unregistrations and liveness checks of remoting clients; a heartbeat creates the groups it names."""

from __future__ import annotations

import logging
from collections.abc import Collection

from millstream.broker.broker import Broker
from millstream.broker.queues.topics import RETRY_PREFIX
from millstream.broker.remoting.clients import MAX_CLIENT_ID_CHARACTERS, MAX_HEARTBEAT_GROUPS, ConsumerRegistry
from millstream.broker.remoting.producers import MAX_PRODUCER_GROUPS, ProducerRegistry
from millstream.model.clock import Clock
from millstream.model.errors import ConsumeRefused, NameRefused, StoreError
from millstream.model.sql_filter import parse_filter
from millstream.model.topic import TopicConfig
from millstream.protocol.remoting.administration.topic_requests import GroupMembersRequest, UnregisteredClient
from millstream.protocol.remoting.bodies import CheckClientBody, ConsumerList, HeartbeatData, decode_body, encode_body
from millstream.protocol.remoting.codes import ResponseCode
from millstream.protocol.remoting.command import RemotingCommand
from millstream.protocol.remoting.messages.sends import CLIENT_USER, is_lost, is_proxied, ordered_field
from millstream.security.signature import ACCESS_KEY
from millstream.transport.remoting_connection import Connection
from millstream.transport.strangers import StrangerAct, StrangerLog

__all__ = ["ClientHandlers", "ClientLiveness"]


class ClientLiveness:
    """The clients of one broker, or of one proxy."""

    def __init__(self, clock: Clock, consumers: ConsumerRegistry, producers: ProducerRegistry) -> None:
        self._clock = clock
        self.consumers = consumers
        self.producers = producers

    def read(self, command: RemotingCommand) -> tuple[HeartbeatData, list[str]]:
        """What a heartbeat says, and the groups of which it tells all; none where it says that nothing has changed.

        TOO_MANY_REQUESTS for one that names too much, MESSAGE_MALFORMED.
        """
        data = decode_body(HeartbeatData, command.body)
        if len(data.consumer_data_set) > MAX_HEARTBEAT_GROUPS:
            raise ConsumeRefused("TOO_MANY_REQUESTS", f"A client has at most {MAX_HEARTBEAT_GROUPS} consumer groups.")
        if len(data.producer_data_set) > MAX_PRODUCER_GROUPS:
            raise ConsumeRefused("TOO_MANY_REQUESTS", f"A client has at most {MAX_PRODUCER_GROUPS} producer groups.")
        if len(data.client_id) > MAX_CLIENT_ID_CHARACTERS:
            words = f"The client's id has {len(data.client_id)} characters; the limit is {MAX_CLIENT_ID_CHARACTERS}."
            raise ConsumeRefused("TOO_MANY_REQUESTS", words)
        return data, [] if _only_refreshes(data) else [one.group_name for one in data.consumer_data_set]

    def hear(
        self, command: RemotingCommand, data: HeartbeatData, connection: Connection, usable: Collection[str]
    ) -> RemotingCommand:
        """Keep what a heartbeat says, but for groups that are not `usable`: the others are as good."""
        now_s = self._clock.monotonic_s()
        self._expire()
        if self.consumers.connection_closed not in connection.on_close:
            connection.on_close += [self.consumers.connection_closed, self.producers.connection_closed]
        origin, fingerprint = (command.language, command.version), data.heartbeat_fingerprint
        user = self._user(command)
        for producer in data.producer_data_set:
            self.producers.hear(data.client_id, producer.group_name, connection, now_s, origin, user)
        is_known = True
        for consumer in data.consumer_data_set:
            if _only_refreshes(data):
                is_known &= self.consumers.refresh(data.client_id, consumer.group_name, connection, fingerprint, now_s)
            elif consumer.group_name in usable:
                proxied = is_proxied(command.ext)
                self.consumers.hear(data.client_id, consumer, connection, fingerprint, now_s, origin, proxied)
        ext = {"IS_SUPPORT_HEART_BEAT_V2": "true", "IS_SUB_CHANGE": "false" if is_known else "true"}
        return command.response(ext=ext)

    def unregister(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        """Code 35. A proxy that has lost a client says so for itself alone: the client may be at another one."""
        call = UnregisteredClient.decode(command.ext)
        client_id, consumed, produced = call.client_id, call.consumer_group, call.producer_group
        if is_lost(command.ext):
            self.consumers.lose(client_id, consumed, connection)
            self.producers.lose(client_id, produced, connection)
        else:
            self.consumers.leave(client_id, consumed)
            self.producers.leave(client_id, produced, self._user(command))
        return command.response()

    def clients(self, group: str) -> list[str]:
        """The client ids of the group's consumers, sorted."""
        self._expire()
        return self.consumers.clients(group)

    def check(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        """Code 46: say before a consumer starts whether its filter can be read; ILLEGAL_FILTER."""
        subscription = decode_body(CheckClientBody, command.body).subscription_data
        parse_filter(subscription.expression_type or "", subscription.sub_string or "")
        return command.response()

    def _user(self, command: RemotingCommand) -> str:
        """Whose client it is: of a proxy's clients, the proxy says it, which must be a super user's for that."""
        caller, guard = command.ext.get(ACCESS_KEY, ""), self.producers.guard
        if guard is None or not is_proxied(command.ext):
            return caller
        return command.ext.get(CLIENT_USER, "") if guard.is_super(caller) else caller

    def _expire(self) -> None:
        now_s = self._clock.monotonic_s()
        self.consumers.expire(now_s)
        self.producers.expire(now_s)

    @staticmethod
    def list_answer(command: RemotingCommand, group: str, clients: list[str], **ext: str) -> RemotingCommand:
        """The answer to code 38."""
        if not clients:
            remark = f"Group {group} has no consumer here."
            return command.response(ResponseCode.SYSTEM_ERROR, ext=ext, remark=remark)
        return command.response(ext=ext, body=encode_body(ConsumerList(clients)))


def _only_refreshes(data: HeartbeatData) -> bool:
    return data.without_sub and data.heartbeat_fingerprint != 0


_log = logging.getLogger(__name__)


class ClientHandlers:
    """Codes 34, 35, 38 and 46."""

    def __init__(self, broker: Broker, liveness: ClientLiveness) -> None:
        self._broker = broker
        self._liveness = liveness
        self._strangers = StrangerLog(broker.clock)

    def heartbeat(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        """Keep what the client says; a group that it names is created with its retry topic."""
        data, groups = self._liveness.read(command)
        return self._liveness.hear(command, data, connection, {group for group in groups if self._prepare(group)})

    def consumer_list(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        """The group's members, and whether it keeps order."""
        group = GroupMembersRequest.decode(command.ext).group
        is_ordered = self._broker.groups.is_ordered(group)
        clients = self._liveness.clients(group)
        return self._liveness.list_answer(command, group, clients, **ordered_field(is_ordered))

    def _prepare(self, group: str) -> bool:
        """Whether the group is there; a heartbeat tells of many, so one that may not be created fails alone."""
        try:
            self._broker.groups.ensure(group)
            retry_topic = RETRY_PREFIX + group
            if self._broker.topics.find(retry_topic) is None:
                self._broker.topics.create(TopicConfig(retry_topic, read_queues=1, write_queues=1))
        except NameRefused as error:
            words = f"A heartbeat names a group that cannot be used: {error}"
            self._strangers.say(_log, StrangerAct.BAD_REQUEST, words)
            return False
        except StoreError as error:
            # The group can read without a retry topic; a later heartbeat makes it, once the disk has room.
            if error.name != "DISK_FULL":
                raise
        return True
