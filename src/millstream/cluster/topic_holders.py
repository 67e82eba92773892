"""Which brokers hold a topic. Pure.

A route must not look at all brokers: with 500 of them that cost a nameserver more than all else of the answer.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Sequence

__all__ = ["TopicHolders"]


class TopicHolders:
    """The names of brokers by topic, sorted. It takes about 150 bytes a topic and 8 for each broker that has it."""

    def __init__(self) -> None:
        self._names: dict[str, list[str]] = {}

    def of(self, topic: str) -> Sequence[str]:
        """The brokers that have the topic; () where none has."""
        return self._names.get(topic, ())

    def topics(self) -> list[str]:
        """All topics that any broker has, sorted."""
        return sorted(self._names)

    def add(self, broker_name: str, topics: Iterable[str]) -> None:
        """The broker has these topics, none of which it had before."""
        for topic in topics:
            insort(self._names.setdefault(topic, []), broker_name)

    def remove(self, broker_name: str, topics: Iterable[str]) -> None:
        """The broker has these topics no longer, all of which it had."""
        for topic in topics:
            names = self._names[topic]
            del names[bisect_left(names, broker_name)]
            if not names:
                del self._names[topic]
