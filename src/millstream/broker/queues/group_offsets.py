"""Reports and resets the offsets of consumer groups."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from millstream.broker.queues.consumer_groups import GroupRegistry
from millstream.broker.queues.long_polling import LongPolls
from millstream.broker.queues.offsets import OffsetTable
from millstream.broker.queues.reader import Reader, outside
from millstream.broker.queues.topics import TopicRegistry
from millstream.model.clock import Clock
from millstream.model.errors import NameRefused
from millstream.model.group import GroupConfig
from millstream.model.light_queue import is_light_queue
from millstream.model.operations import QueuePoint, QueueProgress, QueueRange, QueueReset, ResetRequest

__all__ = ["GroupOffsets"]


@dataclass(frozen=True, slots=True)
class GroupOffsets:
    """The positions of all groups; every call is from the event loop's thread."""

    topics: TopicRegistry
    groups: GroupRegistry
    offsets: OffsetTable
    reader: Reader
    polls: LongPolls
    clock: Clock

    def progress(self, group: str, topic: str | None = None) -> list[QueueProgress]:
        """How far the group is in each readable queue of the topic, or of all topics in which it has a position.

        The group of a light queue need not have settings of its own. Raises GROUP_NOT_FOUND, TOPIC_NOT_FOUND.
        """
        if topic is not None and is_light_queue(topic):
            config = self.groups.find(group) or GroupConfig(group)
        else:
            config = self.groups.look_up(group)
        names = self.topics_of(group) if topic is None else [topic]
        return [
            self._progress(config, name, queue_id)
            for name in names
            for queue_id in range(self.topics.get(name).read_queues)
        ]

    def progress_of(self, group: str, topic: str, queue_id: int) -> QueueProgress:
        """How far the group is in one queue. Raises GROUP_NOT_FOUND."""
        return self._progress(self.groups.get(group), topic, queue_id)

    def topics_of(self, group: str) -> list[str]:
        """The topics in which the group has a position, and its AMQP queue, which waits for it from the start; sorted.

        Without lite topics, of which there may be many.
        """
        found = {topic for topic, _ in self.offsets.places(group) if self.topics.find(topic) is not None}
        return sorted(found.union(self.topics.light_queues_of(group)))

    def readers(self, topic: str) -> list[str]:
        """The groups that have a position in the topic, sorted."""
        return self.offsets.readers(topic)

    def committed_offsets(self, group: str, topic: str) -> dict[int, int]:
        """The offset up to which the group has consumed each queue of the topic that it has a position in."""
        places = (queue_id for name, queue_id in self.offsets.places(group) if name == topic)
        found = ((queue_id, self.offsets.committed_offset(group, topic, queue_id)) for queue_id in places)
        return {queue_id: offset for queue_id, offset in found if offset is not None}

    def restore(self, group: str, positions: Mapping[str, Mapping[int, int]]) -> None:
        """Keep offsets by topic and queue that a group had; on the disk when this returns."""
        for topic, queues in positions.items():
            if self.topics.find(topic) is not None:
                for queue_id, offset in queues.items():
                    self.offsets.commit(group, topic, queue_id, offset)
        if positions:
            self.offsets.write_changes()

    def clone(self, source: str, target: str, topic: str | None = None) -> None:
        """Put `target` where `source` is, in one topic or in all that it has a position in; on the disk when done.

        What `target` has in flight there is discarded. Raises GROUP_NOT_FOUND, TOPIC_NOT_FOUND.
        """
        self.groups.get(source)
        self.groups.ensure(target)
        topics = self.topics_of(source) if topic is None else [self.topics.get(topic).name]
        moves = [(name, *move) for name in topics for move in self.committed_offsets(source, name).items()]
        for name, queue_id, offset in moves:
            self.offsets.reset(target, name, queue_id, offset, self.clock.now_ms())
        if moves:
            self.offsets.write_changes()
        for name, queue_id, _ in moves:
            self.polls.wake_group(target, name, queue_id)

    def reset(self, request: ResetRequest) -> list[QueueReset]:
        """Put the group to another place; it is on the disk when this returns.

        Deliveries in flight are discarded: their handles are invalid, their messages come again if they lie behind the
        new place. Raises GROUP_NOT_FOUND, TOPIC_NOT_FOUND, QUEUE_NOT_FOUND, ILLEGAL_OFFSET: then nothing was changed.
        """
        queues = self.queues_of(request)
        return self.move(request, {one: self.find(request.topic, one, request.point, request.value) for one in queues})

    def queues_of(self, request: ResetRequest) -> list[int]:
        """The queues that a reset is about. Raises GROUP_NOT_FOUND, TOPIC_NOT_FOUND, QUEUE_NOT_FOUND."""
        self.groups.look_up(request.group)
        everywhere = range(self.topics.get(request.topic).read_queues)
        queues = [*everywhere] if request.queue_id is None else [request.queue_id]
        for queue_id in queues:
            self._check_readable(request.topic, queue_id)
        return queues

    def move(self, request: ResetRequest, targets: Mapping[int, int]) -> list[QueueReset]:
        """As `reset`, to these offsets by queue, wherever the request says. Raises GROUP_NOT_FOUND."""
        config = self.groups.look_up(request.group)
        done = []
        for queue_id, target in targets.items():
            before = self._progress(config, request.topic, queue_id)
            ledger = self.offsets.ledger(request.group, request.topic, queue_id)
            discarded = 0 if ledger is None else len(ledger.in_flight)
            self.offsets.reset(request.group, request.topic, queue_id, target, self.clock.now_ms())
            done.append(QueueReset(queue_id, before.committed, target, discarded))
        if done:
            self.offsets.write_changes()
        for one in done:
            self.polls.wake_group(request.group, request.topic, one.queue_id)
            self.polls.end_pulls(request.topic, one.queue_id)
        return done

    def find(self, topic: str, queue_id: int, point: QueuePoint, value: int = 0) -> int:
        """The offset of a place. Raises TOPIC_NOT_FOUND, QUEUE_NOT_FOUND, ILLEGAL_OFFSET (outside of the queue)."""
        self._check_readable(topic, queue_id)
        store = self.reader.store
        first, last = store.min_offset(topic, queue_id), store.max_offset(topic, queue_id)
        match point:
            case QueuePoint.FIRST:
                return first
            case QueuePoint.LAST:
                return last
            case QueuePoint.TIME:
                return store.offset_by_time(topic, queue_id, value)
            case QueuePoint.OFFSET:
                if not first <= value <= last:
                    raise outside(topic, QueueRange(queue_id, first, last, 0), value)
                return value

    def _check_readable(self, topic: str, queue_id: int) -> None:
        count = self.topics.get(topic).read_queues
        if not 0 <= queue_id < count:
            words = f"The topic {topic!r} has {count} readable queues; {queue_id} is none of them."
            raise NameRefused("QUEUE_NOT_FOUND", words)

    def _progress(self, group: GroupConfig, topic: str, queue_id: int) -> QueueProgress:
        store = self.reader.store
        first, last = store.min_offset(topic, queue_id), store.max_offset(topic, queue_id)
        ledger = self.offsets.ledger(group.name, topic, queue_id)
        committed = self.offsets.committed_offset(group.name, topic, queue_id)
        if committed is None:
            committed = self.reader.first_offset(group, topic, queue_id)
        committed = max(committed, first)
        cursor = committed if ledger is None else max(ledger.cursor, first)
        held = [] if ledger is None else ledger.in_flight
        now_ms = self.clock.now_ms()
        hidden = sum(1 for delivery in held if delivery.pop_time_ms and delivery.visible_ms > now_ms)
        ready = max(last - cursor, 0) + len(held) - hidden
        return QueueProgress(
            topic=topic,
            queue_id=queue_id,
            min_offset=first,
            max_offset=last,
            committed=committed,
            next_offset=cursor,
            ready=ready,
            in_flight=hidden,
            oldest_ms=self._stored_ms(topic, queue_id, committed) if ready + hidden else 0,
            consumed_ms=self._stored_ms(topic, queue_id, committed - 1) if committed > first else 0,
        )

    def _stored_ms(self, topic: str, queue_id: int, queue_offset: int) -> int:
        return self.reader.store.stored_ms_at(topic, queue_id, queue_offset)
