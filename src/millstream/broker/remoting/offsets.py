"""What queues hold, and how far groups have come."""

from __future__ import annotations

from millstream.broker.broker import Broker
from millstream.broker.traffic import Flow
from millstream.broker.traffic_history import MINUTE_MS
from millstream.model.group import FirstPosition
from millstream.model.operations import QueueRange
from millstream.protocol.remoting.bodies import encode_topic_statistics
from millstream.protocol.remoting.codes import ResponseCode
from millstream.protocol.remoting.command import RemotingCommand
from millstream.protocol.remoting.fields import integer, text
from millstream.transport.remoting_server import Connection

__all__ = ["OffsetHandlers"]


class OffsetHandlers:
    """Codes 14, 15, 29, 30, 31 and 202."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def max_offset(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        return command.response(ext={"offset": str(self._range(command).max_offset)})

    def min_offset(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        return command.response(ext={"offset": str(self._range(command).min_offset)})

    def offset_by_time(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        ext = command.ext
        upper = ext.get("boundaryType", "LOWER").upper() == "UPPER"
        topic, queue_id, timestamp_ms = text(ext, "topic"), integer(ext, "queueId"), integer(ext, "timestamp")
        offset = self._broker.queues.offset_by_time(topic, queue_id, timestamp_ms, upper)
        return command.response(ext={"offset": str(offset)})

    def topic_statistics(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        """All queues as of one moment: stream jobs cut their batches by this answer."""
        topic = text(command.ext, "topic")
        ranges = self._broker.queues.ranges(topic)
        rate = self._broker.traffic.growth(Flow.PUT, topic, "", MINUTE_MS).messages_per_s
        return command.response(body=encode_topic_statistics(topic, self._broker.name, ranges, per_second=rate))

    def query_consumer_offset(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        ext = command.ext
        group, topic, queue_id = text(ext, "consumerGroup"), text(ext, "topic"), integer(ext, "queueId")
        offset = self._broker.query_offset(group, topic, queue_id)
        if offset is None and ext.get("setZeroIfNotFound") != "false":
            offset = self._first_offset(command, group, topic, queue_id)
        if offset is None:
            remark = f"Group {group} has no offset in queue {queue_id} of topic {topic}."
            return command.response(ResponseCode.QUERY_NOT_FOUND, remark=remark)
        return command.response(ext={"offset": str(offset)})

    def update_consumer_offset(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        ext = command.ext
        self._broker.commit_offset(
            text(ext, "consumerGroup"), text(ext, "topic"), integer(ext, "queueId"), integer(ext, "commitOffset")
        )
        return command.response()

    def _first_offset(self, command: RemotingCommand, group: str, topic: str, queue_id: int) -> int | None:
        config = self._broker.groups.find(group)
        if config is not None and config.first_position is not FirstPosition.FIRST:
            offset = self._broker.first_offset(config, topic, queue_id)
            # Kept at once, because the end of the queue would be another one at the next question.
            self._broker.commit_offset(group, topic, queue_id, offset)
            return offset
        # RocketMQ's rule: where nothing of the queue was deleted, a new group begins with all of it.
        return 0 if self._range(command).min_offset == 0 else None

    def _range(self, command: RemotingCommand) -> QueueRange:
        return self._broker.queues.range_of(text(command.ext, "topic"), integer(command.ext, "queueId"))
