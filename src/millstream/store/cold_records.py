"""Records that the log has let go and that lie elsewhere, as readers of a queue see them."""

from __future__ import annotations

from typing import Protocol

from millstream.model.errors import StoreError
from millstream.store.consume_queue import IndexEntry

__all__ = ["ColdEntry", "ColdRecords", "cold_records_away"]


class ColdEntry(IndexEntry):
    """An entry whose record is at hand and verified."""

    record: memoryview


class ColdRecords(Protocol):
    """What lies elsewhere of all queues. No call waits: what is not at hand is fetched before, by whoever may wait."""

    def first_offset(self, topic: str, queue_id: int) -> int | None:
        """The first offset of the queue that lies elsewhere; None where nothing of it does."""
        ...

    def entries(self, topic: str, queue_id: int, queue_offset: int, end: int, max_count: int) -> list[IndexEntry]:
        """At most `max_count` entries from the offset, or from the first one behind it, to before `end`.

        None where nothing of that lies elsewhere. Raises COLD_DATA_AWAY where it does and none is at hand.
        """
        ...

    def is_away(self, topic: str, queue_id: int, queue_offset: int, end: int) -> bool:
        """Whether `entries` would raise COLD_DATA_AWAY."""
        ...


def cold_records_away(topic: str, queue_id: int, queue_offset: int) -> StoreError:
    """The error for records that have to be fetched before they are read."""
    return StoreError(
        "COLD_DATA_AWAY",
        f"The messages from offset {queue_offset} of queue {queue_id} of {topic!r} on are in the object store.",
    )
