"""Reads the queues of one topic for one group many times in one turn of the event loop: what cannot change meanwhile is
looked at once."""

from __future__ import annotations

from millstream.broker.queues.offsets import OffsetTable
from millstream.broker.statistics import Outgoing
from millstream.store.message_store import MessageStore
from millstream.telemetry.counters import Counters

__all__ = ["PullReader"]


class PullReader:
    """Whole records of a topic of `queues` readable queues, counted as pulled. `next_offset`, `min_offset` and
    `max_offset` are those of the last `read` that gave any."""

    __slots__ = (
        "_counters", "_group", "_offsets", "_outgoing", "_queues", "_store", "_topic", "max_offset", "min_offset",
        "next_offset",
    )  # fmt: skip

    def __init__(
        self,
        store: MessageStore,
        offsets: OffsetTable,
        counters: Counters[tuple[str, str], Outgoing],
        group: str,
        topic: str,
        queues: int,
    ) -> None:
        self._store = store
        self._offsets = offsets
        self._counters = counters
        self._outgoing: Outgoing | None = None
        self._group = group
        self._topic = topic
        self._queues = queues
        self.next_offset = self.min_offset = self.max_offset = 0

    def read(self, queue_id: int, queue_offset: int, max_messages: int, max_bytes: int) -> bytes | None:
        """The next records of a queue, one behind the other; None where a pull has to look itself."""
        if queue_id >= self._queues or self._offsets.has_reset(self._group, self._topic, queue_id):
            return None
        found = self._store.read_together(self._topic, queue_id, queue_offset, max(1, max_messages), max_bytes)
        if found is None:
            return None
        data, count, self.min_offset, self.max_offset = found
        self.next_offset = queue_offset + count
        outgoing = self._outgoing
        if outgoing is None:
            outgoing = self._outgoing = self._counters[self._group, self._topic]
        outgoing.messages += count
        outgoing.size_bytes += len(data)
        return data
