"""What queues hold, and how far groups have come."""

from __future__ import annotations

from collections.abc import Awaitable, Iterable
from typing import Final

from millstream.broker.broker import Broker
from millstream.broker.remoting.answers import answer_soon
from millstream.broker.static_topics.queue_router import Soon
from millstream.broker.traffic import Flow
from millstream.model.operations import QueueRange
from millstream.protocol.remoting.bodies import encode_topic_statistics
from millstream.protocol.remoting.codes import ResponseCode
from millstream.protocol.remoting.command import RemotingCommand
from millstream.protocol.remoting.consumption import encode_offset_table
from millstream.protocol.remoting.fields import integer, text
from millstream.protocol.remoting.static_topics import LOGIC_BROKER_NAME, is_physical
from millstream.transport.remoting_connection import Connection

__all__ = ["MAX_TOLD_PAIRS", "OffsetHandlers"]

MAX_TOLD_PAIRS: Final = 10_000
"""Pairs of group and topic whose offsets one request for all of them is told."""


class OffsetHandlers:
    """Codes 14, 15, 29, 30, 31, 32, 43 and 202."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def max_offset(self, command: RemotingCommand, connection: Connection) -> Soon[RemotingCommand]:
        return answer_soon(self._range(command), lambda held: command.response(ext={"offset": str(held.max_offset)}))

    def min_offset(self, command: RemotingCommand, connection: Connection) -> Soon[RemotingCommand]:
        return answer_soon(self._range(command), lambda held: command.response(ext={"offset": str(held.min_offset)}))

    def offset_by_time(self, command: RemotingCommand, connection: Connection) -> Soon[RemotingCommand]:
        ext = command.ext
        upper = ext.get("boundaryType", "LOWER").upper() == "UPPER"
        topic, queue_id, timestamp_ms = text(ext, "topic"), integer(ext, "queueId"), integer(ext, "timestamp")
        physical = is_physical(ext)
        found = self._broker.queues.offset_by_time(topic, queue_id, timestamp_ms, upper, physical=physical)
        return answer_soon(found, lambda offset: command.response(ext={"offset": str(offset)}))

    def all_positions(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        """The committed offsets of all groups, as far as `MAX_TOLD_PAIRS` goes."""
        positions, _ = self._broker.queues.all_offsets(MAX_TOLD_PAIRS)
        rows = ((held.group, held.topic, held.queue_id, held.committed) for held in positions)
        return command.response(body=encode_offset_table(rows, self._broker.clock.now_ms()))

    def earliest_stored(self, command: RemotingCommand, connection: Connection) -> Soon[RemotingCommand]:
        """-1 for a queue without messages."""
        ext = command.ext
        topic, queue_id = text(ext, "topic"), integer(ext, "queueId")
        found = self._broker.queues.first_stored_ms(topic, queue_id, physical=is_physical(ext))
        return answer_soon(
            found, lambda stored_ms: command.response(ext={"timestamp": str(-1 if stored_ms is None else stored_ms)})
        )

    def topic_statistics(self, command: RemotingCommand, connection: Connection) -> Soon[RemotingCommand]:
        """All queues as of one moment: stream jobs cut their batches by this answer.

        Of a static topic these are the broker's own ones, unless the field `lo` is "true": then each logic queue that
        the broker leads, as of the moment in which it was asked for.
        """
        topic = text(command.ext, "topic")
        ranges = self._broker.queues.ranges(topic, physical=command.ext.get("lo") != "true")
        if isinstance(ranges, Awaitable):
            return self._logic_statistics(command, topic, ranges)
        rate = self._broker.maintenance.traffic.rate(Flow.PUT, topic)
        return command.response(body=encode_topic_statistics(topic, self._broker.name, ranges, per_second=rate))

    async def _logic_statistics(
        self, command: RemotingCommand, topic: str, ranges: Awaitable[Iterable[QueueRange]]
    ) -> RemotingCommand:
        return command.response(body=encode_topic_statistics(topic, LOGIC_BROKER_NAME, await ranges))

    def query_consumer_offset(self, command: RemotingCommand, connection: Connection) -> Soon[RemotingCommand]:
        ext, queues = command.ext, self._broker.queues
        group, topic, queue_id = text(ext, "consumerGroup"), text(ext, "topic"), integer(ext, "queueId")
        find = queues.committed if ext.get("setZeroIfNotFound") == "false" else queues.committed_or_first

        def answer(offset: int | None) -> RemotingCommand:
            if offset is None:
                remark = f"Group {group} has no offset in queue {queue_id} of topic {topic}."
                return command.response(ResponseCode.QUERY_NOT_FOUND, remark=remark)
            return command.response(ext={"offset": str(offset)})

        return answer_soon(find(group, topic, queue_id, physical=is_physical(ext)), answer)

    def update_consumer_offset(self, command: RemotingCommand, connection: Connection) -> Soon[RemotingCommand]:
        ext = command.ext
        group, topic, queue_id = text(ext, "consumerGroup"), text(ext, "topic"), integer(ext, "queueId")
        offset = integer(ext, "commitOffset")
        done = self._broker.queues.commit(group, topic, queue_id, offset, physical=is_physical(ext))
        return answer_soon(done, lambda _: command.response())

    def _range(self, command: RemotingCommand) -> Soon[QueueRange]:
        ext = command.ext
        return self._broker.queues.range_of(text(ext, "topic"), integer(ext, "queueId"), physical=is_physical(ext))
