"""What proxies ask in the name of their clients and RocketMQ has no request for. For super users, as proxies are."""

from __future__ import annotations

from millstream.broker.broker import Broker
from millstream.model.errors import MessageRefused
from millstream.model.transaction import Resolution
from millstream.protocol.remoting.command import RemotingCommand
from millstream.protocol.remoting.fields import text
from millstream.protocol.remoting.lite import decode_lite_sync, encode_lite_losses
from millstream.protocol.remoting.popping import decode_ack
from millstream.transport.remoting_connection import Connection

__all__ = ["ProxyHandlers"]


class ProxyHandlers:
    """Codes 9141 to 9144."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    async def end_transaction(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        ext = command.ext
        told = text(ext, "resolution")
        try:
            resolution = Resolution(told)
        except ValueError:
            raise MessageRefused("MESSAGE_MALFORMED", f"{told[:40]!r} is no end of a transaction.") from None
        await self._broker.delivery.end_transaction(text(ext, "topic"), text(ext, "transactionId"), resolution)
        return command.response()

    async def bury(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        await self._broker.delivery.move_to_dead_letter(decode_ack(command.ext))
        return command.response()

    def sync_lite(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        lost = self._broker.delivery.sync_lite_subscription(decode_lite_sync(command.body))
        return command.response(body=encode_lite_losses(lost))

    def leave_lite(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        self._broker.delivery.leave_lite_topics(text(command.ext, "clientId"))
        return command.response()
