"""Which clients are there and what they subscribe to, as their heartbeats say.

A consumer counts until it unregisters, its connection closes, or it is not heard of for `MEMBER_LIMIT_S`. When a
group's members change, all of them are told, so that they share the queues anew at once.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from millstream.broker.broker import Broker
from millstream.broker.remoting.members import MAX_CLIENT_ID_CHARACTERS, Member, MemberTable, member_data
from millstream.broker.remoting.producers import MAX_PRODUCER_GROUPS, ProducerRegistry
from millstream.broker.topics import RETRY_PREFIX
from millstream.model.errors import ConsumeRefused, NameRefused
from millstream.model.filter_expression import parse_filter
from millstream.model.topic import TopicConfig
from millstream.protocol.remoting.bodies import (
    CheckClientBody,
    ConsumerData,
    ConsumerList,
    HeartbeatData,
    SubscriptionData,
    decode_body,
    encode_body,
)
from millstream.protocol.remoting.codes import RequestCode, ResponseCode
from millstream.protocol.remoting.command import FLAG_ONEWAY, RemotingCommand
from millstream.protocol.remoting.consumption import ConsumerConnection
from millstream.protocol.remoting.fields import text
from millstream.security.signature import ACCESS_KEY
from millstream.transport.remoting_server import Connection

__all__ = [
    "MAX_CONSUMERS",
    "MAX_HEARTBEAT_GROUPS",
    "MAX_SUBSCRIPTIONS",
    "ClientHandlers",
    "ConsumerRegistry",
    "KnownConsumer",
    "OnlineConsumer",
]

_log = logging.getLogger(__name__)

MAX_CONSUMERS: Final = 50_000
"""Consumers (client and group) of one broker at most."""

MAX_HEARTBEAT_GROUPS: Final = 100
"""Consumer groups of one heartbeat at most: each new one is written to the disk while everybody else waits."""

MAX_SUBSCRIPTIONS: Final = 1000
"""Subscriptions of one consumer at most."""


@dataclass(slots=True)
class _Consumer(Member):
    fingerprint: int = 0
    subscriptions: dict[str, SubscriptionData] = field(default_factory=dict)
    data: ConsumerData | None = None


@dataclass(frozen=True, slots=True)
class KnownConsumer:
    """What a consumer said of itself; the words are the protocol's."""

    group: str
    language: str
    version: int
    consume_type: str


class OnlineConsumer(NamedTuple):
    """A consumer and the connection on which it was last heard."""

    client_id: str
    connection: Connection
    language: str


class ConsumerRegistry:
    """The consumers of each group by client id."""

    def __init__(self) -> None:
        self._members: MemberTable[_Consumer] = MemberTable(MAX_CONSUMERS, "consumers")
        self.on_leave: list[Callable[[str, str], None]] = []
        """Called with the group and the client id of a consumer that is gone."""

    def clients(self, group: str) -> list[str]:
        """The client ids of the group's members, sorted."""
        return sorted(self._members.of(group))

    def connections(self, group: str) -> ConsumerConnection:
        """The group's members by client id, and what they want."""
        members = sorted(self._members.of(group).items())
        found = ConsumerConnection([member_data(name, member) for name, member in members])
        for _, member in members:
            for topic in member.subscriptions:
                subscription = self.subscription(group, topic)
                if subscription is not None:
                    found.subscription_table[topic] = subscription
            if member.data is not None:
                found.consume_type = member.data.consume_type
                found.message_model = member.data.message_model
                found.consume_from_where = member.data.consume_from_where
        return found

    def all(self) -> list[KnownConsumer]:
        """All consumers, group by group."""
        return [
            KnownConsumer(group, language.lower(), version, member.data.consume_type or "" if member.data else "")
            for group, _, member in self._members.all()
            for language, version in (member.origin,)
        ]

    def on_connection(self, group: str, connection: Connection) -> dict[str, ConsumerData]:
        """What the group's members on a connection said of themselves, by client id."""
        members = self._members.of(group).items()
        return {name: one.data for name, one in members if one.connection is connection and one.data is not None}

    def tell_all(self, group: str) -> None:
        """Have all members of the group share its queues anew."""
        for member in self._members.of(group).values():
            notice = RemotingCommand(
                RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, {"consumerGroup": group}, flag=FLAG_ONEWAY
            )
            member.connection.send(notice)

    def subscription(self, group: str, topic: str) -> SubscriptionData | None:
        """What the group wants of the topic; the latest version where its members differ."""
        members = self._members.of(group).values()
        found = [member.subscriptions[topic] for member in members if topic in member.subscriptions]
        return max(found, key=lambda data: data.sub_version) if found else None

    def online(self, group: str) -> list[OnlineConsumer]:
        """The group's members by client id, as the broker can ask them."""
        members = sorted(self._members.of(group).items())
        return [OnlineConsumer(name, member.connection, member.origin[0]) for name, member in members]

    def groups_of(self, topic: str) -> set[str]:
        """The groups of which a member subscribes to the topic."""
        return {group for group, _, member in self._members.all() if topic in member.subscriptions}

    def hear(
        self,
        client_id: str,
        data: ConsumerData,
        connection: Connection,
        fingerprint: int,
        now_s: float,
        origin: tuple[str, int] = ("OTHER", 0),
    ) -> None:
        """A consumer says that it is there; TOO_MANY_REQUESTS over the limits."""
        if len(data.subscription_data_set) > MAX_SUBSCRIPTIONS:
            raise ConsumeRefused("TOO_MANY_REQUESTS", f"A consumer has at most {MAX_SUBSCRIPTIONS} subscriptions.")
        subscriptions = {item.topic: item for item in data.subscription_data_set}
        consumer = _Consumer(connection, now_s, origin, fingerprint, subscriptions, data)
        known = self._members.put(data.group_name, client_id, consumer)
        if known is None or known.subscriptions.keys() != subscriptions.keys():
            # The newcomer as well: a lite pull consumer takes no queue before it is told, or 20 s have passed.
            self.tell_all(data.group_name)

    def refresh(self, client_id: str, group: str, connection: Connection, fingerprint: int, now_s: float) -> bool:
        """A consumer says that nothing has changed; False if it is to say all again, as over another connection."""
        known = self._members.of(group).get(client_id)
        if known is None or known.fingerprint != fingerprint or known.connection is not connection:
            return False
        known.seen_s = now_s
        return True

    def leave(self, client_id: str, group: str) -> None:
        """A consumer is gone; no error if it was not there."""
        if self._members.drop(group, client_id):
            # Before the others are told: they ask at once for what it held.
            for listener in self.on_leave:
                listener(group, client_id)
            self.tell_all(group)

    def connection_closed(self, connection: Connection) -> None:
        """All consumers of a connection are gone."""
        for group, client_id in self._members.on(connection):
            self.leave(client_id, group)

    def expire(self, now_s: float) -> None:
        """Consumers that were not heard of for a while are gone."""
        for group, client_id in self._members.silent(now_s):
            self.leave(client_id, group)


class ClientHandlers:
    """Codes 34, 35, 38 and 46."""

    def __init__(self, broker: Broker, consumers: ConsumerRegistry, producers: ProducerRegistry) -> None:
        self._broker = broker
        self._consumers = consumers
        self._producers = producers

    def heartbeat(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        """Keep what the client says; a group that it names is created with its retry topic."""
        data = decode_body(HeartbeatData, command.body)
        if len(data.consumer_data_set) > MAX_HEARTBEAT_GROUPS:
            raise ConsumeRefused("TOO_MANY_REQUESTS", f"A client has at most {MAX_HEARTBEAT_GROUPS} consumer groups.")
        if len(data.producer_data_set) > MAX_PRODUCER_GROUPS:
            raise ConsumeRefused("TOO_MANY_REQUESTS", f"A client has at most {MAX_PRODUCER_GROUPS} producer groups.")
        if len(data.client_id) > MAX_CLIENT_ID_CHARACTERS:
            words = f"The client's id has {len(data.client_id)} characters; the limit is {MAX_CLIENT_ID_CHARACTERS}."
            raise ConsumeRefused("TOO_MANY_REQUESTS", words)
        now_s = self._broker.clock.monotonic_s()
        self._consumers.expire(now_s)
        self._producers.expire(now_s)
        self._hear_close(connection)
        origin, user = (command.language, command.version), command.ext.get(ACCESS_KEY, "")
        for producer in data.producer_data_set:
            self._producers.hear(data.client_id, producer.group_name, connection, now_s, origin, user)
        is_known = True
        for consumer in data.consumer_data_set:
            group = consumer.group_name
            if data.without_sub and data.heartbeat_fingerprint:
                fingerprint = data.heartbeat_fingerprint
                is_known &= self._consumers.refresh(data.client_id, group, connection, fingerprint, now_s)
            elif self._prepare(group):
                self._consumers.hear(data.client_id, consumer, connection, data.heartbeat_fingerprint, now_s, origin)
        ext = {"IS_SUPPORT_HEART_BEAT_V2": "true", "IS_SUB_CHANGE": "false" if is_known else "true"}
        return command.response(ext=ext)

    def unregister(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        client_id = text(command.ext, "clientID")
        self._consumers.leave(client_id, command.ext.get("consumerGroup", ""))
        self._producers.leave(client_id, command.ext.get("producerGroup", ""), command.ext.get(ACCESS_KEY, ""))
        return command.response()

    def consumer_list(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        group = text(command.ext, "consumerGroup")
        self._consumers.expire(self._broker.clock.monotonic_s())
        clients = self._consumers.clients(group)
        if not clients:
            return command.response(ResponseCode.SYSTEM_ERROR, remark=f"Group {group} has no consumer here.")
        return command.response(body=encode_body(ConsumerList(clients)))

    def check(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        """Say before a consumer starts whether its filter can be read; ILLEGAL_FILTER."""
        subscription = decode_body(CheckClientBody, command.body).subscription_data
        parse_filter(subscription.expression_type or "", subscription.sub_string or "")
        return command.response()

    def _hear_close(self, connection: Connection) -> None:
        if self._consumers.connection_closed not in connection.on_close:
            connection.on_close += [self._consumers.connection_closed, self._producers.connection_closed]

    def _prepare(self, group: str) -> bool:
        """Whether the group is there; a heartbeat tells of many, so one that may not be created fails alone."""
        try:
            self._broker.groups.ensure(group)
            retry_topic = RETRY_PREFIX + group
            if self._broker.topics.find(retry_topic) is None:
                self._broker.topics.create(TopicConfig(retry_topic, read_queues=1, write_queues=1))
        except NameRefused as error:
            _log.warning("A heartbeat names a group that cannot be used: %s", error)
            return False
        return True
