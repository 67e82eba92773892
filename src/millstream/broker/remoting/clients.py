"""Which clients are there and what they subscribe to, as their heartbeats say.

A consumer counts until it unregisters, its connection closes, or it is not heard of for `MEMBER_LIMIT_S`. When a
group's members change, all of them are told, so that they share the queues anew at once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from millstream.broker.remoting.members import Member, MemberTable, member_data
from millstream.model.errors import ConsumeRefused
from millstream.protocol.remoting.administration.consumption import ConsumerConnection
from millstream.protocol.remoting.bodies import ConsumerData, SubscriptionData
from millstream.protocol.remoting.codes import RequestCode
from millstream.protocol.remoting.command import FLAG_ONEWAY, RemotingCommand
from millstream.transport.remoting_connection import Connection

__all__ = [
    "MAX_CONSUMERS",
    "MAX_HEARTBEAT_GROUPS",
    "MAX_SUBSCRIPTIONS",
    "ConsumerRegistry",
    "HeardConsumer",
    "KnownConsumer",
    "OnlineConsumer",
]

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


class HeardConsumer(NamedTuple):
    """A consumer, what it said of itself, and its language and version."""

    client_id: str
    connection: Connection
    data: ConsumerData
    origin: tuple[str, int]


class ConsumerRegistry:
    """The consumers of each group by client id."""

    def __init__(self) -> None:
        self._members: MemberTable[_Consumer] = MemberTable(MAX_CONSUMERS, "consumers")
        self.on_leave: list[Callable[[str, str, bool], None]] = []
        """Called with the group and the client id of a consumer that is gone from here, and whether it is gone
        everywhere: one at a proxy that ended may live on at another one."""

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

    def list_heard(self, group: str) -> list[HeardConsumer]:
        """The group's members by client id, as they said what they are."""
        return [
            HeardConsumer(name, member.connection, member.data, member.origin)
            for name, member in sorted(self._members.of(group).items())
            if member.data is not None
        ]

    def on_connection(self, group: str, connection: Connection) -> dict[str, ConsumerData]:
        """What the group's members on a connection said of themselves, by client id."""
        members = self._members.of(group).items()
        return {name: one.data for name, one in members if one.connection is connection and one.data is not None}

    def tell_all(self, group: str) -> None:
        """Have all members of the group share its queues anew; those on one connection are told together."""
        for connection in dict.fromkeys(member.connection for member in self._members.of(group).values()):
            notice = RemotingCommand(
                RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, {"consumerGroup": group}, flag=FLAG_ONEWAY
            )
            connection.send(notice)

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
        is_proxied: bool = False,
    ) -> None:
        """A consumer says that it is there, or its proxy does; TOO_MANY_REQUESTS over the limits."""
        if len(data.subscription_data_set) > MAX_SUBSCRIPTIONS:
            raise ConsumeRefused("TOO_MANY_REQUESTS", f"A consumer has at most {MAX_SUBSCRIPTIONS} subscriptions.")
        subscriptions = {item.topic: item for item in data.subscription_data_set}
        consumer = _Consumer(connection, now_s, origin, is_proxied, fingerprint, subscriptions, data)
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
        """A consumer says that it goes; no error if it was not there."""
        self._drop(group, client_id, is_gone=True)

    def lose(self, client_id: str, group: str, connection: Connection) -> None:
        """A proxy has lost a consumer, which counts unless it is at another one by now."""
        if self._members.is_on(group, client_id, connection):
            self._drop(group, client_id, is_gone=False)

    def connection_closed(self, connection: Connection) -> None:
        """All consumers of a connection are gone."""
        for group, client_id in self._members.on(connection):
            self._drop(group, client_id, is_gone=not self._members.of(group)[client_id].is_proxied)

    def expire(self, now_s: float) -> None:
        """Consumers that were not heard of for a while are gone."""
        for group, client_id in self._members.silent(now_s):
            self._drop(group, client_id, is_gone=not self._members.of(group)[client_id].is_proxied)

    def _drop(self, group: str, client_id: str, *, is_gone: bool) -> None:
        if self._members.drop(group, client_id):
            # Before the others are told: they ask at once for what it held.
            for listener in self.on_leave:
                listener(group, client_id, is_gone)
            self.tell_all(group)
