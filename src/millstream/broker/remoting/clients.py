"""Connected clients: the connection on which each was last heard, and its subscriptions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, Generic, NamedTuple, TypeVar

from millstream.model.errors import ConsumeRefused
from millstream.protocol.remoting.administration.consumption import ConnectionData, ConsumerConnection
from millstream.protocol.remoting.bodies import ConsumerData, SubscriptionData
from millstream.protocol.remoting.codes import RequestCode
from millstream.protocol.remoting.command import FLAG_ONEWAY, RemotingCommand
from millstream.transport.remoting_connection import Connection

__all__ = [
    "MAX_CLIENT_ID_CHARACTERS",
    "MAX_CONSUMERS",
    "MAX_HEARTBEAT_GROUPS",
    "MAX_SUBSCRIPTIONS",
    "MEMBER_LIMIT_S",
    "ConsumerRegistry",
    "HeardConsumer",
    "KnownConsumer",
    "Member",
    "MemberTable",
    "OnlineConsumer",
    "member_data",
]


MEMBER_LIMIT_S: Final = 120.0
"""Seconds without a heartbeat after which a client does not count any more."""

MAX_CLIENT_ID_CHARACTERS: Final = 512
"""Characters of a client's id and of a producer group's name at most."""

_EXPIRY_INTERVAL_S: Final = 10.0


@dataclass(slots=True)
class Member:
    """One client of one group. `origin` is its language and version."""

    connection: Connection
    seen_s: float
    origin: tuple[str, int] = ("OTHER", 0)
    is_proxied: bool = False
    """Whether the connection is a proxy's, which may end while the client lives on."""


_M = TypeVar("_M", bound=Member)


class MemberTable(Generic[_M]):
    """The members of all groups, `limit` at most; `noun` says in refusals what they are."""

    def __init__(self, limit: int, noun: str) -> None:
        self._limit = limit
        self._noun = noun
        self._groups: dict[str, dict[str, _M]] = {}
        self._places: dict[Connection, set[tuple[str, str]]] = {}
        self._groups_of: dict[str, set[str]] = {}
        self._count = 0
        self._next_expiry_s = 0.0

    def of(self, group: str) -> Mapping[str, _M]:
        """The group's members by client id."""
        return self._groups.get(group, {})

    def all(self) -> Iterator[tuple[str, str, _M]]:
        """Group, client id and member, group by group."""
        for group, members in self._groups.items():
            for client_id, member in members.items():
                yield group, client_id, member

    def of_client(self, client_id: str) -> list[_M]:
        """The client as a member of each of its groups, sorted by group."""
        return [self._groups[group][client_id] for group in sorted(self._groups_of.get(client_id, ()))]

    def put(self, group: str, client_id: str, member: _M) -> _M | None:
        """Add or replace a member; what was there before. Raises TOO_MANY_REQUESTS over the limit."""
        known = self._groups.get(group, {}).get(client_id)
        if known is None:
            if self._count >= self._limit:
                words = f"The broker has {self._limit} {self._noun}, which is its limit."
                raise ConsumeRefused("TOO_MANY_REQUESTS", words)
            self._count += 1
        elif known.connection is not member.connection:
            self._unlink(group, client_id, known)
        self._groups.setdefault(group, {})[client_id] = member
        self._groups_of.setdefault(client_id, set()).add(group)
        self._places.setdefault(member.connection, set()).add((group, client_id))
        return known

    def drop(self, group: str, client_id: str) -> bool:
        """Remove a member; False if it was not there."""
        members = self._groups.get(group, {})
        member = members.pop(client_id, None)
        if member is None:
            return False
        self._count -= 1
        if not members:
            del self._groups[group]
        groups = self._groups_of[client_id]
        groups.discard(group)
        if not groups:
            del self._groups_of[client_id]
        self._unlink(group, client_id, member)
        return True

    def on(self, connection: Connection) -> list[tuple[str, str]]:
        """Group and client id of those on a connection, sorted."""
        return sorted(self._places.get(connection, ()))

    def is_on(self, group: str, client_id: str, connection: Connection) -> bool:
        """Whether a member was last heard on that connection."""
        member = self._groups.get(group, {}).get(client_id)
        return member is not None and member.connection is connection

    def silent(self, now_s: float) -> list[tuple[str, str]]:
        """Group and client id of those not heard of for `MEMBER_LIMIT_S`; looks every 10 s, however often asked."""
        if now_s < self._next_expiry_s:
            return []
        self._next_expiry_s = now_s + _EXPIRY_INTERVAL_S
        return [(group, name) for group, name, member in self.all() if member.seen_s < now_s - MEMBER_LIMIT_S]

    def _unlink(self, group: str, client_id: str, member: _M) -> None:
        places = self._places[member.connection]
        places.discard((group, client_id))
        if not places:
            del self._places[member.connection]


def member_data(client_id: str, member: Member) -> ConnectionData:
    """The member as lists of connections show it."""
    peer = member.connection.peer
    return ConnectionData(client_id, f"{peer.host}:{peer.port}", *member.origin)


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
        """Have all members of the group share its queues again; those on one connection are told together."""
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
