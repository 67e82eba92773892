"""Requests that proxies send for their clients, and those of Millstream's tools; RocketMQ has none for these.

For super users, as proxies are.
"""

from __future__ import annotations

from millstream.broker.broker import Broker
from millstream.broker.runtime_report import broker_report
from millstream.model.errors import MessageRefused
from millstream.model.operations import Resolution
from millstream.model.topic import Permission
from millstream.protocol.remoting.administration.broker_requests import (
    DeliveriesRelease,
    LeavingClient,
    PermissionChange,
    ReportQuery,
)
from millstream.protocol.remoting.bodies import encode_body
from millstream.protocol.remoting.command import RemotingCommand
from millstream.protocol.remoting.messages.lite import decode_lite_sync, encode_lite_losses
from millstream.protocol.remoting.messages.message_requests import NamedTransactionEnd
from millstream.protocol.remoting.messages.popping import decode_ack
from millstream.protocol.remoting.messages.sends import sent_fields
from millstream.protocol.remoting.messages.state import decode_state
from millstream.transport.remoting_connection import Connection

__all__ = ["ProxyHandlers", "ReportHandlers"]


class ProxyHandlers:
    """Codes 9141 to 9144, 9150 and 9151."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    async def end_transaction(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        call = NamedTransactionEnd.decode(command.ext)
        told = call.resolution
        try:
            resolution = Resolution(told)
        except ValueError:
            raise MessageRefused("MESSAGE_MALFORMED", f"{told[:40]!r} is no end of a transaction.") from None
        await self._broker.delivery.end_transaction(call.topic, call.transaction_id, resolution)
        return command.response()

    async def bury(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        await self._broker.delivery.move_to_dead_letter(decode_ack(command.ext))
        return command.response()

    def sync_lite(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        lost = self._broker.delivery.sync_lite_subscription(decode_lite_sync(command.body))
        return command.response(body=encode_lite_losses(lost))

    async def store_state(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        messages = decode_state(command.ext, command.body, connection.peer)
        receipts = await self._broker.delivery.store_state(messages)
        ids = ",".join(receipt.offset_message_id for receipt in receipts)
        return command.response(ext=sent_fields(ids, receipts[0].queue_id, receipts[0].queue_offset))

    def release_deliveries(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        call = DeliveriesRelease.decode(command.ext)
        self._broker.delivery.release_deliveries(call.group, call.topic)
        return command.response()

    def leave_lite(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        self._broker.delivery.leave_lite_topics(LeavingClient.decode(command.ext).client_id)
        return command.response()


_READ_AND_WRITE = Permission.READ | Permission.WRITE


class ReportHandlers:
    """Codes 9131 and 9132."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    async def report(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        """With the field `probe` the disk's sync is timed as well, with `readers` the groups of topics are named."""
        call = ReportQuery.decode(command.ext)
        report = await broker_report(self._broker, probes_disk=call.probes_disk, tells_readers=call.tells_readers)
        return command.response(body=encode_body(report))

    def permission(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        """4 drains the broker: it is read and takes no new messages. 6 ends that."""
        value = PermissionChange.decode(command.ext).permission
        if value not in (Permission.READ, _READ_AND_WRITE):
            raise MessageRefused("MESSAGE_MALFORMED", f"The permission {value} is none of 4 (read) and 6 (and write).")
        self._broker.maintenance.permission.put(Permission(value))
        return command.response()
