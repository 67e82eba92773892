"""Reads a compacted queue as a state store does: the existing records, then new ones."""

from __future__ import annotations

from millstream.client.blocking import BlockingClient
from millstream.client.requests import DEFAULT_PULL_BYTES, DEFAULT_PULL_MESSAGES
from millstream.client.values import QueueAddress, range_is_gone
from millstream.model.errors import NameRefused
from millstream.model.operations import PullStatus
from millstream.protocol.changelog import Change, ChangelogDecoder

__all__ = ["ChangelogReader"]


class ChangelogReader:
    """The changes of one queue's keys from `next_offset` on, over a blocking client.

    Who applies all changes in order holds the last value of every key, whatever compaction does meanwhile. A reader
    that pauses for longer than tombstones are kept (24 h) may miss a deletion and should start over at offset 0.
    """

    def __init__(self, client: BlockingClient, queue: QueueAddress, *, next_offset: int = 0) -> None:
        self._client = client
        self._queue = queue
        self._changelog = ChangelogDecoder(next_offset)

    @property
    def next_offset(self) -> int:
        """Where a later reader goes on."""
        return self._changelog.next_offset

    def read_snapshot(self) -> dict[bytes, bytes]:
        """The value of every key as of now, for a reader that began at offset 0. QUEUE_NOT_FOUND for a wrong queue."""
        end = self._end_offset()
        values: dict[bytes, bytes] = {}
        while self.next_offset < end:
            for change in self.read(wait_ms=0):
                if change.value is None:
                    values.pop(change.key, None)
                else:
                    values[change.key] = bytes(change.value)
        return values

    def read(self, *, wait_ms: int) -> list[Change]:
        """The next changes, [] after `wait_ms` without any. ILLEGAL_OFFSET where the queue has moved on beyond them."""
        offset = self.next_offset
        batch = self._client.pull(
            self._queue, offset, max_messages=DEFAULT_PULL_MESSAGES, max_bytes=DEFAULT_PULL_BYTES, wait_ms=wait_ms
        )
        if batch.status is PullStatus.OFFSET_ILLEGAL:
            if offset or batch.min_offset > batch.max_offset:
                raise range_is_gone(self._queue, offset, offset + 1, batch)
            # A new reader begins where the queue does.
            self._changelog.pass_to(batch.min_offset)
            return self.read(wait_ms=wait_ms)
        changes = list(self._changelog.changes(batch.records())) if batch.status is PullStatus.FOUND else []
        self._changelog.pass_to(batch.next_offset)
        return changes

    def _end_offset(self) -> int:
        for item in self._client.queue_ranges(self._queue.topic):
            if item.queue == self._queue:
                return item.range.max_offset
        raise NameRefused("QUEUE_NOT_FOUND", f"The topic {self._queue.topic!r} has no queue {self._queue.queue_id}.")
