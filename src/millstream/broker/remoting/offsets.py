"""Requests about the offsets of queues and of consumer groups.

Answers made of a value that is there, or that comes from another broker.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Final, TypeVar

from millstream.broker.broker import Broker
from millstream.broker.queues.reads import QueueReads, Soon
from millstream.model.operations import QueueRange
from millstream.protocol.remoting.administration.consumption import encode_offset_table
from millstream.protocol.remoting.administration.static_topics import LOGIC_BROKER_NAME
from millstream.protocol.remoting.administration.topic_requests import TopicStatistics
from millstream.protocol.remoting.bodies import encode_topic_statistics
from millstream.protocol.remoting.codes import ResponseCode
from millstream.protocol.remoting.command import RemotingCommand
from millstream.protocol.remoting.messages.offsets import (
    decode_group_offset,
    decode_offset_query,
    decode_queue,
    decode_time,
)
from millstream.transport.remoting_connection import Connection

__all__ = ["MAX_TOLD_PAIRS", "OffsetHandlers", "RangeHandlers", "answer_soon"]

_T = TypeVar("_T")


def answer_soon(value: Soon[_T], to_answer: Callable[[_T], RemotingCommand]) -> Soon[RemotingCommand]:
    """The answer made of the value: at once where the value is there, so that no task is needed."""
    if isinstance(value, Awaitable):
        return _answer(value, to_answer)
    return to_answer(value)


async def _answer(value: Awaitable[_T], to_answer: Callable[[_T], RemotingCommand]) -> RemotingCommand:
    return to_answer(await value)


MAX_TOLD_PAIRS: Final = 10_000
"""Pairs of group and topic whose offsets one request for all of them is told."""


class RangeHandlers:
    """Codes 29, 30, 31, 32 and 202. `put_rate` is how many messages a second come to a topic."""

    def __init__(self, queues: QueueReads, name: str, put_rate: Callable[[str], float]) -> None:
        self._queues = queues
        self._name = name
        self._put_rate = put_rate

    def max_offset(self, command: RemotingCommand, connection: Connection) -> Soon[RemotingCommand]:
        return answer_soon(self._range(command), lambda held: command.response(ext={"offset": str(held.max_offset)}))

    def min_offset(self, command: RemotingCommand, connection: Connection) -> Soon[RemotingCommand]:
        return answer_soon(self._range(command), lambda held: command.response(ext={"offset": str(held.min_offset)}))

    def offset_by_time(self, command: RemotingCommand, connection: Connection) -> Soon[RemotingCommand]:
        call = decode_time(command.ext)
        found = self._queues.offset_by_time(
            call.topic, call.queue_id, call.timestamp_ms, call.upper, physical=call.is_physical
        )
        return answer_soon(found, lambda offset: command.response(ext={"offset": str(offset)}))

    def earliest_stored(self, command: RemotingCommand, connection: Connection) -> Soon[RemotingCommand]:
        """-1 for a queue without messages."""
        call = decode_queue(command.ext)
        found = self._queues.first_stored_ms(call.topic, call.queue_id, physical=call.is_physical)
        return answer_soon(
            found, lambda stored_ms: command.response(ext={"timestamp": str(-1 if stored_ms is None else stored_ms)})
        )

    def topic_statistics(self, command: RemotingCommand, connection: Connection) -> Soon[RemotingCommand]:
        """All queues as of one moment: stream jobs cut their batches by this answer.

        Of a static topic these are the broker's own ones, unless the field `lo` is "true": then each logic queue that
        the broker leads, as of the moment in which it was asked for.
        """
        call = TopicStatistics.decode(command.ext)
        topic = call.topic
        ranges = self._queues.ranges(topic, physical=not call.is_logic)
        if isinstance(ranges, Awaitable):
            return self._logic_statistics(command, topic, ranges)
        rate = self._put_rate(topic)
        return command.response(body=encode_topic_statistics(topic, self._name, ranges, per_second=rate))

    async def _logic_statistics(
        self, command: RemotingCommand, topic: str, ranges: Awaitable[Iterable[QueueRange]]
    ) -> RemotingCommand:
        return command.response(body=encode_topic_statistics(topic, LOGIC_BROKER_NAME, await ranges))

    def _range(self, command: RemotingCommand) -> Soon[QueueRange]:
        call = decode_queue(command.ext)
        return self._queues.range_of(call.topic, call.queue_id, physical=call.is_physical)


class OffsetHandlers:
    """Codes 14, 15 and 43."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def all_positions(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        """The committed offsets of all groups, as far as `MAX_TOLD_PAIRS` goes."""
        positions, _ = self._broker.queues.all_offsets(MAX_TOLD_PAIRS)
        rows = ((held.group, held.topic, held.queue_id, held.committed) for held in positions)
        return command.response(body=encode_offset_table(rows, self._broker.clock.now_ms()))

    def query_consumer_offset(self, command: RemotingCommand, connection: Connection) -> Soon[RemotingCommand]:
        call, queues = decode_offset_query(command.ext), self._broker.queues
        group, topic, queue_id = call.group, call.topic, call.queue_id
        find = queues.committed_or_first if call.or_first else queues.committed_offset

        def answer(offset: int | None) -> RemotingCommand:
            if offset is None:
                remark = f"Group {group} has no offset in queue {queue_id} of topic {topic}."
                return command.response(ResponseCode.QUERY_NOT_FOUND, remark=remark)
            return command.response(ext={"offset": str(offset)})

        return answer_soon(find(group, topic, queue_id, physical=call.is_physical), answer)

    def update_consumer_offset(self, command: RemotingCommand, connection: Connection) -> Soon[RemotingCommand]:
        call = decode_group_offset(command.ext)
        done = self._broker.queues.commit(
            call.group, call.topic, call.queue_id, call.queue_offset, physical=call.is_physical
        )
        return answer_soon(done, lambda _: command.response())
