"""Which topics go up and how long their messages live, beside other work where thousands of topics are looked at."""

from __future__ import annotations

import asyncio
import fnmatch
from collections.abc import AsyncIterator, Callable, Generator, Iterable
from itertools import islice
from typing import Final, TypeVar

from millstream.broker.queues.topics import TopicRegistry
from millstream.model.topic import MessageType, TopicConfig, is_system_topic

__all__ = ["TOPICS_AT_ONCE", "ColdTopics", "run_in_turns"]

TOPICS_AT_ONCE: Final = 1000
"""Topics after which others have their turn: one to two milliseconds of work."""

_HOUR_MS: Final = 60 * 60 * 1000

T = TypeVar("T")


async def run_in_turns(steps: Generator[None, None, T]) -> T:
    """What the steps return in the end. Whatever else waits for the event loop runs between two of them."""
    while True:
        try:
            next(steps)
        except StopIteration as done:
            found: T = done.value
            return found
        await asyncio.sleep(0)


class ColdTopics:
    """The topics of a broker, of which those whose names match `pattern` go up. `keep_hours` holds where a topic has no
    time of its own."""

    def __init__(self, topics: TopicRegistry, pattern: str, keep_hours: int) -> None:
        self._topics, self._pattern = topics, pattern
        self.keep_ms = keep_hours * _HOUR_MS

    async def find_going(self, counted_from: Callable[[str], int]) -> dict[str, int]:
        """Those that go up, with the log offsets from which on their records count.

        Those that are created meanwhile are not among them.
        """
        found: dict[str, int] = {}
        async for some in _some_at_once(self._topics.all()):
            found.update((topic.name, counted_from(topic.name)) for topic in some if self._goes_up(topic))
        return found

    async def classes_of(self, names: Iterable[str]) -> dict[str, int]:
        """By topic its class: those share objects whose times to live are within twice of each other."""
        found: dict[str, int] = {}
        async for some in _some_at_once(names):
            found.update((name, self._class_of(name)) for name in some)
        return found

    def find_lifetimes(self) -> dict[str, int]:
        """For how many milliseconds messages are kept of the topics that have a time of their own."""
        return {topic.name: topic.time_to_live_ms for topic in self._topics.all() if topic.time_to_live_ms is not None}

    def _goes_up(self, topic: TopicConfig) -> bool:
        if is_system_topic(topic.name) or topic.is_compacted or topic.message_type is MessageType.LITE:
            return False
        return fnmatch.fnmatchcase(topic.name, self._pattern)

    def _class_of(self, name: str) -> int:
        config = self._topics.find(name)
        keep_ms = None if config is None else config.time_to_live_ms
        return max(1, (self.keep_ms if keep_ms is None else keep_ms) // _HOUR_MS).bit_length()


async def _some_at_once(items: Iterable[T]) -> AsyncIterator[list[T]]:
    rest = iter(items)
    while some := [*islice(rest, TOPICS_AT_ONCE)]:
        yield some
        await asyncio.sleep(0)
