"""Looking into queues and positions, for whoever wants to know why something waits."""

from __future__ import annotations

import asyncio
from typing import Final

from millstream.broker.broker import Broker
from millstream.broker.remoting.clients import ConsumerRegistry
from millstream.broker.traffic import Flow
from millstream.model.errors import ConsumeRefused, NameRefused
from millstream.model.operations import QueueProgress
from millstream.protocol.remoting.administration.consumption import encode_consume_statistics
from millstream.protocol.remoting.administration.group_requests import (
    CorrectionQuery,
    GroupTopic,
    IndexQuery,
    ProgressOfAll,
)
from millstream.protocol.remoting.administration.inspection import (
    CorrectionOffsets,
    IndexEntryData,
    IndexEntryList,
    SubscriptionAnswer,
    TimeSpan,
    TimeSpans,
    encode_all_consume_statistics,
)
from millstream.protocol.remoting.bodies import encode_body
from millstream.protocol.remoting.command import RemotingCommand
from millstream.protocol.remoting.messages.offsets import decode_clone
from millstream.protocol.remoting.messages.queue_set import QueueName
from millstream.transport.remoting_connection import Connection

__all__ = ["MAX_INDEX_ENTRIES", "MAX_TOLD_BYTES", "InspectionHandlers"]

MAX_INDEX_ENTRIES: Final = 1000
"""Entries of a queue that one request is told at most."""

MAX_TOLD_BYTES: Final = 15 * 1024 * 1024
"""Bytes of the positions of all groups that one request is told at most: a frame holds 16 MiB."""

_NO_BOUND: Final = 0x7FFF_FFFF_FFFF_FFFF
"""What RocketMQ says of a queue whose group has come farther than the one that it is compared with."""


class InspectionHandlers:
    """Codes 303, 308, 314, 317, 321 and 345."""

    def __init__(self, broker: Broker, consumers: ConsumerRegistry) -> None:
        self._broker = broker
        self._consumers = consumers

    def time_spans(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        """When each queue's first, last and last consumed message were stored, and for how long the next one waits."""
        call = GroupTopic.decode(command.ext)
        found = self._broker.queues.own_progress(call.group, call.topic)
        return command.response(body=encode_body(TimeSpans([self._time_span(item) for item in found])))

    def _time_span(self, item: QueueProgress) -> TimeSpan:
        store = self._broker.maintenance.store
        first = store.entries(item.topic, item.queue_id, item.min_offset, 1)
        first_ms = store.stored_ms(first[0]) if first else -1
        return TimeSpan(
            QueueName(item.topic, self._broker.name, item.queue_id),
            min_time_stamp=first_ms,
            max_time_stamp=store.last_store_timestamp_ms(item.topic, item.queue_id) or -1,
            consume_time_stamp=item.consumed_ms or first_ms,
            delay_time=max(self._broker.clock.now_ms() - item.oldest_ms, 0) if item.oldest_ms else 0,
        )

    def correction_offsets(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        """The smallest offset that any group has in each queue, or no bound where the compared group is behind it."""
        call = CorrectionQuery.decode(command.ext)
        topic = call.topic
        queues = self._broker.queues
        smallest: dict[int, int] = {}
        for group in queues.readers(topic):
            if group not in call.left_out:
                for queue_id, offset in queues.own_offsets(group, topic).items():
                    smallest[queue_id] = min(offset, smallest.get(queue_id, offset))
        for queue_id, offset in queues.own_offsets(call.compared, topic).items():
            if smallest.get(queue_id, offset) > offset:
                smallest[queue_id] = _NO_BOUND
        return command.response(body=encode_body(CorrectionOffsets(smallest)))

    def clone_offsets(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        call = decode_clone(command.ext)
        self._broker.queues.clone_offsets(call.source, call.target, call.topic)
        return command.response()

    async def all_progress(self, command: RemotingCommand, _connection: Connection) -> RemotingCommand:
        """How far all groups are in all topics; others get their turn after each group."""
        broker, only_ordered = self._broker, ProgressOfAll.decode(command.ext).only_ordered
        told: list[tuple[str, bytes]] = []
        behind = in_flight = size_bytes = 0
        for group in broker.groups.all():
            if broker.groups.find(group.name) is None:
                continue
            for topic in broker.queues.topics_of(group.name):
                if only_ordered and not broker.topics.get(topic).ordered:
                    continue
                found = broker.queues.own_progress(group.name, topic)
                behind += sum(item.max_offset - item.committed for item in found)
                in_flight += sum(item.next_offset - item.committed for item in found)
                rate = broker.maintenance.traffic.rate(Flow.GET, topic, group.name)
                told.append((group.name, encode_consume_statistics(broker.name, found, per_second=rate)))
                size_bytes += len(told[-1][1])
            if size_bytes > MAX_TOLD_BYTES:
                raise ConsumeRefused("TOO_MANY_REQUESTS", "There are too many positions.", remedy="Ask by group.")
            await asyncio.sleep(0)
        address = f"{broker.advertised.host}:{broker.advertised.port}"
        return command.response(body=encode_all_consume_statistics(told, address, behind, in_flight))

    def index_entries(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        """Entries of a queue as they stand in its index, from a queue offset on."""
        call = IndexQuery.decode(command.ext)
        topic, queue_id, count = call.topic, call.queue_id, call.count
        if not 1 <= count <= MAX_INDEX_ENTRIES:
            raise NameRefused("ILLEGAL_SETTING", f"The request asks for {count} entries; 1 to {MAX_INDEX_ENTRIES}.")
        held = self._broker.queues.own_range(topic, queue_id)
        entries = self._broker.queues.own_entries(topic, queue_id, max(call.first, 0), count)
        found = [IndexEntryData(entry.log_offset, entry.size_bytes, entry.tags_code) for entry in entries]
        subscription = self._consumers.subscription(call.group, topic)
        answer = IndexEntryList(found, held.max_offset, held.min_offset, subscription)
        return command.response(body=encode_body(answer))

    def subscription(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        """What the members of a group want of a topic; null where none is there. Raises GROUP_NOT_FOUND."""
        call = GroupTopic.decode(command.ext)
        group, topic = self._broker.groups.get(call.group).name, call.topic
        answer = SubscriptionAnswer(group, topic, self._consumers.subscription(group, topic))
        return command.response(body=encode_body(answer))
