"""A broker's settings over remoting, and the maintenance that tools ask for."""

from __future__ import annotations

from millstream.broker.broker import Broker
from millstream.broker.settings import change_settings, settings_of
from millstream.protocol.remoting.command import RemotingCommand
from millstream.protocol.remoting.java_properties import decode_java_properties, encode_java_properties
from millstream.transport.remoting_connection import Connection

__all__ = ["SettingHandlers"]


class SettingHandlers:
    """Codes 25, 26, 306, 316 and 329."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def settings(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        return command.response(body=encode_java_properties(settings_of(self._broker)))

    def change(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        """All or none of them; what is changed holds until the broker stops."""
        change_settings(self._broker, decode_java_properties(command.body))
        return command.response()

    async def retain(self, command: RemotingCommand, _connection: Connection) -> RemotingCommand:
        """Let old messages and their queues' entries go now, as the broker does by itself every 10 s."""
        await self._broker.maintenance.retain()
        return command.response()

    def clean_unused(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        """Nothing to do: a topic's queues are deleted with it."""
        return command.response()
