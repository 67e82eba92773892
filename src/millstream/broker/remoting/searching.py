"""Finding messages by key, and by the offset that an offset message id holds."""

from __future__ import annotations

from typing import Final

from millstream.broker.broker import Broker
from millstream.protocol.remoting.codes import ResponseCode
from millstream.protocol.remoting.command import RemotingCommand
from millstream.protocol.remoting.messages.message_requests import KeySearchRequest, LogOffset
from millstream.transport.remoting_connection import Connection

__all__ = ["SearchHandlers"]

_UNIQUE_KEY_RESULTS: Final = 32
"""What a search by unique key answers at most, whatever it asks for; RocketMQ's rule."""


class SearchHandlers:
    """Codes 12 and 33."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    async def by_key(self, command: RemotingCommand, _connection: Connection) -> RemotingCommand:
        """Records with a key, newest first; QUERY_NOT_FOUND where there are none."""
        call = KeySearchRequest.decode(command.ext)
        topic, key = call.topic, call.key
        most = _UNIQUE_KEY_RESULTS if call.is_unique else call.max_results
        records = await self._broker.queues.find_by_key(topic, key, call.begin_ms, call.end_ms, most)
        if not records:
            remark = f"Topic {topic} has no message with the key {key[:200]!r} in that time."
            return command.response(ResponseCode.QUERY_NOT_FOUND, remark=remark)
        store = self._broker.maintenance.store
        found = {
            "indexLastUpdateTimestamp": str(self._broker.clock.now_ms()),
            "indexLastUpdatePhyoffset": str(store.visible_log_offset),
        }
        return command.response(ext=found, body_parts=tuple(records))

    def by_offset(self, command: RemotingCommand, _connection: Connection) -> RemotingCommand:
        """The record at a log offset."""
        log_offset = LogOffset.decode(command.ext).log_offset
        record = self._broker.queues.record_at(log_offset)
        if record is None:
            return command.response(ResponseCode.SYSTEM_ERROR, remark=f"No message begins at log offset {log_offset}.")
        return command.response(body_parts=(record,))
