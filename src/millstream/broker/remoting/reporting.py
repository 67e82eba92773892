"""What administers the broker itself: its report, and whether it takes new messages."""

from __future__ import annotations

from millstream.broker.broker import Broker
from millstream.broker.report import broker_report
from millstream.model.errors import MessageRefused
from millstream.model.topic import Permission
from millstream.protocol.remoting.bodies import encode_body
from millstream.protocol.remoting.command import RemotingCommand
from millstream.protocol.remoting.fields import integer
from millstream.transport.remoting_connection import Connection

__all__ = ["ReportHandlers"]

_READ_AND_WRITE = Permission.READ | Permission.WRITE


class ReportHandlers:
    """Codes 9131 and 9132."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    async def report(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        """With the field `probe` the disk's sync is timed as well, with `readers` the groups of topics are named."""
        probes_disk, tells_readers = (command.ext.get(field) == "true" for field in ("probe", "readers"))
        report = await broker_report(self._broker, probes_disk=probes_disk, tells_readers=tells_readers)
        return command.response(body=encode_body(report))

    def permission(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        """4 drains the broker: it is read and takes no new messages. 6 ends that."""
        value = integer(command.ext, "permission")
        if value not in (Permission.READ, _READ_AND_WRITE):
            raise MessageRefused("MESSAGE_MALFORMED", f"The permission {value} is none of 4 (read) and 6 (and write).")
        self._broker.maintenance.permission.put(Permission(value))
        return command.response()
