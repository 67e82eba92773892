"""Connected producers, as their heartbeats say, and their requests to end transactions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import Final, NamedTuple

from millstream.broker.broker import Broker
from millstream.broker.remoting.clients import MAX_CLIENT_ID_CHARACTERS, Member, MemberTable, member_data
from millstream.model.commands import RecoverOrphanedTransaction
from millstream.model.errors import ConsumeRefused, MessageRefused
from millstream.model.message import StoredMessage
from millstream.model.operations import Resolution
from millstream.model.properties import PRODUCER_GROUP, TRANSACTION_ID
from millstream.protocol.batches import record_of
from millstream.protocol.remoting.administration.consumption import (
    ConnectionData,
    ProducerConnection,
    ProducerInfo,
    ProducerTable,
)
from millstream.protocol.remoting.administration.topic_requests import ProducerMembers
from millstream.protocol.remoting.bodies import encode_body
from millstream.protocol.remoting.codes import RequestCode, ResponseCode
from millstream.protocol.remoting.command import FLAG_ONEWAY, RemotingCommand
from millstream.protocol.remoting.messages.message_requests import TransactionEnd, check_fields, decode_end
from millstream.security.guard import Guard
from millstream.security.policy import RequiredAccess
from millstream.transport.gate import allow_more
from millstream.transport.remoting_connection import Connection

__all__ = [
    "MAX_PRODUCERS",
    "MAX_PRODUCER_GROUPS",
    "MAX_TOLD_PRODUCERS",
    "KnownProducer",
    "ProducerHandlers",
    "ProducerRegistry",
    "TransactionHandlers",
]


MAX_PRODUCERS: Final = 50_000
"""Producers (client and group) of one broker at most."""

MAX_PRODUCER_GROUPS: Final = 100
"""Producer groups of one heartbeat at most."""

MAX_TOLD_PRODUCERS: Final = 10_000
"""Producers of all groups that one request is told at most."""


class KnownProducer(NamedTuple):
    """A producer of a group, and when it was last heard."""

    group: str
    told: ConnectionData
    seen_s: float


@dataclass(slots=True)
class _Producer(Member):
    user: str = ""
    """Whose heartbeat it was; blank without access control."""


class ProducerRegistry:
    """The producers of each group by client id. Everybody may say to be of a group: with a `guard`, only those are
    asked about a message who may send to its topic, and nobody takes the place of another user's client.
    """

    def __init__(self, guard: Guard | None = None) -> None:
        self.guard = guard
        self._members: MemberTable[_Producer] = MemberTable(MAX_PRODUCERS, "producers")
        self._turns: dict[str, int] = {}

    def ask(self, question: RecoverOrphanedTransaction) -> bool:
        """Ask a producer of the message's group, whose answer is a request 37; False if none is there who may send."""
        half = question.message
        connection = self.connection_of_producer_group(half.properties.get(PRODUCER_GROUP, half.topic), half.topic)
        if connection is None:
            return False
        half = replace(half, properties={**half.properties, TRANSACTION_ID: question.transaction_id})
        fields, record = check_fields(half), record_of(half)
        connection.send(RemotingCommand(RequestCode.CHECK_TRANSACTION_STATE, fields, record, flag=FLAG_ONEWAY))
        return True

    def connection_of_producer_group(self, group: str, topic: str) -> Connection | None:
        """An open connection of one of the group's producers who may send to the topic, another one each time."""
        wish = RequiredAccess.publish(topic)
        found = (member for _, member in sorted(self._members.of(group).items()) if member.connection.is_open)
        members = [member for member in found if self._may(member, wish)]
        if not members:
            return None
        turn = self._turns[group] = self._turns.get(group, -1) + 1
        return members[turn % len(members)].connection

    def connection_of_client(self, client_id: str) -> Connection | None:
        """The open connection of a client that is a producer of any group; None if it is not there."""
        found = [member.connection for member in self._members.of_client(client_id) if member.connection.is_open]
        return found[0] if found else None

    def connections(self, group: str) -> list[ConnectionData]:
        """The group's producers by client id."""
        return [member_data(name, member) for name, member in sorted(self._members.of(group).items())]

    def all(self) -> Iterator[KnownProducer]:
        """All producers, group by group."""
        for group, name, member in self._members.all():
            yield KnownProducer(group, member_data(name, member), member.seen_s)

    def hear(
        self,
        client_id: str,
        group: str,
        connection: Connection,
        now_s: float,
        origin: tuple[str, int],
        user: str = "",
    ) -> None:
        """A producer says that it is there; TOO_MANY_REQUESTS over the limits, UNAUTHORIZED for another's client."""
        if len(group) > MAX_CLIENT_ID_CHARACTERS:
            words = f"The producer group's name has {len(group)} characters; the limit is {MAX_CLIENT_ID_CHARACTERS}."
            raise ConsumeRefused("TOO_MANY_REQUESTS", words)
        if self.guard is not None and any(
            known.user != user and known.connection.is_open for known in self._members.of_client(client_id)
        ):
            # In any group: replies go to a client by its id alone.
            self.guard.refuse_foreign_client(user, peer=connection.peer.host, action="HEART_BEAT")
        self._members.put(group, client_id, _Producer(connection, now_s, origin, user=user))

    def leave(self, client_id: str, group: str, user: str | None = None) -> None:
        """A producer is gone; no error if it was not there, or is not the `user`'s where one is named."""
        known = self._members.of(group).get(client_id)
        if self.guard is not None and user is not None and known is not None and known.user != user:
            return
        if self._members.drop(group, client_id) and not self._members.of(group):
            self._turns.pop(group, None)

    def lose(self, client_id: str, group: str, connection: Connection) -> None:
        """A proxy has lost a producer, which counts unless it is at another one by now."""
        if self._members.is_on(group, client_id, connection):
            self.leave(client_id, group)

    def connection_closed(self, connection: Connection) -> None:
        """All producers of a connection are gone."""
        for group, client_id in self._members.on(connection):
            self.leave(client_id, group)

    def expire(self, now_s: float) -> None:
        """Producers that were not heard of for a while are gone."""
        for group, client_id in self._members.silent(now_s):
            self.leave(client_id, group)

    def _may(self, member: _Producer, wish: RequiredAccess) -> bool:
        return self.guard is None or self.guard.may(member.user, wish, peer=member.connection.peer.host)


class ProducerHandlers:
    """Codes 204 and 328."""

    def __init__(self, broker: Broker, producers: ProducerRegistry) -> None:
        self._broker = broker
        self._producers = producers

    def members(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        """The producers of a group; SYSTEM_ERROR, as in RocketMQ, where there are none."""
        group = ProducerMembers.decode(command.ext).group
        self._producers.expire(self._broker.clock.monotonic_s())
        found = self._producers.connections(group)
        if not found:
            remark = f"The producer group {group} has no producer here."
            return command.response(ResponseCode.SYSTEM_ERROR, remark=remark)
        return command.response(body=encode_body(ProducerConnection(found)))

    def all(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        """The producers of all groups, `MAX_TOLD_PRODUCERS` at most."""
        clock = self._broker.clock
        now_s, now_ms = clock.monotonic_s(), clock.now_ms()
        self._producers.expire(now_s)
        table = ProducerTable()
        for group, told, seen_s in islice(self._producers.all(), MAX_TOLD_PRODUCERS):
            heard_ms = now_ms - int((now_s - seen_s) * 1000)
            info = ProducerInfo(told.client_id, told.client_addr, told.language, told.version, heard_ms)
            table.data.setdefault(group, []).append(info)
        return command.response(body=encode_body(table))


_NOBODY: Final = "(none)"


class TransactionHandlers:
    """Code 37."""

    def __init__(self, broker: Broker, guard: Guard | None) -> None:
        self._broker = broker
        self._guard = guard

    async def end(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        """Commit or roll back; a producer that does not know leaves the transaction open."""
        end = decode_end(command.ext)
        half = self._half(end)
        # Older clients do not name it, so the gate could not ask.
        allow_more(self._guard, command, connection.peer, RequiredAccess.publish(half.topic))
        if end.resolution is not Resolution.UNKNOWN:
            await self._broker.delivery.end_transaction(half.topic, half.message_id, end.resolution)
        # A proxy that asks all brokers does not know the topic, and a client that names it is told nothing new.
        return command.response(ext={"topic": half.topic} if end.message_ids else {})

    def _half(self, end: TransactionEnd) -> StoredMessage:
        """The half message that is meant, in its topic; it must be the producer group's own."""
        half = self._broker.delivery.half_at(end.queue_offset, end.log_offset)
        if half is None or (end.message_ids and half.message_id not in end.message_ids):
            words = f"No half message lies at queue offset {end.queue_offset} and log offset {end.log_offset}."
            raise MessageRefused("TRANSACTION_NOT_FOUND", words)
        group = half.properties.get(PRODUCER_GROUP, _NOBODY)
        if group != end.producer_group or end.topic not in ("", half.topic):
            raise MessageRefused(
                "TRANSACTION_NOT_FOUND",
                f"The transaction {half.message_id[:80]!r} is of the producer group {group[:120]!r} and the topic "
                f"{half.topic[:200]!r}, not of {end.producer_group[:120]!r} and {end.topic[:200]!r}.",
                remedy="End it with the producer that sent it.",
            )
        return half
