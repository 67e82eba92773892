"""Lite topics that go: those that were not written for as long as their bind topic says, or that hold nothing."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice

from millstream.broker.lite_topics import LiteTopics
from millstream.broker.offsets import OffsetTable
from millstream.broker.topics import TopicRegistry
from millstream.model.clock import Clock
from millstream.model.lite import LITE_PREFIX, bind_topic_of
from millstream.model.topic import MessageType, TopicConfig
from millstream.store.message_store import MessageStore

__all__ = ["EMPTY_AFTER_MS", "MAX_AT_ONCE", "LiteExpiry"]

_log = logging.getLogger(__name__)

EMPTY_AFTER_MS = 600_000
"""A lite topic without messages goes when it was not written for so long."""

MAX_AT_ONCE = 256
"""Lite topics that go in one sweep at most, so that it does not hold up the event loop for long."""


@dataclass(frozen=True, slots=True)
class LiteExpiry:
    """Called from the event loop's thread; what it decides holds until it returns, so no message can come between."""

    topics: TopicRegistry
    offsets: OffsetTable
    store: MessageStore
    lite_topics: LiteTopics
    clock: Clock

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
                names.extend(islice(filter(self._gone(topic), self._old(topic)), MAX_AT_ONCE - len(names)))
        if names:
            self._drop(names)
            _log.info("%d lite topics are expired, %s is the first of them.", len(names), names[0])

    def drop_topic(self, bind_topic: str) -> None:
        """Drop all lite topics of a bind topic that is deleted."""
        names = self.lite_topics.names(bind_topic)
        if names:
            self._drop(names)

    def _old(self, topic: TopicConfig) -> Sequence[str]:
        wait_ms = EMPTY_AFTER_MS if topic.lite_expiry_ms is None else min(topic.lite_expiry_ms, EMPTY_AFTER_MS)
        return list(self.lite_topics.unwritten_since(topic.name, self.clock.now_ms() - wait_ms))

    def _gone(self, topic: TopicConfig) -> Callable[[str], bool]:
        store = self.store
        expired = set[str]()
        if topic.lite_expiry_ms is not None:
            before_ms = self.clock.now_ms() - topic.lite_expiry_ms
            expired.update(self.lite_topics.unwritten_since(topic.name, before_ms))
        return lambda name: name in expired or store.min_offset(name, 0) >= store.max_offset(name, 0)

    def _drop(self, names: Sequence[str]) -> None:
        # On the disk before the queues go: a lite topic of that name must not inherit offsets after a crash.
        self.offsets.forget_topics(set(names))
        self.offsets.save()
        self.store.delete_topics(names)
        self.lite_topics.remove(names)
