"""What queues hold, and how far groups have come."""

from __future__ import annotations

import os
from typing import Final

from millstream.broker.broker import Broker
from millstream.broker.traffic import Flow
from millstream.model.group import FirstPosition
from millstream.model.operations import QueueRange
from millstream.model.topic import RETRY_PREFIX
from millstream.protocol.remoting.bodies import encode_topic_statistics
from millstream.protocol.remoting.codes import ResponseCode
from millstream.protocol.remoting.command import RemotingCommand
from millstream.protocol.remoting.consumption import encode_offset_table
from millstream.protocol.remoting.fields import integer, text
from millstream.transport.remoting_connection import Connection

__all__ = ["MAX_TOLD_PAIRS", "YOUNG_BYTES", "OffsetHandlers"]

MAX_TOLD_PAIRS: Final = 10_000
"""Pairs of group and topic whose offsets one request for all of them is told."""

_MEMORY_BYTES = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else 1 << 33
YOUNG_BYTES: Final = _MEMORY_BYTES * 2 // 5
"""Bytes at the end of the log that count as being in memory, as RocketMQ reckons: 40 % of the machine's."""


class OffsetHandlers:
    """Codes 14, 15, 29, 30, 31, 32, 43 and 202."""

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

    def all_positions(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        """The committed offsets of all groups, as far as `MAX_TOLD_PAIRS` goes."""
        positions, _ = self._broker.group_positions(MAX_TOLD_PAIRS)
        rows = ((held.group, held.topic, held.queue_id, held.committed) for held in positions)
        return command.response(body=encode_offset_table(rows, self._broker.clock.now_ms()))

    def earliest_stored(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        """-1 for a queue without messages."""
        stored_ms = self._broker.queues.first_stored_ms(text(command.ext, "topic"), integer(command.ext, "queueId"))
        return command.response(ext={"timestamp": str(-1 if stored_ms is None else stored_ms)})

    def topic_statistics(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        """All queues as of one moment: stream jobs cut their batches by this answer."""
        topic = text(command.ext, "topic")
        ranges = self._broker.queues.ranges(topic)
        rate = self._broker.traffic.rate(Flow.PUT, topic)
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
        config = None if topic == RETRY_PREFIX + group else self._broker.groups.find(group)
        if config is not None and config.first_position is not FirstPosition.FIRST:
            offset = self._broker.first_offset(config, topic, queue_id)
            # Kept at once, because the end of the queue would be another one at the next question.
            self._broker.commit_offset(group, topic, queue_id, offset)
            return offset
        held = self._range(command)
        if topic == RETRY_PREFIX + group:
            # What lies there is the group's own, wherever it wants to begin elsewhere.
            return held.min_offset
        # RocketMQ's rule: where nothing of the queue was deleted and all of it is young, a new group begins with all
        # of it; else its consumers choose.
        return 0 if held.min_offset == 0 and self._is_young(topic, queue_id) else None

    def _is_young(self, topic: str, queue_id: int) -> bool:
        store = self._broker.store
        found = store.entries(topic, queue_id, 0, 1)
        return not found or store.visible_log_offset - found[0].log_offset <= YOUNG_BYTES

    def _range(self, command: RemotingCommand) -> QueueRange:
        return self._broker.queues.range_of(text(command.ext, "topic"), integer(command.ext, "queueId"))
