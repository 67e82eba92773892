"""Which remoting clients are at this proxy, and with whom each shares queues.

A push consumer gets its messages by pops, which share them out by message. So each is told that it is alone, pulls all
queues, and none waits for one that is stuck. Groups that keep order lock their queues before they pull; they, and those
that read queues by themselves, pull from the brokers and are told who is there.
"""

from __future__ import annotations

from typing import Final

from millstream.broker.remoting.clients import MAX_HEARTBEAT_GROUPS, ConsumerRegistry
from millstream.broker.remoting.members import MAX_CLIENT_ID_CHARACTERS
from millstream.broker.remoting.producers import MAX_PRODUCER_GROUPS, ProducerRegistry
from millstream.model.clock import Clock
from millstream.model.errors import ConsumeRefused, NameRefused
from millstream.model.filter_expression import parse_filter
from millstream.model.group import is_tool_group
from millstream.protocol.remoting.bodies import (
    CheckClientBody,
    ConsumerData,
    ConsumerList,
    HeartbeatData,
    decode_body,
    encode_body,
)
from millstream.protocol.remoting.codes import ResponseCode
from millstream.protocol.remoting.command import RemotingCommand
from millstream.protocol.remoting.fields import text
from millstream.proxy.processor import Processor
from millstream.security.guard import Guard
from millstream.security.signature import ACCESS_KEY
from millstream.transport.remoting_server import Connection

__all__ = ["MAX_ORDERED_GROUPS", "ClientHandlers"]

MAX_ORDERED_GROUPS: Final = 10_000
"""Groups of which it is remembered that they lock queues; the oldest is forgotten, and its next lock tells again."""

_PASSIVELY: Final = "CONSUME_PASSIVELY"
_CLUSTERING: Final = "CLUSTERING"


class ClientHandlers:
    """Codes 34, 35, 38, 46 and 203; `producers` asks the questions of code 39."""

    def __init__(self, processor: Processor, clock: Clock, guard: Guard | None) -> None:
        self._processor = processor
        self._clock = clock
        self._ordered: dict[str, None] = {}
        self._client_ids: dict[Connection, str] = {}
        self.consumers = ConsumerRegistry()
        self.producers = ProducerRegistry(guard)

    async def heartbeat(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        """Keep what the client says. A group that may not be used is passed over: the others are as good."""
        data = decode_body(HeartbeatData, command.body)
        most = max(
            len(data.consumer_data_set) - MAX_HEARTBEAT_GROUPS, len(data.producer_data_set) - MAX_PRODUCER_GROUPS
        )
        if most > 0 or len(data.client_id) > MAX_CLIENT_ID_CHARACTERS:
            raise ConsumeRefused(
                "TOO_MANY_REQUESTS", "The heartbeat names too many groups, or its client at too great length."
            )
        now_s = self._clock.monotonic_s()
        self.consumers.expire(now_s)
        self.producers.expire(now_s)
        if self.consumers.connection_closed not in connection.on_close:
            connection.on_close += [self.consumers.connection_closed, self.producers.connection_closed, self._closed]
        self._client_ids[connection] = data.client_id
        origin, user = (command.language, command.version), command.ext.get(ACCESS_KEY, "")
        for producer in data.producer_data_set:
            self.producers.hear(data.client_id, producer.group_name, connection, now_s, origin, user)
        is_known = True
        for consumer in data.consumer_data_set:
            group, print_ = consumer.group_name, data.heartbeat_fingerprint
            if data.without_sub and print_:
                is_known &= self.consumers.refresh(data.client_id, group, connection, print_, now_s)
            elif await self._prepare(group):
                self.consumers.hear(data.client_id, consumer, connection, print_, now_s, origin)
        ext = {"IS_SUPPORT_HEART_BEAT_V2": "true", "IS_SUB_CHANGE": "false" if is_known else "true"}
        return command.response(ext=ext)

    def unregister(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        client_id = text(command.ext, "clientID")
        self.consumers.leave(client_id, command.ext.get("consumerGroup", ""))
        self.producers.leave(client_id, command.ext.get("producerGroup", ""), command.ext.get(ACCESS_KEY, ""))
        return command.response()

    def consumer_list(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        group = text(command.ext, "consumerGroup")
        self.consumers.expire(self._clock.monotonic_s())
        if self.is_served_by_pops(group, connection):
            clients = sorted(self.consumers.on_connection(group, connection))
        else:
            clients = self.consumers.clients(group)
        if not clients:
            return command.response(ResponseCode.SYSTEM_ERROR, remark=f"Group {group} has no consumer here.")
        return command.response(body=encode_body(ConsumerList(clients)))

    def check(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        """Say before a consumer starts whether its filter can be read; ILLEGAL_FILTER."""
        subscription = decode_body(CheckClientBody, command.body).subscription_data
        parse_filter(subscription.expression_type or "", subscription.sub_string or "")
        return command.response()

    def members(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        group = text(command.ext, "consumerGroup")
        found = self.consumers.connections(group)
        if not found.connection_set:
            return command.response(ResponseCode.CONSUMER_NOT_ONLINE, remark=f"Group {group} has no consumer here.")
        return command.response(body=encode_body(found))

    def client_id(self, connection: Connection) -> str:
        """Who is on the connection, as its last heartbeat said; blank before the first one."""
        return self._client_ids.get(connection, "")

    def _closed(self, connection: Connection) -> None:
        self._client_ids.pop(connection, None)

    def keeps_order(self, group: str) -> None:
        """A client of the group locks queues: from now on its members know of each other and pull by offset."""
        if group in self._ordered:
            return
        if len(self._ordered) >= MAX_ORDERED_GROUPS:
            del self._ordered[next(iter(self._ordered))]
        self._ordered[group] = None
        self.consumers.tell_all(group)

    def is_served_by_pops(self, group: str, connection: Connection) -> bool:
        """Whether what the connection pulls for the group is shared out by message."""
        own = self.consumers.on_connection(group, connection)
        return bool(own) and group not in self._ordered and all(map(_shares_by_message, own.values()))

    def reads_by_offset(self, group: str, connection: Connection) -> bool:
        """Whether the connection has members of the group that read queues by themselves."""
        return bool(self.consumers.on_connection(group, connection)) and not self.is_served_by_pops(group, connection)

    def producer_groups(self) -> set[str]:
        """The groups of the producers that are here."""
        return {known.group for known in self.producers.all()}

    async def _prepare(self, group: str) -> bool:
        if is_tool_group(group):
            return True
        try:
            await self._processor.group(group)
        except NameRefused:
            return False
        return True


def _check(data: HeartbeatData) -> None:
    consumers, producers = len(data.consumer_data_set), len(data.producer_data_set)
    if consumers > MAX_HEARTBEAT_GROUPS or producers > MAX_PRODUCER_GROUPS:
        words = f"A client has at most {MAX_HEARTBEAT_GROUPS} groups of each kind, not {consumers} and {producers}."
        raise ConsumeRefused("TOO_MANY_REQUESTS", words)
    if len(data.client_id) > MAX_CLIENT_ID_CHARACTERS:
        words = f"The client's id has {len(data.client_id)} characters; the limit is {MAX_CLIENT_ID_CHARACTERS}."
        raise ConsumeRefused("TOO_MANY_REQUESTS", words)


def _shares_by_message(data: ConsumerData) -> bool:
    return data.consume_type == _PASSIVELY and (data.message_model or _CLUSTERING) == _CLUSTERING
