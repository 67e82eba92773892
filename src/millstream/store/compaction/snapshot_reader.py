"""Reading a compacted queue for a state store: everything up to an offset, then what follows, across compactions.

Who applies all changes in order holds the last value of every key when the snapshot is read, and again whenever all
was read. A generation that is being read stays readable to its end. Where a compaction then overtakes the reader, the
reader goes on in the new generation; the snapshot ends at that one's end if it would have ended before.

A tombstone goes for good a time of retention after its compaction. A reader that has been away for so long may have
missed one; it is told to forget what it read, and reads all again.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass

from millstream.model.errors import StoreError
from millstream.protocol.changelog import Change, Changelog, KeyOf, key_of_record
from millstream.store.compaction.compacted_queue import CompactedQueue
from millstream.store.compaction.generation import Generation
from millstream.store.compaction.source import QueueSource
from millstream.store.consume_queue import IndexEntry

__all__ = ["ReadChanges", "SnapshotReader"]

_PIECE_RECORDS = 1024

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ReadChanges:
    """One piece of a reading. `starts_over`: forget everything read before, then apply the changes."""

    changes: list[Change]
    starts_over: bool = False


class SnapshotReader:
    """Reads `queue` up to the end that it has now (`snapshot_end`), then its tail. For one thread at a time.

    Who kept the state of an earlier reader resumes at that one's `next_offset`. `lost_records` counts what was damaged
    or gone; each is named in the log and passed over.
    """

    def __init__(
        self,
        queue: CompactedQueue,
        source: QueueSource,
        key_of: KeyOf = key_of_record,
        *,
        resume_offset: int | None = None,
    ) -> None:
        self.lost_records = 0
        self.snapshot_end = max(source.end_offset(), queue.end_offset)
        self._queue = queue
        self._source = source
        self._generation: Generation | None = None
        self._has_read = resume_offset is not None
        self._changelog = Changelog(queue.min_offset(source) if resume_offset is None else resume_offset, key_of)

    @property
    def next_offset(self) -> int:
        """The queue offset to be read next."""
        return self._changelog.next_offset

    @property
    def is_snapshot_read(self) -> bool:
        """Whether all up to `snapshot_end` was read, so that what follows is the tail."""
        return self.next_offset >= self.snapshot_end

    def read_snapshot(self) -> dict[bytes, bytes]:
        """The last value of each key at `snapshot_end`, all in memory; `read` gives what follows."""
        state: dict[bytes, bytes] = {}
        while not self.is_snapshot_read:
            piece = self.read(_PIECE_RECORDS)
            if piece.starts_over:
                state.clear()
            for change in piece.changes:
                if change.value is None:
                    state.pop(change.key, None)
                else:
                    state[change.key] = bytes(change.value)
        return state

    def read(self, max_records: int) -> ReadChanges:
        """The changes of the next records, at most `max_records` (1 or more); none at the end of what can be seen.

        No piece reaches over the end of the snapshot.
        """
        starts_over = False
        while True:
            starts_over |= self._enter_generation()
            entries = self._entries(max_records)
            if entries is None:
                continue
            changes = list(self._changelog.changes(self._records(entries)))
            if self._generation is not None and len(entries) < max_records:
                self._changelog.pass_to(self._generation.header.end_offset)
            if changes or (not entries and self._generation is None):
                return ReadChanges(changes, starts_over)

    def _enter_generation(self) -> bool:
        """Go on in the generation in use if it has what comes next; whether all has to be read again."""
        held = self._generation
        if held is not None and self.next_offset < held.header.end_offset:
            return False
        current = self._queue.generation()
        if current is None or self.next_offset >= current.header.end_offset:
            self._generation = None
            return False
        self._generation = current
        starts_over = self._has_read and self.next_offset < current.header.forgotten_end
        if starts_over:
            self._changelog.next_offset = current.header.min_offset
        if starts_over or not self.is_snapshot_read:
            self.snapshot_end = max(self.snapshot_end, current.header.end_offset)
        return starts_over

    def _entries(self, max_records: int) -> list[IndexEntry] | None:
        """The next entries; None to look again, where the log no longer has what comes next."""
        if self._generation is not None:
            return self._generation.entries(self.next_offset, max_records)
        if not self.is_snapshot_read:
            max_records = min(max_records, self.snapshot_end - self.next_offset)
        entries = self._source.entries(self.next_offset, max_records)
        following = entries[0].queue_offset if entries else self._source.min_offset()
        if following > self.next_offset:
            if self._queue.end_offset <= self.next_offset:
                self._name_loss(following - self.next_offset, "are no longer in the log")
                self._changelog.pass_to(following)
            return None
        return entries

    def _records(self, entries: list[IndexEntry]) -> Iterator[memoryview]:
        for entry in entries:
            self._has_read = True
            try:
                yield self._source.read(entry) if self._generation is None else self._generation.read(entry)
            except StoreError as error:
                if error.name != "RECORD_DAMAGED":
                    raise
                if self._generation is None and entry.queue_offset < self._queue.end_offset:
                    return  # compacted, and the log forgot it: the next look finds it in the generation
                self._name_loss(1, f"are damaged: {error}")
            self._changelog.pass_to(entry.queue_offset + 1)

    def _name_loss(self, records: int, how: str) -> None:
        self.lost_records += records
        queue = self._queue
        _log.error("%s/%d at %d: %d records %s", queue.topic, queue.queue_id, self.next_offset, records, how)
