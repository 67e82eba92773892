"""Reads the records that no generation covers yet, from the ordinary queue."""

from __future__ import annotations

from typing import Protocol

from millstream.store.consume_queue import IndexEntry

__all__ = ["QueueSource"]


class QueueSource(Protocol):
    """One queue of the log. Called from the threads of compaction and readers."""

    def min_offset(self) -> int:
        """The first queue offset whose record is still in the log, or the next offset of an empty queue."""
        ...

    def end_offset(self) -> int:
        """The queue offset behind the last visible record."""
        ...

    def entries(self, queue_offset: int, max_count: int) -> list[IndexEntry]:
        """At most `max_count` visible entries from `queue_offset`, or from the first one if that is later."""
        ...

    def read(self, entry: IndexEntry) -> memoryview:
        """The whole record, verified. Raises RECORD_DAMAGED."""
        ...
