"""Limits what may be read: everything at a master, only confirmed messages at a replica."""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Protocol, TypeAlias, TypeVar

from millstream.broker.queues.consumer_groups import GroupRegistry
from millstream.broker.queues.pull_reader import PullReader
from millstream.broker.queues.puller import QueuePuller
from millstream.broker.queues.reader import Queues
from millstream.broker.queues.topics import TopicRegistry
from millstream.model.errors import ConnectionFailed, NameRefused
from millstream.model.operations import PullRequest, PullResult, QueueRange
from millstream.transport.late_answers import AnswerPacing

__all__ = ["QueueReads", "ReplicaQueues", "Soon"]

_T = TypeVar("_T")
Soon: TypeAlias = _T | Awaitable[_T]
"""A value of the broker's own queues is there at once, one of logic queues may have to come from other brokers.

So what a client commits before it closes its connection is committed, which a task would not be."""


class QueueReads(Protocol):
    """Queues to be read; `physical` names the broker's own queue of a number, where a static topic has others."""

    @property
    def visible_log_offset(self) -> int:
        """Up to where in the log messages are shown."""
        ...

    def check_group(self, group: str) -> None:
        """Refuse a group that may not read: GROUP_DISABLED."""
        ...

    async def pull(
        self, request: PullRequest, *, physical: bool = False, pace: AnswerPacing | None = None
    ) -> PullResult:
        """Read a queue from an offset; see `QueuePuller.pull`."""
        ...

    def pull_now(self, request: PullRequest, *, physical: bool = False) -> PullResult | None:
        """As `pull`, without a task, where the answer needs no waiting; None where it does."""
        ...

    def open_run(self, group: str, topic: str) -> PullReader | None:
        """What reads many times in this turn for pulls that take all messages; None where each pull has to look
        itself, as of logic queues, and for whatever `pull` would refuse."""
        ...

    def commit(self, group: str, topic: str, queue_id: int, queue_offset: int, *, physical: bool = False) -> Soon[None]:
        """Set the group's offset."""
        ...

    def backlog_bytes(self, topic: str, queue_id: int, queue_offset: int, *, physical: bool = False) -> int:
        """Bytes of the broker's log from there on."""
        ...

    async def find_by_key(
        self, topic: str, key: str, begin_ms: int, end_ms: int, max_results: int
    ) -> list[bytes | memoryview]:
        """Records of the topic with the key or unique key, stored in that time, newest first."""
        ...

    def find_record(self, log_offset: int) -> Soon[bytes | memoryview | None]:
        """The record that begins at an offset of the log, or began there and lies in the object store now."""
        ...

    def ranges(self, topic: str, *, physical: bool = False) -> Soon[list[QueueRange]]:
        """What can be read of each queue."""
        ...

    def range_of(self, topic: str, queue_id: int, *, physical: bool = False) -> Soon[QueueRange]:
        """What can be read of one queue."""
        ...

    def offset_by_time(
        self, topic: str, queue_id: int, timestamp_ms: int, upper: bool = False, *, physical: bool = False
    ) -> Soon[int]:
        """The first offset stored at or after the time; `upper`: the last one stored at or before it."""
        ...

    def first_stored_ms(self, topic: str, queue_id: int, *, physical: bool = False) -> Soon[int | None]:
        """When the first readable message of the queue was stored; None where there is none."""
        ...


@dataclass(frozen=True, slots=True)
class ReplicaQueues:
    """The queues of a replica, which shows what is confirmed and changes nothing: neither offsets nor groups.

    Logic queues and offsets of groups are the master's alone: NOT_MASTER.
    """

    topics: TopicRegistry
    groups: GroupRegistry
    queues: Queues
    puller: QueuePuller

    @property
    def visible_log_offset(self) -> int:
        """Up to where in the log messages are shown: the confirmed offset."""
        return self.queues.store.visible_log_offset

    def check_group(self, group: str) -> None:
        """Refuse a group that is switched off: GROUP_DISABLED. One that is not there reads as well."""
        config = self.groups.find(group)
        if config is not None and not config.enabled:
            raise NameRefused("GROUP_DISABLED", f"The consumer group {group!r} is switched off.")

    async def pull(
        self, request: PullRequest, *, physical: bool = False, pace: AnswerPacing | None = None
    ) -> PullResult:
        """As at a master."""
        self._check(request.topic, physical)
        self.check_group(request.group)
        return await self.puller.pull(request, pace)

    def pull_now(self, request: PullRequest, *, physical: bool = False) -> PullResult | None:
        """As at a master."""
        self._check(request.topic, physical)
        self.check_group(request.group)
        return self.puller.pull_now(request)

    def open_run(self, group: str, topic: str) -> PullReader | None:
        """A replica counts what it reads in another way."""
        return None

    def commit(self, group: str, topic: str, queue_id: int, queue_offset: int, *, physical: bool = False) -> None:
        """Offsets are kept by the master: NOT_MASTER."""
        raise ConnectionFailed("NOT_MASTER", f"A replica keeps no offsets; that of {group[:200]!r} was not kept.")

    def backlog_bytes(self, topic: str, queue_id: int, queue_offset: int, *, physical: bool = False) -> int:
        """As at a master."""
        self._check(topic, physical)
        return self.queues.backlog_bytes(topic, queue_id, queue_offset)

    async def find_by_key(
        self, topic: str, key: str, begin_ms: int, end_ms: int, max_results: int
    ) -> list[bytes | memoryview]:
        """As at a master."""
        self._check(topic, physical=False)
        return await self.queues.find_by_key(topic, key, begin_ms, end_ms, max_results)

    def find_record(self, log_offset: int) -> Soon[bytes | memoryview | None]:
        """As at a master."""
        record = self.queues.record_at(log_offset)
        if record is not None or self.queues.store.cold is None:
            return record
        return self.queues.find_cold_record(log_offset)

    def ranges(self, topic: str, *, physical: bool = False) -> list[QueueRange]:
        """As at a master."""
        self._check(topic, physical)
        return self.queues.ranges(topic)

    def range_of(self, topic: str, queue_id: int, *, physical: bool = False) -> QueueRange:
        """As at a master."""
        self._check(topic, physical)
        return self.queues.range_of(topic, queue_id)

    def offset_by_time(
        self, topic: str, queue_id: int, timestamp_ms: int, upper: bool = False, *, physical: bool = False
    ) -> Soon[int]:
        """As at a master."""
        self._check(topic, physical)
        if self.queues.store.cold is not None:
            return self.queues.find_time(topic, queue_id, timestamp_ms, upper)
        return self.queues.offset_by_time(topic, queue_id, timestamp_ms, upper)

    def first_stored_ms(self, topic: str, queue_id: int, *, physical: bool = False) -> int | None:
        """As at a master."""
        self._check(topic, physical)
        return self.queues.first_stored_ms(topic, queue_id)

    def _check(self, topic: str, physical: bool) -> None:
        if not physical and self.topics.mapping(topic) is not None:
            words = f"The queues of the static topic {topic!r} are read from masters alone."
            raise ConnectionFailed("NOT_MASTER", words)
