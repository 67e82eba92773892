"""Creating, listing and deleting topics and groups."""

from __future__ import annotations

from millstream.broker.broker import Broker
from millstream.protocol.remoting.command import RemotingCommand
from millstream.protocol.remoting.fields import text
from millstream.protocol.remoting.settings import (
    decode_group,
    encode_group_table,
    encode_topic_table,
    parse_topic_fields,
)
from millstream.transport.remoting_server import Connection

__all__ = ["AdministrationHandlers"]


class AdministrationHandlers:
    """Codes 17, 21, 200, 201, 207 and 215."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def create_topic(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        """Unlike RocketMQ's, this does not change a topic that is there: other settings are refused."""
        self._broker.topics.create(parse_topic_fields(command.ext))
        return command.response()

    def delete_topic(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        self._broker.topics.delete(text(command.ext, "topic"))
        return command.response()

    def topics(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        return command.response(body=encode_topic_table(self._broker.topics.all()))

    def create_group(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        """Creates or changes, as RocketMQ's; with the field `createOnly` other settings are refused."""
        group = decode_group(command.body)
        if command.ext.get("createOnly") == "true":
            self._broker.groups.create(group)
        else:
            self._broker.groups.update(group)
        return command.response()

    def delete_group(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        self._broker.groups.delete(text(command.ext, "groupName"))
        return command.response()

    def groups(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        return command.response(body=encode_group_table(self._broker.groups.all()))
