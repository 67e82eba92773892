"""Which lite topics a broker has, and when each was last written: what their quota and their expiry go by."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from millstream.model.errors import MessageRefused
from millstream.model.lite import bind_topic_of, lite_queue, lite_topic_of

__all__ = ["MAX_LITE_TOPICS", "MAX_LITE_TOPICS_OF_BROKER", "LiteTopics"]

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
