"""The bytes of the messages that wait in light queues: what a queue with a limit of bytes is measured by.

Each body is measured once, from the record's head: when the queue is asked about for the first time, and then what has
come since. Its size is kept until the group has consumed it.
"""

from __future__ import annotations

import asyncio
from array import array
from collections import OrderedDict
from dataclasses import replace
from typing import Final

from millstream.broker.queues.group_offsets import GroupOffsets
from millstream.model.errors import StoreError
from millstream.model.light_queue import LIGHT_QUEUE_NUMBER, is_light_queue
from millstream.model.operations import QueueProgress
from millstream.model.properties import decode_properties
from millstream.protocol.content_fields import MAX_STANDING_BYTES, filled_body
from millstream.protocol.record import MIN_RECORD_BYTES, body_bytes_of, split_record
from millstream.store.queue_reader import QueueReader

__all__ = ["MAX_MEASURED_AT_ONCE", "MAX_MEASURED_QUEUES", "ReadyBytes"]

MAX_MEASURED_QUEUES: Final = 1_000
"""Light queues whose sizes are kept at most, 4 bytes for each message that waits; others are measured anew."""

MAX_MEASURED_AT_ONCE: Final = 1_000
"""Messages that are measured before others get their turn."""

_MIN_CONSUMED: Final = 4_096


class _Sizes:
    """The sizes of the bodies of one stretch of a queue, from the first message that is not consumed."""

    __slots__ = ("_first", "_sizes", "_start", "ahead_bytes", "cursor", "last_log_offset")

    def __init__(self, queue_offset: int) -> None:
        self.cursor = queue_offset
        """Where the group goes on."""
        self.ahead_bytes = 0
        """Of all messages from there on."""
        self.last_log_offset = -1
        """Where the record of the last message lies."""
        self._first = queue_offset
        self._sizes = array("I")
        self._start = 0

    @property
    def end(self) -> int:
        """The offset behind the last message that is measured."""
        return self._first + len(self._sizes) - self._start

    def size(self, queue_offset: int) -> int:
        """The size of one body; 0 for one that is not there."""
        place = queue_offset - self._first
        return self._sizes[self._start + place] if 0 <= place < len(self._sizes) - self._start else 0

    def append(self, size_bytes: int, log_offset: int) -> None:
        """The next message has so many bytes."""
        self._sizes.append(size_bytes)
        self.ahead_bytes += size_bytes
        self.last_log_offset = log_offset

    def go_on(self, committed: int, cursor: int) -> bool:
        """The group has gone on to there; False where that is not ahead, and the stretch is of no use."""
        if not self._first <= committed <= cursor or not self.cursor <= cursor <= self.end:
            return False
        for queue_offset in range(self.cursor, cursor):
            self.ahead_bytes -= self.size(queue_offset)
        self.cursor = cursor
        self._start += committed - self._first
        self._first = committed
        if self._start > max(len(self._sizes) // 2, _MIN_CONSUMED):
            del self._sizes[: self._start]
            self._start = 0
        return True


class ReadyBytes:
    """Measures light queues; every call is from the event loop's thread."""

    def __init__(self, group_offsets: GroupOffsets) -> None:
        self._offsets = group_offsets
        # By the queue's stored name, the one that was asked about last at the end.
        self._sizes: OrderedDict[str, _Sizes] = OrderedDict()

    async def measure(self, group: str, topic: str) -> list[QueueProgress]:
        """How far the group is in the topic, and of a light queue the bytes that are ready. Raises GROUP_NOT_FOUND,
        TOPIC_NOT_FOUND."""
        while True:
            found = self._offsets.progress(group, topic)
            if not is_light_queue(topic) or not found:
                return found
            (progress,) = found
            sizes = self._follow(progress)
            if sizes.end >= progress.max_offset:
                return [replace(progress, ready_bytes=self._count(group, sizes, progress))]
            await asyncio.sleep(0)

    def _follow(self, progress: QueueProgress) -> _Sizes:
        """The sizes as far as they are known now, some more than before."""
        topic, store = progress.topic, self._offsets.reader.store
        sizes = self._sizes.get(topic)
        cursor = max(progress.next_offset, progress.committed)
        if sizes is None or not self._is_same(sizes, topic) or not sizes.go_on(progress.committed, cursor):
            sizes = _Sizes(progress.committed)
        self._sizes[topic] = sizes
        self._sizes.move_to_end(topic)
        if len(self._sizes) > MAX_MEASURED_QUEUES:
            self._sizes.popitem(last=False)
        missing = min(progress.max_offset - sizes.end, MAX_MEASURED_AT_ONCE)
        for entry in store.entries(topic, LIGHT_QUEUE_NUMBER, sizes.end, missing) if missing > 0 else ():
            while sizes.end < entry.queue_offset:
                sizes.append(0, entry.log_offset)
            sizes.append(_body_bytes(store, entry.log_offset, entry.size_bytes), entry.log_offset)
        sizes.go_on(progress.committed, min(cursor, sizes.end))
        return sizes

    def _is_same(self, sizes: _Sizes, topic: str) -> bool:
        """Whether the queue is still the one that was measured: it may have been deleted, or cut by a new master."""
        if sizes.last_log_offset < 0:
            return True
        last = self._offsets.reader.store.entries(topic, LIGHT_QUEUE_NUMBER, sizes.end - 1, 1)
        return bool(last) and last[0].log_offset == sizes.last_log_offset

    def _count(self, group: str, sizes: _Sizes, progress: QueueProgress) -> int:
        ledger = self._offsets.offsets.ledger(group, progress.topic, LIGHT_QUEUE_NUMBER)
        now_ms = self._offsets.clock.now_ms()
        held = [] if ledger is None else ledger.in_flight
        back = [one for one in held if not (one.pop_time_ms and one.visible_ms > now_ms)]
        return sizes.ahead_bytes + sum([sizes.size(one.queue_offset) for one in back])


def _body_bytes(store: QueueReader, log_offset: int, size_bytes: int) -> int:
    """The bytes of a record's body; 0 where the record is lost."""
    record = store.raw(log_offset, size_bytes) if size_bytes >= MIN_RECORD_BYTES else None
    if record is None:
        return 0
    try:
        size_bytes = body_bytes_of(record)
    except StoreError:
        return 0
    if size_bytes > MAX_STANDING_BYTES:
        return size_bytes
    parts = split_record(record)
    return len(filled_body(decode_properties(parts.properties), bytes(parts.body)))
