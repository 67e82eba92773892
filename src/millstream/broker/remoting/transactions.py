"""Transactions of remoting producers: how they end them. Whom the broker asks about open ones is in `producers`."""

from __future__ import annotations

from typing import Final

from millstream.broker.broker import Broker
from millstream.model.errors import MessageRefused
from millstream.model.message import StoredMessage
from millstream.model.properties import PRODUCER_GROUP
from millstream.model.transaction import Resolution
from millstream.protocol.remoting.command import RemotingCommand
from millstream.protocol.remoting.messages.transactions import TransactionEnd, decode_end
from millstream.security.guard import Guard
from millstream.security.policy import RequiredAccess
from millstream.transport.gate import allow_more
from millstream.transport.remoting_connection import Connection

__all__ = ["TransactionHandlers"]

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
