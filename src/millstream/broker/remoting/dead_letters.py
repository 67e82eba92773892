"""Dead letters: listing them and sending them again."""

from __future__ import annotations

from millstream.broker.broker import Broker
from millstream.protocol.remoting.command import RemotingCommand
from millstream.protocol.remoting.dead_letters import (
    decode_dead_letter_query,
    encode_dead_letter_page,
    encode_redrive_result,
)
from millstream.transport.remoting_connection import Connection

__all__ = ["DeadLetterHandlers"]


class DeadLetterHandlers:
    """Codes 9111 and 9112, which are our own."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def page(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        query, _ = decode_dead_letter_query(command.body)
        return command.response(body=encode_dead_letter_page(self._broker.delivery.dead_letters(query)))

    async def redrive(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        """Refusals of single letters are in the answer; a failing store fails the request."""
        query, target = decode_dead_letter_query(command.body)
        result = await self._broker.delivery.redrive(query, target)
        return command.response(body=encode_redrive_result(result))
