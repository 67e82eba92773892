"""Records that the local log no longer holds, as readers of a queue see them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from millstream.model.errors import StoreError
from millstream.store.consume_queue import IndexEntry

__all__ = ["ColdEntry", "ColdRecords", "ColdRun", "cold_records_away"]


class ColdEntry(IndexEntry):
    """An entry whose record is at hand and verified."""

    record: memoryview


class ColdRun(NamedTuple):
    """Verified records of one message each, one behind the other, and where each of them ends."""

    data: memoryview
    ends: list[int]


class ColdRecords(Protocol):
    """What lies elsewhere of all queues. No call waits, for what is not at hand is fetched before, but for those that
    are for threads."""

    def first_offset(self, topic: str, queue_id: int) -> int | None:
        """The first offset of the queue that lies elsewhere; None where nothing of it does."""
        ...

    def entries(self, topic: str, queue_id: int, queue_offset: int, end: int, max_count: int) -> list[IndexEntry]:
        """At most `max_count` entries from the offset, or from the first one behind it, to before `end`.

        None where nothing of that lies elsewhere. Raises COLD_DATA_AWAY where it does and none is at hand.
        """
        ...

    def read_run(
        self, topic: str, queue_id: int, queue_offset: int, end: int, max_count: int, max_bytes: int
    ) -> ColdRun | None:
        """At most `max_count` records with the messages from the offset to before `end`, which are no batches.

        No more than `max_bytes`, but for the first. None where `entries` has to be asked.
        """
        ...

    def stored_ms(self, topic: str, queue_id: int, queue_offset: int) -> int | None:
        """When the record there, or the next one, was stored; None where nothing lies elsewhere from there on.

        Of what is not at hand it is the time of the first message that lies together with it.
        """
        ...

    def offset_at(self, topic: str, queue_id: int, stored_ms: int) -> int | None:
        """The first offset stored at that time or later; None where all were before. For a thread: it waits."""
        ...

    def bound_at(self, topic: str, queue_id: int, stored_ms: int) -> int | None:
        """An offset before which all messages that lie elsewhere are from before that time; None where all are."""
        ...

    def find_record(self, log_offset: int) -> bytes | None:
        """The record that began at an offset of the log; None where none did, it is damaged, or its topic was deleted.

        For a thread: it waits.
        """
        ...

    def find_by_key(self, topic: str, key: str, begin_ms: int, end_ms: int, max_results: int) -> Sequence[memoryview]:
        """Records of the topic with the key or unique key, stored in that time, newest first, as far as it is looked:
        at `MAX_SEARCHED_RANGES` of them. Some may be in the log as well. For a thread: it waits."""
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
