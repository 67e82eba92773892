"""Requests of Millstream's tools about messages in an object store."""

from __future__ import annotations

from millstream.broker.broker import Broker
from millstream.broker.cold_checks import tiered_storage_off
from millstream.broker.cold_tier import ColdTier
from millstream.protocol.remoting.administration.cold_checks import OrphanQuery, VerificationQuery
from millstream.protocol.remoting.bodies import encode_body
from millstream.protocol.remoting.command import RemotingCommand
from millstream.transport.remoting_connection import Connection

__all__ = ["ColdCheckHandlers"]


class ColdCheckHandlers:
    """Codes 9134 to 9136. TIERED_STORAGE_OFF where the broker has no object store."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def status(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        found = self._cold.status()
        found.copies = self._broker.columns.status()
        return command.response(body=encode_body(found))

    async def verify(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        """A few objects for each request: first those with messages, then those of copies."""
        call, copies = VerificationQuery.decode(command.ext), self._broker.column_checks
        cold, step = self._cold, max(call.step, 1)
        if copies.is_position(call.after):
            return command.response(body=encode_body(await copies.verify(call.after, step)))
        found = await cold.checks.verify(call.after, step)
        found.after = found.after or copies.first_position()
        return command.response(body=encode_body(found))

    async def collect(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        """Of a thousand objects for each request: first those with messages, then those of copies."""
        call, copies = OrphanQuery.decode(command.ext), self._broker.column_checks
        cold = self._cold
        if copies.is_position(call.after):
            return command.response(body=encode_body(await copies.collect(call.after, deletes=call.deletes)))
        found = await cold.collect(call.after, deletes=call.deletes)
        found.after = found.after or copies.first_position()
        return command.response(body=encode_body(found))

    @property
    def _cold(self) -> ColdTier:
        if not self._broker.cold.is_enabled:
            raise tiered_storage_off()
        return self._broker.cold
