"""All consume queues of a store, by topic and queue number, and their directories `<topic>/<queueId>`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from millstream.model.errors import NameRefused
from millstream.store.consume_queue import ConsumeQueue
from millstream.store.files import FileLayer, OpenFiles

__all__ = ["QueueTable"]

MAX_OPEN_FILES = 256
"""Consume queue files that are kept open for reading."""

_MAX_NAME_BYTES = 255


class QueueTable:
    """The consume queues under one directory."""

    def __init__(self, directory: Path, entries_per_file: int, files: FileLayer) -> None:
        if entries_per_file < 1:
            raise ValueError(f"a consume queue file has at least 1 entry, not {entries_per_file}")
        self._directory = directory
        self._entries_per_file = entries_per_file
        self._files = files
        self._opened = OpenFiles(files, MAX_OPEN_FILES)
        self._queues: dict[tuple[str, int], ConsumeQueue] = {}
        files.make_directory(directory)

    def __iter__(self) -> Iterator[ConsumeQueue]:
        return iter(self._queues.values())

    def find(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """The queue, or None if nothing was ever stored there."""
        return self._queues.get((topic, queue_id))

    def obtain(self, topic: str, queue_id: int) -> ConsumeQueue:
        """The queue, made if it is not there. Raises ILLEGAL_TOPIC for a name that cannot name a directory."""
        queue = self._queues.get((topic, queue_id))
        if queue is None:
            queue = self._queues[topic, queue_id] = self.unlisted(topic, queue_id)
        return queue

    def unlisted(self, topic: str, queue_id: int) -> ConsumeQueue:
        """An empty queue that the table does not have yet."""
        if not topic or topic in (".", "..") or "/" in topic or "\0" in topic or len(topic.encode()) > _MAX_NAME_BYTES:
            raise NameRefused("ILLEGAL_TOPIC", f"{topic[:200]!r} cannot name a directory.")
        if queue_id < 0:
            raise NameRefused("QUEUE_NOT_FOUND", f"The topic {topic} has no queue {queue_id}.")
        directory = self._directory / topic / str(queue_id)
        return ConsumeQueue(topic, queue_id, directory, self._entries_per_file, self._files, self._opened)

    def list_queue(self, queue: ConsumeQueue) -> None:
        """Take an unlisted queue into the table."""
        self._queues[queue.topic, queue.queue_id] = queue

    def remove_topic(self, topic: str) -> None:
        """Forget the topic's queues and remove their files."""
        for key in [key for key in self._queues if key[0] == topic]:
            del self._queues[key]
        self._remove(self._directory / topic)

    def remove_queue_files(self, topic: str, queue_id: int) -> None:
        """Remove the files of one queue, as before they are made again."""
        self._remove(self._directory / topic / str(queue_id))

    def remove_unlisted_files(self) -> None:
        """Remove the directories of queues that the table does not have."""
        wanted = {queue.directory for queue in self}
        topics = {directory.parent for directory in wanted}
        for topic_directory in self._files.entries(self._directory):
            if topic_directory not in topics:
                self._remove(topic_directory)
                continue
            for directory in self._files.entries(topic_directory):
                if directory not in wanted:
                    self._remove(directory)

    def _remove(self, directory: Path) -> None:
        self._opened.forget(directory)
        self._files.remove_tree(directory)

    def close(self) -> None:
        """Close the files."""
        self._opened.close()
