"""Tells readers where cold messages lie, so that they can read the object store themselves."""

from __future__ import annotations

from millstream.broker.broker import Broker
from millstream.broker.queues.reader import check_readable
from millstream.protocol.remoting.bodies import encode_body
from millstream.protocol.remoting.command import RemotingCommand
from millstream.protocol.remoting.messages.cold_ranges import ColdRangeRow, ColdRangesBody, ColdRangesCall
from millstream.transport.remoting_connection import Connection

__all__ = ["ColdRangeHandlers"]


class ColdRangeHandlers:
    """Code 9130."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def ranges(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        """The ranges of one of the broker's own queues; none of a static topic, whose offsets are not those of rows.

        Refused as a pull of the queue would be.
        """
        call, broker = ColdRangesCall.decode(command.ext), self._broker
        broker.queues.check_group(call.group)
        topic = broker.topics.get(call.topic)
        if broker.topics.mapping(call.topic) is not None:
            return command.response(body=encode_body(ColdRangesBody(end_offset=call.end, disk_offset=call.begin)))
        check_readable(topic, call.queue_id)
        found = broker.cold.list_ranges(call.topic, call.queue_id, call.begin, call.end)
        body = ColdRangesBody(end_offset=found.end_offset, disk_offset=found.disk_offset)
        if found.place is not None:
            body.url, body.endpoint, body.region = found.place.url, found.place.endpoint, found.place.region
            body.ranges = [
                ColdRangeRow(
                    one.first_queue_offset,
                    one.next_queue_offset,
                    one.first_stored_ms,
                    one.last_stored_ms,
                    one.key,
                    one.size_bytes,
                )
                for one in found.ranges
            ]
        return command.response(body=encode_body(body))
