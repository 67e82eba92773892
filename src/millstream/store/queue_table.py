"""All consume queues of a store, by topic and queue number, and their directories `<topic>/<queueId>`."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from millstream.model.errors import NameRefused
from millstream.model.light_queue import is_light_queue
from millstream.protocol.record import RecordOutline
from millstream.store.batch_queue import BatchQueue
from millstream.store.consume_queue import ENTRY, ConsumeQueue, IndexEntry, tags_code
from millstream.store.damage.log_scan import in_each_queue
from millstream.store.entry_files import EntryFiles
from millstream.store.files import FileLayer, OpenFiles
from millstream.store.light_queue import LightQueue

__all__ = ["AnyQueue", "QueueTable", "QueueTail"]

AnyQueue = ConsumeQueue | BatchQueue

MAX_OPEN_FILES = 256
"""Consume queue files that are kept open for reading."""

MAX_SINGLE_SYNCS = 64
"""Queues that are brought to the disk file by file; for more of them one sync of the file system is cheaper."""

_MAX_NAME_BYTES = 255


class QueueTail(NamedTuple):
    """Entries of a queue that are in memory alone: the number of the first one, and their bytes."""

    queue: AnyQueue
    first: int
    packed: bytes

    @classmethod
    def of(cls, queue: AnyQueue) -> QueueTail:
        """What the queue has in memory now."""
        return cls(queue, queue.entry_files.tail_number, bytes(queue.entry_files.tail))

    def forget(self) -> None:
        """Leave the entries, which were written, to the files from here on."""
        self.queue.entry_files.forget_written(len(self.packed))


class QueueTable:
    """The consume queues under one directory."""

    def __init__(self, directory: Path, entries_per_file: int, files: FileLayer) -> None:
        if entries_per_file < 1:
            raise ValueError(f"a consume queue file has at least 1 entry, not {entries_per_file}")
        self._directory = directory
        self._entries_per_file = entries_per_file
        self._files = files
        self._opened = OpenFiles(files, MAX_OPEN_FILES)
        self.by_place: dict[tuple[str, int], AnyQueue] = {}
        """Topic and queue number -> queue; for others to look up alone, as every pop does several times."""
        files.make_directory(directory)

    def __iter__(self) -> Iterator[AnyQueue]:
        return iter(self.by_place.values())

    def find(self, topic: str, queue_id: int) -> AnyQueue | None:
        """The queue, or None if nothing was ever stored there."""
        return self.by_place.get((topic, queue_id))

    def obtain(self, topic: str, queue_id: int, *, holds_batches: bool = False) -> AnyQueue:
        """The queue, made if it is not there. Raises ILLEGAL_TOPIC for a name that cannot name a directory."""
        queue = self.by_place.get((topic, queue_id))
        if queue is None:
            queue = self.by_place[topic, queue_id] = self.make_unlisted(topic, queue_id, holds_batches=holds_batches)
        return queue

    def make_unlisted(self, topic: str, queue_id: int, *, holds_batches: bool = False) -> AnyQueue:
        """An empty queue that the table does not have yet."""
        if not topic or topic in (".", "..") or "/" in topic or "\0" in topic or len(topic.encode()) > _MAX_NAME_BYTES:
            raise NameRefused("ILLEGAL_TOPIC", f"{topic[:200]!r} cannot name a directory.")
        if queue_id < 0:
            raise NameRefused("QUEUE_NOT_FOUND", f"The topic {topic} has no queue {queue_id}.")
        kind = BatchQueue if holds_batches else LightQueue if is_light_queue(topic) else ConsumeQueue
        directory = f"{self._directory}/{topic}/{queue_id}"
        entry_files = EntryFiles(directory, kind.entry_bytes, self._entries_per_file, self._files, self._opened)
        return kind(topic, queue_id, entry_files)

    def list_queue(self, queue: AnyQueue) -> None:
        """Take an unlisted queue into the table."""
        self.by_place[queue.topic, queue.queue_id] = queue

    def add_records(self, records: Iterable[tuple[RecordOutline, int]]) -> set[AnyQueue]:
        """Append records of the log to their queues, which are made where they are not there; the queues, light ones
        among them.

        Records of one queue that follow one another are packed together.
        """
        reached: dict[tuple[str, int], tuple[AnyQueue, list[bytes]]] = {}
        following: dict[tuple[str, int], int] = {}
        pack = ENTRY.pack
        for outline, size_bytes in in_each_queue(records):
            topic, queue_id, queue_offset, log_offset, stored_ms, tag, batch_count, _ = outline
            place = topic, queue_id
            if following.get(place) == queue_offset and batch_count is None:
                reached[place][1].append(pack(log_offset, size_bytes, tags_code(tag) if tag else 0))
                following[place] = queue_offset + 1
                continue
            queue, packed = reached.get(place) or (self.obtain(*place, holds_batches=batch_count is not None), [])
            reached[place] = queue, []
            queue.entry_files.tail += b"".join(packed)
            queue.add(IndexEntry(queue_offset, log_offset, size_bytes, tags_code(tag), batch_count or 1), stored_ms)
            if not queue.holds_batches:
                following[place] = queue.next_offset
        for queue, packed in reached.values():
            queue.entry_files.tail += b"".join(packed)
        return {queue for queue, _ in reached.values()}

    def write_tails(self, tails: Sequence[QueueTail]) -> None:
        """Put entries into the files of their queues; they are on the disk when this returns."""
        at_once = len(tails) > MAX_SINGLE_SYNCS
        for tail in tails:
            tail.queue.entry_files.write(tail.first, tail.packed, sync=not at_once)
        if at_once:
            self._files.sync_file_system(self._directory)

    def forget_topics(self, topics: Collection[str]) -> None:
        """Forget the topics' queues; their files are still to be removed."""
        for key in [key for key in self.by_place if key[0] in topics]:
            del self.by_place[key]
        for topic in topics:
            self._opened.forget(self._directory / topic)

    def remove_files(self, topics: Collection[str]) -> None:
        """Remove the files of topics that are forgotten. It touches nothing else, so it is fit for any thread."""
        for topic in topics:
            self._files.remove_tree(self._directory / topic, sync=False)
        # Once for all: there may be very many light queues.
        if topics:
            self._files.sync_directory(self._directory)

    def remove_queue_files(self, topic: str, queue_id: int) -> None:
        """Remove the files of one queue, as before they are made again."""
        self._remove(self._directory / topic / str(queue_id))

    def remove_unlisted_files(self) -> None:
        """Remove the directories of queues that the table does not have."""
        wanted: dict[str, set[str]] = {}
        for queue in self:
            wanted.setdefault(queue.topic, set()).add(str(queue.queue_id))
        emptied: set[Path] = set()
        for topic in self._files.names(self._directory):
            if topic in wanted and is_light_queue(topic):
                # It has one queue alone, and there may be very many such directories.
                continue
            directory = self._directory / topic
            if topic not in wanted:
                self._remove(directory, sync=False)
                emptied.add(self._directory)
                continue
            for queue_id in set(self._files.names(directory)) - wanted[topic]:
                self._remove(directory / queue_id, sync=False)
                emptied.add(directory)
        for directory in sorted(emptied):
            self._files.sync_directory(directory)

    def _remove(self, directory: Path, *, sync: bool = True) -> None:
        self._opened.forget(directory)
        self._files.remove_tree(directory, sync=sync)

    def close(self) -> None:
        """Close the files."""
        self._opened.close()
