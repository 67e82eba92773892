"""The compacted queues of a store, by topic and queue number, with a bound on mapped files."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path

from millstream.store.compaction.compacted_queue import CompactedQueue
from millstream.store.compaction.compaction import CompactionOptions
from millstream.store.files import FileLayer

__all__ = ["MAX_MAPPED_QUEUES", "CompactedQueues"]

MAX_MAPPED_QUEUES = 256
"""Compacted queues whose generation stays mapped: two descriptors each. The least recently used one is let go."""


class CompactedQueues:
    """The directory `TOPIC/QUEUE/` of each compacted queue. Called from one thread."""

    def __init__(
        self,
        directory: Path,
        files: FileLayer,
        options: CompactionOptions | None = None,
        *,
        max_mapped: int = MAX_MAPPED_QUEUES,
    ) -> None:
        self._directory = directory
        self._files = files
        self._options = options
        self._max_mapped = max_mapped
        self.by_place: dict[tuple[str, int], CompactedQueue] = {}
        """Topic and queue number -> queue; for others to look whether one is there. Who reads it asks `find`."""
        self._used: OrderedDict[CompactedQueue, None] = OrderedDict()

    def __iter__(self) -> Iterator[CompactedQueue]:
        return iter(self.by_place.values())

    def on_disk(self) -> list[tuple[str, int]]:
        """Topic and number of every queue that has a directory, whether it was taken up or not."""
        return [
            (topic.name, int(path.name))
            for topic in self._files.entries(self._directory)
            for path in self._files.entries(topic)
            if path.name.isdecimal()
        ]

    def find(self, topic: str, queue_id: int) -> CompactedQueue | None:
        """The queue, or None if it is not a compacted one. It counts as used."""
        queue = self.by_place.get((topic, queue_id))
        if queue is not None:
            self._use(queue)
        return queue

    def obtain(self, topic: str, queue_id: int, log_min_offset: int) -> CompactedQueue:
        """The queue, recovered if it was not taken up yet (`CompactedQueue.recover`)."""
        queue = self.by_place.get((topic, queue_id))
        if queue is None:
            directory = self._directory / topic / str(queue_id)
            queue = CompactedQueue(topic, queue_id, directory, self._files, self._options)
            queue.recover(log_min_offset)
            self.by_place[topic, queue_id] = queue
        self._use(queue)
        return queue

    def _use(self, queue: CompactedQueue) -> None:
        self._used[queue] = None
        self._used.move_to_end(queue)
        if len(self._used) > self._max_mapped:
            self._used.popitem(last=False)[0].release()

    def close(self) -> None:
        """Let go of all mapped files. Generations that are held stay readable."""
        for queue in self.by_place.values():
            queue.release()

    def remove_topic(self, topic: str) -> None:
        """Stop the compactions of the topic's queues and remove their files."""
        for key in [key for key in self.by_place if key[0] == topic]:
            queue = self.by_place.pop(key)
            self._used.pop(queue, None)
            queue.remove()
        self._files.remove_tree(self._directory / topic)
