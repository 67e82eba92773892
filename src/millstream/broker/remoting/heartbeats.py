"""Heartbeats of clients, which create the groups that they name, and who is in a group."""

from __future__ import annotations

import logging

from millstream.broker.broker import Broker
from millstream.broker.queues.topics import RETRY_PREFIX
from millstream.broker.remoting.client_liveness import ClientLiveness
from millstream.model.errors import NameRefused, StoreError
from millstream.model.topic import TopicConfig
from millstream.protocol.remoting.administration.group_requests import GroupMembersRequest
from millstream.protocol.remoting.command import RemotingCommand
from millstream.protocol.remoting.messages.proxied import ordered_field
from millstream.transport.remoting_connection import Connection
from millstream.transport.strangers import StrangerAct, StrangerLog

__all__ = ["ClientHandlers"]

_log = logging.getLogger(__name__)


class ClientHandlers:
    """Codes 34, 35, 38 and 46."""

    def __init__(self, broker: Broker, liveness: ClientLiveness) -> None:
        self._broker = broker
        self._liveness = liveness
        self._strangers = StrangerLog(broker.clock)

    def heartbeat(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        """Keep what the client says; a group that it names is created with its retry topic."""
        data, groups = self._liveness.read(command)
        return self._liveness.hear(command, data, connection, {group for group in groups if self._prepare(group)})

    def consumer_list(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        """The group's members, and whether it keeps order."""
        group = GroupMembersRequest.decode(command.ext).group
        is_ordered = self._broker.groups.is_ordered(group)
        clients = self._liveness.clients(group)
        return self._liveness.list_answer(command, group, clients, **ordered_field(is_ordered))

    def _prepare(self, group: str) -> bool:
        """Whether the group is there; a heartbeat tells of many, so one that may not be created fails alone."""
        try:
            self._broker.groups.ensure(group)
            retry_topic = RETRY_PREFIX + group
            if self._broker.topics.find(retry_topic) is None:
                self._broker.topics.create(TopicConfig(retry_topic, read_queues=1, write_queues=1))
        except NameRefused as error:
            words = f"A heartbeat names a group that cannot be used: {error}"
            self._strangers.say(_log, StrangerAct.BAD_REQUEST, words)
            return False
        except StoreError as error:
            # The group can read without a retry topic; a later heartbeat makes it, once the disk has room.
            if error.name != "DISK_FULL":
                raise
        return True
