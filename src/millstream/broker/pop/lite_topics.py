"""The lite topics of a broker: when each was last written, and when it expires."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from millstream.broker.queues.offsets import OffsetTable
from millstream.broker.queues.topics import TopicRegistry
from millstream.broker.state.topic_deletions import TopicDeletions
from millstream.model.clock import Clock
from millstream.model.errors import MessageRefused
from millstream.model.lite import LITE_PREFIX, bind_topic_of, lite_queue, lite_topic_of
from millstream.model.topic import MessageType, TopicConfig
from millstream.store.message_store import MessageStore

__all__ = ["EMPTY_AFTER_MS", "MAX_AT_ONCE", "MAX_LITE_TOPICS", "MAX_LITE_TOPICS_OF_BROKER", "LiteExpiry", "LiteTopics"]


MAX_LITE_TOPICS = 20_000
"""Lite topics of one bind topic at most."""

MAX_LITE_TOPICS_OF_BROKER = 100_000
"""Lite topics of all bind topics together at most: each is a queue with a file of its own, and about 2 KB of memory."""


class LiteTopics:
    """Times of the last write in milliseconds, by bind topic and lite topic. Pure: it follows what it is told."""

    def __init__(self, *, per_topic: int = MAX_LITE_TOPICS, total: int = MAX_LITE_TOPICS_OF_BROKER) -> None:
        self._per_topic = per_topic
        self._total = total
        self._count = 0
        self._written_ms: dict[str, dict[str, int]] = {}
        self.leaving: frozenset[str] = frozenset()
        """Stored names of those that are being deleted: nothing may be written to them or read of them until then."""

    def __len__(self) -> int:
        return self._count

    def write(self, bind_topic: str, lite_topic: str, now_ms: int) -> str:
        """Note a write, which makes the lite topic if it is new; the name that it is stored under.

        Raises LITE_TOPIC_QUOTA_EXCEEDED.
        """
        own = self._written_ms.setdefault(bind_topic, {})
        if lite_topic not in own:
            if len(own) >= self._per_topic or self._count >= self._total:
                raise MessageRefused(
                    "LITE_TOPIC_QUOTA_EXCEEDED",
                    f"The topic {bind_topic!r} has {len(own)} lite topics, the broker {self._count}; the limits are "
                    f"{self._per_topic} and {self._total}.",
                )
            self._count += 1
        own[lite_topic] = now_ms
        return lite_queue(bind_topic, lite_topic)

    def restore(self, name: str, written_ms: int) -> None:
        """Note what the store has of a run before, whatever the quota says now."""
        own = self._written_ms.setdefault(bind_topic_of(name), {})
        self._count += lite_topic_of(name) not in own
        own[lite_topic_of(name)] = written_ms

    def has(self, bind_topic: str, lite_topic: str) -> bool:
        """Whether the lite topic was written and is still there."""
        return lite_topic in self._written_ms.get(bind_topic, ())

    def names(self, bind_topic: str) -> list[str]:
        """The stored names of a bind topic's lite topics."""
        return [lite_queue(bind_topic, lite_topic) for lite_topic in self._written_ms.get(bind_topic, ())]

    def unwritten_since(self, bind_topic: str, time_ms: int) -> Iterator[str]:
        """The stored names of those that were not written since that time."""
        for lite_topic, written_ms in self._written_ms.get(bind_topic, {}).items():
            if written_ms < time_ms:
                yield lite_queue(bind_topic, lite_topic)

    def remove(self, names: Iterable[str]) -> None:
        """Forget lite topics, given by their stored names."""
        for name in names:
            own = self._written_ms.get(bind_topic_of(name), {})
            if own.pop(lite_topic_of(name), None) is not None:
                self._count -= 1


_log = logging.getLogger(__name__)

EMPTY_AFTER_MS = 600_000
"""A lite topic without messages goes when it was not written for so long."""

MAX_AT_ONCE = 256
"""Lite topics that go in one sweep at most: what is sent to one of them waits until all are gone."""


@dataclass(slots=True)
class LiteExpiry:
    """Decides on the event loop and deletes beside it. While a lite topic is deleted, nothing is done with it."""

    topics: TopicRegistry
    offsets: OffsetTable
    store: MessageStore
    deletions: TopicDeletions
    lite_topics: LiteTopics
    clock: Clock
    _departure: asyncio.Event | None = None

    def load(self) -> None:
        """Take up the lite topics that the store has; those of bind topics that are gone are dropped."""
        found = [name for name in self.store.topics if name.startswith(LITE_PREFIX)]
        orphans = [name for name in found if self.topics.find(bind_topic_of(name)) is None]
        if orphans:
            self._drop(orphans)
        for name in set(found).difference(orphans):
            self.lite_topics.restore(name, self.store.last_store_timestamp_ms(name, 0))

    async def sweep(self) -> None:
        """Let go of what is expired, `MAX_AT_ONCE` of them. Raises what the store raises."""
        names: list[str] = []
        for topic in self.topics.all():
            if topic.message_type is MessageType.LITE and len(names) < MAX_AT_ONCE:
                names.extend(islice(filter(self._is_gone_in(topic), self._old(topic)), MAX_AT_ONCE - len(names)))
        if names:
            await self._let_go(names)
            _log.info("%d lite topics are expired, %s is the first of them.", len(names), names[0])

    async def await_deletions(self, names: Collection[str]) -> None:
        """Return when none of these lite topics, given by their stored names, is being deleted."""
        while self._departure is not None and not self.lite_topics.leaving.isdisjoint(names):
            await self._departure.wait()

    def drop_topic(self, bind_topic: str) -> None:
        """Drop all lite topics of a bind topic that is deleted."""
        names = self.lite_topics.names(bind_topic)
        if names:
            self._drop(names)

    def _old(self, topic: TopicConfig) -> Sequence[str]:
        wait_ms = EMPTY_AFTER_MS if topic.lite_expiry_ms is None else min(topic.lite_expiry_ms, EMPTY_AFTER_MS)
        return list(self.lite_topics.unwritten_since(topic.name, self.clock.now_ms() - wait_ms))

    def _is_gone_in(self, topic: TopicConfig) -> Callable[[str], bool]:
        store = self.store
        expired = set[str]()
        if topic.lite_expiry_ms is not None:
            before_ms = self.clock.now_ms() - topic.lite_expiry_ms
            expired.update(self.lite_topics.unwritten_since(topic.name, before_ms))
        return lambda name: name in expired or store.min_offset(name, 0) >= store.max_offset(name, 0)

    async def _let_go(self, names: Sequence[str]) -> None:
        self._departure = asyncio.Event()
        self.lite_topics.leaving = frozenset(names)
        try:
            self.offsets.forget_topics(self.lite_topics.leaving)
            # On the disk before the queues go: a lite topic of that name must not inherit offsets after a crash.
            await self.offsets.write_changes_in_turns()
            self.deletions.write(names, durable=False)
            await asyncio.to_thread(self.store.flush_log)
            await asyncio.to_thread(self.store.delete_topics, names)
            self.lite_topics.remove(names)
        finally:
            self.lite_topics.leaving = frozenset()
            self._departure.set()

    def _drop(self, names: Sequence[str]) -> None:
        self.offsets.forget_topics(set(names))
        self.offsets.write_changes()
        self.deletions.write(names)
        self.store.delete_topics(names)
        self.lite_topics.remove(names)
