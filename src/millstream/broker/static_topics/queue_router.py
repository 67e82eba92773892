"""Queues as clients see them: one interface over physical queues and the logic queues of static topics."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from millstream.broker.queues.consumer_groups import GroupRegistry
from millstream.broker.queues.group_offsets import GroupOffsets
from millstream.broker.queues.offsets import GroupPosition, OffsetTable
from millstream.broker.queues.pull_reader import PullReader
from millstream.broker.queues.puller import QueuePuller
from millstream.broker.queues.reader import Queues
from millstream.broker.queues.reads import Soon
from millstream.broker.queues.ready_bytes import ReadyBytes
from millstream.broker.queues.topics import RETRY_PREFIX, TopicRegistry
from millstream.broker.static_topics.logic_queues import LogicQueues
from millstream.broker.statistics import Statistics
from millstream.model.group import FirstPosition, GroupConfig
from millstream.model.logic_queue import TopicMapping
from millstream.model.operations import (
    PullRequest,
    PullResult,
    PullStatus,
    QueuePoint,
    QueueProgress,
    QueueRange,
    QueueReset,
    ResetRequest,
)
from millstream.model.topic import Permission, TopicConfig
from millstream.protocol.remoting.administration.static_topics import mapping_info
from millstream.protocol.remoting.bodies import QueueData, TopicRouteData
from millstream.store.consume_queue import IndexEntry
from millstream.transport.late_answers import AnswerPacing

__all__ = ["MEMORY_BYTES", "YOUNG_BYTES", "QueueRouter", "Soon"]

MEMORY_BYTES: Final = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else 1 << 33
"""Bytes of memory that the machine has."""

YOUNG_BYTES: Final = MEMORY_BYTES * 2 // 5
"""Bytes at the end of the log that count as being in memory, as RocketMQ reckons: 40 % of the machine's."""


_READ: Final = int(Permission.READ)


@dataclass(frozen=True, slots=True)
class QueueRouter:
    """The queues of all topics and the offsets of groups in them. It picks the queue that a request means.

    A queue of a static topic is a logic one, except where `physical` names the broker's own queue of that number.
    The methods `own_...` are always about the broker's own queues. Every call is from the event loop's thread and
    raises TOPIC_NOT_FOUND and QUEUE_NOT_FOUND; those about logic queues NOT_LEADER_FOR_QUEUE and SEGMENT_UNREACHABLE
    as well.
    """

    broker_name: str
    topics: TopicRegistry
    groups: GroupRegistry
    queues: Queues
    puller: QueuePuller
    offsets: OffsetTable
    group_offsets: GroupOffsets
    logic: LogicQueues
    statistics: Statistics
    ready_bytes: ReadyBytes

    def _is_logic(self, topic: str, physical: bool) -> bool:
        return not physical and self.logic.is_static(topic)

    # Reading

    async def pull(
        self, request: PullRequest, *, physical: bool = False, pace: AnswerPacing | None = None
    ) -> PullResult:
        """Read a queue from an offset; see `QueuePuller.pull`. The group is created if it is missing and may be.

        A group that was reset is told once where to go on, as OFFSET_ILLEGAL. Raises GROUP_DISABLED as well.
        """
        self.groups.ensure_enabled(request.group)
        is_logic = self._is_logic(request.topic, physical)
        if is_logic:
            result = await self.logic.pull(request)
        else:
            result = self._find_move(request) or await self.puller.pull(request, pace)
        if result.records:
            topic = self.topics.find(request.topic)
            self.statistics.note_pulled(request, result, holds_batches=topic is not None and topic.holds_batches)
            return result
        return result if is_logic else self._find_move(request) or result

    def pull_now(self, request: PullRequest, *, physical: bool = False) -> PullResult | None:
        """As `pull`, without a task, where the answer needs no waiting; None where it does."""
        self.groups.ensure_enabled(request.group)
        if self._is_logic(request.topic, physical):
            return None
        result = self._find_move(request) or self.puller.pull_now(request)
        if result is not None and result.records:
            topic = self.topics.find(request.topic)
            self.statistics.note_pulled(request, result, holds_batches=topic is not None and topic.holds_batches)
        return result

    def open_run(self, group: str, topic: str) -> PullReader | None:
        """What reads many times in this turn for pulls that take all messages; None where each has to look itself."""
        reads, config = self.groups.find(group), self.topics.find(topic)
        if reads is None or not reads.enabled or config is None or config.holds_batches or self.logic.is_static(topic):
            return None
        queues = config.read_queues if int(config.permission) & _READ else 0
        return PullReader(self.queues.store, self.offsets, self.statistics.outgoing, group, topic, queues)

    def _find_move(self, request: PullRequest) -> PullResult | None:
        """Where to go on after a reset, which may come while the request waits as well."""
        moved = self.offsets.take_reset(request.group, request.topic, request.queue_id)
        if moved is None or moved == request.queue_offset:
            return None
        store = self.queues.store
        first = store.min_offset(request.topic, request.queue_id)
        last = store.max_offset(request.topic, request.queue_id)
        return PullResult(PullStatus.OFFSET_ILLEGAL, moved, first, last)

    async def find_by_key(
        self, topic: str, key: str, begin_ms: int, end_ms: int, max_results: int
    ) -> list[bytes | memoryview]:
        """Records of the topic with the key or unique key, stored in that time, newest first; 64 at most."""
        return self.logic.renumber(topic, await self.queues.find_by_key(topic, key, begin_ms, end_ms, max_results))

    def record_at(self, log_offset: int) -> bytes | memoryview | None:
        """The record that begins at an offset of the log; None where none begins there, or it is damaged.

        Nor are records of the broker's own state shown, among which are users' secrets.
        """
        return self.queues.record_at(log_offset)

    def find_record(self, log_offset: int) -> Soon[bytes | memoryview | None]:
        """As `record_at`, also in the object store. Raises what that raises."""
        record = self.queues.record_at(log_offset)
        if record is not None or self.queues.store.cold is None:
            return record
        return self.queues.find_cold_record(log_offset)

    @property
    def visible_log_offset(self) -> int:
        """Up to where in the log messages are shown."""
        return self.queues.store.visible_log_offset

    def check_group(self, group: str) -> None:
        """Refuse a group that may not read: GROUP_DISABLED. It is created if it is missing and may be."""
        self.groups.ensure_enabled(group)

    def backlog_bytes(self, topic: str, queue_id: int, queue_offset: int, *, physical: bool = False) -> int:
        """Bytes of the broker's log from there on; 0 for a logic queue, which may lie at several brokers."""
        if self._is_logic(topic, physical):
            return 0
        return self.queues.backlog_bytes(topic, queue_id, queue_offset)

    def own_entries(self, topic: str, queue_id: int, queue_offset: int, max_count: int) -> Sequence[IndexEntry]:
        """Entries of an own queue from an offset on, as they stand in its index."""
        return self.queues.store.entries(topic, queue_id, queue_offset, max_count)

    # What there is

    def list_offered(self, topic: str) -> list[tuple[int, Permission]]:
        """The queues that clients may use at this broker, with what they may do with each."""
        config, mapping = self.topics.get(topic), self.topics.mapping(topic)
        if mapping is not None:
            both = config.permission & (Permission.READ | Permission.WRITE)
            return [(number, both) for number in mapping.led_queues]
        return [(queue_id, _permission(config, queue_id)) for queue_id in range(config.queues)]

    def is_readable(self, topic: str, queue_id: int) -> bool:
        """Whether clients may name the queue of what they got; of a static topic any, its queues come and go."""
        return 0 <= queue_id < self.topics.get(topic).read_queues or self.logic.is_static(topic)

    async def route(self, topic: str) -> TopicRouteData | None:
        """Where the topic's queues lie, on all brokers where there are others; None for a topic that nobody has."""
        peers = self.logic.segments.peers
        if peers is not None:
            return await peers.route(topic)
        config, mapping = self.topics.find(topic), self.topics.mapping(topic)
        if config is None:
            return None
        data = QueueData(self.broker_name, config.read_queues, config.write_queues, int(config.permission))
        mappings = {} if mapping is None else {self.broker_name: mapping_info(mapping)}
        return TopicRouteData([], [data], topic_queue_mapping_by_broker=mappings)

    async def change_static(self, config: TopicConfig, mapping: TopicMapping, *, force: bool = False) -> None:
        """Create or change a static topic; see `LogicQueues.change`."""
        await self.logic.change(config, mapping, force=force)

    def ranges(self, topic: str, *, physical: bool = False) -> Soon[list[QueueRange]]:
        """What can be read of each queue: of own queues all as of one moment, of logic ones those led here."""
        if self._is_logic(topic, physical):
            return self.logic.reader.ranges(topic)
        return self.queues.ranges(topic)

    def range_of(self, topic: str, queue_id: int, *, physical: bool = False) -> Soon[QueueRange]:
        """What can be read of one queue."""
        if self._is_logic(topic, physical):
            return self.logic.reader.range_of(topic, queue_id)
        return self.queues.range_of(topic, queue_id)

    def own_range(self, topic: str, queue_id: int) -> QueueRange:
        """What can be read of one own queue."""
        return self.queues.range_of(topic, queue_id)

    def offset_by_time(
        self, topic: str, queue_id: int, timestamp_ms: int, upper: bool = False, *, physical: bool = False
    ) -> Soon[int]:
        """The first offset stored at or after the time; `upper`: the last one stored at or before it."""
        if self._is_logic(topic, physical):
            return self.logic.reader.offset_by_time(topic, queue_id, timestamp_ms, upper)
        if self.queues.store.cold is not None:
            return self.queues.find_time(topic, queue_id, timestamp_ms, upper)
        return self.queues.offset_by_time(topic, queue_id, timestamp_ms, upper)

    def first_stored_ms(self, topic: str, queue_id: int, *, physical: bool = False) -> Soon[int | None]:
        """When the first readable message of the queue was stored; None where there is none."""
        if self._is_logic(topic, physical):
            return self.logic.reader.first_stored_ms(topic, queue_id)
        return self.queues.first_stored_ms(topic, queue_id)

    def find_offset(self, topic: str, queue_id: int, point: QueuePoint, value: int = 0) -> Soon[int]:
        """The offset of a place in a readable queue. Raises ILLEGAL_OFFSET where it is outside of the queue."""
        if self.logic.is_static(topic):
            return self.logic.group_offsets.find(topic, queue_id, point, value)
        if point is QueuePoint.TIME and self.queues.store.cold is not None:
            self.group_offsets.find(topic, queue_id, QueuePoint.FIRST)
            return self.queues.find_time(topic, queue_id, value)
        return self.group_offsets.find(topic, queue_id, point, value)

    # Offsets of groups

    def committed_offset(self, group: str, topic: str, queue_id: int, *, physical: bool = False) -> Soon[int | None]:
        """The offset up to which the group has consumed the queue, None if it never did anything there."""
        if self._is_logic(topic, physical):
            return self.logic.group_offsets.committed_offset(group, topic, queue_id)
        return self.offsets.committed_offset(group, topic, queue_id)

    def committed_or_first(self, group: str, topic: str, queue_id: int, *, physical: bool = False) -> Soon[int | None]:
        """As `committed`; for a group that never did anything there the offset at which it is to begin.

        That is kept at once where the group's settings say so, because the end of the queue will be another one. As
        in RocketMQ, a group that begins with the first message gets 0 where nothing of the queue was deleted and all
        of it is young; else None: its consumers choose.
        """
        if self._is_logic(topic, physical):
            return self._logic_committed_or_first(group, topic, queue_id)
        offset = self.offsets.committed_offset(group, topic, queue_id)
        return self._first(group, topic, queue_id) if offset is None else offset

    async def _find_first(self, group: GroupConfig, topic: str, queue_id: int) -> int:
        offset = await self.group_offsets.reader.find_first_offset(group, topic, queue_id)
        # Another consumer of the group may have begun meanwhile.
        begun = self.offsets.committed_offset(group.name, topic, queue_id)
        if begun is None:
            self._commit(group.name, topic, queue_id, offset)
        return offset if begun is None else begun

    def _first(self, group: str, topic: str, queue_id: int) -> Soon[int | None]:
        is_retry = topic == RETRY_PREFIX + group
        config = None if is_retry else self.groups.find(group)
        if config is not None and config.first_position is not FirstPosition.FIRST:
            self.queues.check(topic, queue_id)
            if config.first_position is FirstPosition.TIME and self.queues.store.cold is not None:
                return self._find_first(config, topic, queue_id)
            offset = self.group_offsets.reader.first_offset(config, topic, queue_id)
            self._commit(group, topic, queue_id, offset)
            return offset
        held = self.queues.range_of(topic, queue_id)
        if is_retry:
            # What lies there is the group's own, wherever it wants to begin elsewhere.
            return held.min_offset
        return 0 if held.min_offset == 0 and self._is_young(topic, queue_id) else None

    def _is_young(self, topic: str, queue_id: int) -> bool:
        store = self.queues.store
        if store.is_away(topic, queue_id, 0):
            return False
        found = store.entries(topic, queue_id, 0, 1)
        return not found or store.visible_log_offset - found[0].log_offset <= YOUNG_BYTES

    async def _logic_committed_or_first(self, group: str, topic: str, number: int) -> int | None:
        group_offsets = self.logic.group_offsets
        offset = await group_offsets.committed_offset(group, topic, number)
        if offset is not None:
            return offset
        config = self.groups.find(group)
        if config is not None and config.first_position is not FirstPosition.FIRST:
            offset = await group_offsets.first_offset(config, topic, number)
            await group_offsets.commit(group, topic, number, offset)
            return offset
        held = await self.logic.reader.range_of(topic, number)
        return 0 if held.min_offset == 0 else None

    def commit(self, group: str, topic: str, queue_id: int, queue_offset: int, *, physical: bool = False) -> Soon[None]:
        """Set the group's offset; negative ones are passed over. Where the group pops, it only moves forward.
        After a reset commits are passed over until the group's next pull.

        Raises GROUP_NOT_FOUND, and ILLEGAL_OFFSET behind the queue's end: the group would never get the messages to
        come.
        """
        if self._is_logic(topic, physical):
            self.groups.ensure(group)
            return self.logic.group_offsets.commit(group, topic, queue_id, queue_offset)
        self._commit(group, topic, queue_id, queue_offset)
        return None

    def _commit(self, group: str, topic: str, queue_id: int, queue_offset: int) -> None:
        self.queues.check_offset(topic, queue_id, queue_offset)
        self.groups.ensure(group)
        self.offsets.commit(group, topic, queue_id, queue_offset)

    def progress(self, group: str, topic: str, *, physical: bool = False) -> Soon[list[QueueProgress]]:
        """How far the group is in each readable queue of the topic. Raises GROUP_NOT_FOUND."""
        if self._is_logic(topic, physical):
            return self.logic.group_offsets.progress(group, topic)
        return self.group_offsets.progress(group, topic)

    async def measure_progress(self, group: str, topic: str) -> list[QueueProgress]:
        """The same of own queues, and of a light queue with the bytes that are ready."""
        return await self.ready_bytes.measure(group, topic)

    def reset(self, request: ResetRequest, *, physical: bool = False) -> Soon[list[QueueReset]]:
        """Put the group to another place; it is on the disk when this returns, or is awaited.

        Deliveries in flight are discarded: their handles are invalid, their messages come again if they lie behind the
        new place. Raises GROUP_NOT_FOUND, ILLEGAL_OFFSET: then nothing was changed.
        """
        if self._is_logic(request.topic, physical):
            return self.logic.reset(request)
        if request.point is QueuePoint.TIME and self.queues.store.cold is not None:
            return self._reset_to_time(request)
        return self.group_offsets.reset(request)

    async def _reset_to_time(self, request: ResetRequest) -> list[QueueReset]:
        """As `reset` where older messages may lie in the object store, which is asked before anything is changed."""
        queues = self.group_offsets.queues_of(request)
        found = await asyncio.gather(
            *(self.queues.find_time(request.topic, queue_id, request.value) for queue_id in queues)
        )
        return self.group_offsets.move(request, dict(zip(queues, found, strict=True)))

    def own_progress(self, group: str, topic: str | None = None) -> list[QueueProgress]:
        """How far the group is in each readable own queue of the topic, or of all topics that it has an offset in.

        Raises GROUP_NOT_FOUND.
        """
        return self.group_offsets.progress(group, topic)

    def own_offset(self, group: str, topic: str, queue_id: int) -> int | None:
        """The offset up to which the group has consumed an own queue."""
        return self.offsets.committed_offset(group, topic, queue_id)

    def own_offsets(self, group: str, topic: str) -> dict[int, int]:
        """The same by queue, for all own queues of the topic that the group has an offset in."""
        return self.group_offsets.committed_offsets(group, topic)

    def all_offsets(self, max_pairs: int) -> tuple[list[GroupPosition], int]:
        """The offsets of all groups in own queues, for `max_pairs` of group and topic; how many were left out."""
        return self.offsets.positions(max_pairs)

    def topics_of(self, group: str) -> list[str]:
        """The topics in which the group has an offset, sorted; without lite topics, of which there may be many."""
        return self.group_offsets.topics_of(group)

    def readers(self, topic: str) -> list[str]:
        """The groups that have an offset in the topic, sorted."""
        return self.group_offsets.readers(topic)

    def clone_offsets(self, source: str, target: str, topic: str | None = None) -> None:
        """Put the group `target` where `source` is; see `GroupOffsets.clone`."""
        self.group_offsets.clone(source, target, topic)

    def offsets_by_topic(self, group: str) -> dict[str, dict[int, int]]:
        """All offsets of the group in own queues, for `restore_offsets`."""
        return {
            topic: self.group_offsets.committed_offsets(group, topic) for topic in self.group_offsets.topics_of(group)
        }

    def restore_offsets(self, group: str, offsets: dict[str, dict[int, int]]) -> None:
        """Keep the offsets that a group had; on the disk when this returns."""
        self.group_offsets.restore(group, offsets)


def _permission(config: TopicConfig, queue_id: int) -> Permission:
    """Queues beyond the readable ones can only be written, and the other way round."""
    permission = config.permission & (Permission.READ | Permission.WRITE)
    if queue_id >= config.read_queues:
        permission &= ~Permission.READ
    if queue_id >= config.write_queues:
        permission &= ~Permission.WRITE
    return permission
