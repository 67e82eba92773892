"""Transactions of remoting producers: they end them, and are asked about those that they have left open."""

from __future__ import annotations

from typing import Final

from millstream.broker.broker import Broker
from millstream.broker.remoting.producers import ProducerRegistry
from millstream.model.commands import RecoverOrphanedTransaction
from millstream.model.errors import MessageRefused
from millstream.model.message import StoredMessage
from millstream.model.properties import PRODUCER_GROUP
from millstream.model.transaction import Resolution
from millstream.protocol.batches import record_of
from millstream.protocol.remoting.codes import RequestCode
from millstream.protocol.remoting.command import FLAG_ONEWAY, RemotingCommand
from millstream.protocol.remoting.transactions import TransactionEnd, check_fields, decode_end
from millstream.transport.remoting_server import Connection

__all__ = ["TransactionHandlers"]

_NOBODY: Final = "(none)"


class TransactionHandlers:
    """Code 37, and the questions of code 39."""

    def __init__(self, broker: Broker, producers: ProducerRegistry) -> None:
        self._broker = broker
        self._producers = producers

    async def end(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        """Commit or roll back; a producer that does not know leaves the transaction open."""
        end = decode_end(command.ext)
        half = self._half(end)
        if end.resolution is not Resolution.UNKNOWN:
            await self._broker.end_transaction(half.topic, half.message_id, end.resolution)
        return command.response()

    def ask(self, question: RecoverOrphanedTransaction) -> bool:
        """Ask one of the producers of the message's group, whose answer is a request 37; False if none is there."""
        half = question.message
        connection = self._producers.connection_of_producer_group(half.properties.get(PRODUCER_GROUP, half.topic))
        if connection is None:
            return False
        fields, record = check_fields(half), record_of(half)
        connection.send(RemotingCommand(RequestCode.CHECK_TRANSACTION_STATE, fields, record, flag=FLAG_ONEWAY))
        return True

    def _half(self, end: TransactionEnd) -> StoredMessage:
        """The half message that is meant, in its topic; it must be the producer group's own."""
        half = self._broker.transactions.half_at(end.queue_offset, end.log_offset)
        if half is None:
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
