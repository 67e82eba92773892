"""A ledger that keeps order within each message group of a queue, or over all messages without a group.

A line is held while a delivery of it is out of sight and not acknowledged. What the cursor meets of a held line waits
in flight with no attempt yet, so one stuck message group holds up neither the others nor the queue, until as many
messages wait as the ledger has room for. A line is known by a checksum: two message groups that share one are one
line, which costs them some speed and never their order.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from heapq import heapify, heappop, heappush, heapreplace
from zlib import crc32

from msgspec import Struct

from millstream.broker.queues.ledger import MAX_IN_FLIGHT, Delivery, Ledger

__all__ = ["NO_GROUP", "FifoLedger", "attempt_key_of", "line_of"]

NO_GROUP = 0
"""The line of the messages that have no message group."""

_STALE_ROWS = 64
"""Stale rows of the heaps that are not worth a rebuild."""


def line_of(message_group: str | None) -> int:
    """The line of a message group, from 1 on; `NO_GROUP` for none."""
    return NO_GROUP if message_group is None else crc32(message_group.encode("utf-8", "replace")) + 1


def attempt_key_of(attempt_id: str) -> int:
    """A number of 63 bits that stands for a client's attempt id, however long that is; 0 for a blank one."""
    if not attempt_id:
        return 0
    return int.from_bytes(blake2b(attempt_id.encode("utf-8", "replace"), digest_size=8).digest()) >> 1 or 1


class _Line(Struct, gc=False):
    """`hidden` counts its deliveries out of sight, `size` all in flight; `ready` holds the offsets of the others."""

    hidden: int = 0
    size: int = 0
    ready: list[int] = []


class FifoLedger(Ledger):
    """A ledger whose lines are in order. A batch is taken between `begin_batch` and `end_batch`.

    Within it `peek_due` gives the next message of each line that is free or that the batch holds already; `admits`
    says whether a new one may be delivered, else it is to `hold_back`. The one who took a batch may take it again
    with the same attempt key, as a client does whose answer was lost.
    """

    def __init__(self, cursor: int, *, capacity: int = MAX_IN_FLIGHT, in_flight: Iterable[Delivery] = ()) -> None:
        self._batch: set[int] = set()
        super().__init__(cursor, capacity=capacity, in_flight=in_flight)

    def begin_batch(self, now_ms: int) -> None:
        """What is delivered from here on is one batch, which may hold several messages of a line."""
        self._surface(now_ms)
        self._batch.clear()

    def end_batch(self, attempt_key: int, batch: Iterable[Delivery]) -> None:
        """The batch is complete; it was taken by this attempt (0: by one that will not ask again)."""
        self._batch.clear()
        for delivery in batch:
            self._assign(delivery, attempt_key)

    def admits(self, line: int) -> bool:
        """Whether a message at the cursor may be delivered: nothing of its line comes before it but in this batch."""
        held = self._lines.get(line)
        return held is None or (not held.hidden and not self._has_ready(held)) or line in self._batch

    def deliver(self, queue_offset: int, now_ms: int, invisible_ms: int, line: int = NO_GROUP) -> Delivery:
        """Deliver an offset of a line for the first time; see `Ledger.deliver`."""
        delivery = super().deliver(queue_offset, now_ms, invisible_ms)
        delivery.line = line
        held = self._lines.setdefault(line, _Line())
        held.size += 1
        held.hidden += 1
        self._batch.add(line)
        return delivery

    def hold_back(self, queue_offset: int, line: int) -> None:
        """Let an offset wait for its line; it takes room as a delivery does."""
        delivery = Delivery(queue_offset, 0, 0, 0, attempts=0, due=True, line=line)
        self._enter(delivery)
        self._due_count += 1
        held = self._lines.setdefault(line, _Line())
        held.size += 1
        self._make_ready(held, delivery)

    def redeliver(self, delivery: Delivery, now_ms: int, invisible_ms: int) -> None:
        """See `Ledger.redeliver`."""
        super().redeliver(delivery, now_ms, invisible_ms)
        self._batch.add(delivery.line)

    def hold(self, delivery: Delivery, now_ms: int, invisible_ms: int) -> None:
        """See `Ledger.hold`; nothing more of the line enters the batch."""
        super().hold(delivery, now_ms, invisible_ms)
        self._batch.discard(delivery.line)

    def peek_due(self, now_ms: int) -> Delivery | None:
        """The delivery of the lowest offset that its line lets go, or None."""
        self._surface(now_ms)
        return self._peek()

    @property
    def is_ready(self) -> bool:
        """Whether a free line has something to deliver."""
        return self._peek() is not None

    def next_due_ms(self) -> int | None:
        """When to look again (0: now); it may be too early by what keeps the line held longer."""
        return 0 if self.is_ready else self._next_hidden_ms()

    def repeat(self, attempt_key: int, now_ms: int) -> list[Delivery]:
        """What this attempt took and is out of sight and not acknowledged, by offset."""
        self._surface(now_ms)
        offsets = sorted(self._attempts.get(attempt_key, ())) if attempt_key else ()
        return [held for offset in offsets if not (held := self._in_flight[offset]).due]

    def _peek(self) -> Delivery | None:
        heap = self._free
        while heap:
            offset, line = heap[0]
            held = self._lines.get(line)
            if held is None or (held.hidden and line not in self._batch) or not self._has_ready(held):
                heappop(heap)
            elif held.ready[0] != offset:
                heapreplace(heap, (held.ready[0], line))
            else:
                return self._in_flight[offset]
        return None

    def _has_ready(self, held: _Line) -> bool:
        while held.ready:
            delivery = self._in_flight.get(held.ready[0])
            if delivery is not None and delivery.due:
                return True
            heappop(held.ready)
            self._rows -= 1
        return False

    def _make_ready(self, held: _Line, delivery: Delivery) -> None:
        heappush(held.ready, delivery.queue_offset)
        self._rows += 1
        self._offer(held, delivery.line)

    def _offer(self, held: _Line, line: int) -> None:
        if not held.hidden and self._has_ready(held):
            heappush(self._free, (held.ready[0], line))

    def _surface_delivery(self, delivery: Delivery) -> None:
        held = self._lines[delivery.line]
        held.hidden -= 1
        self._make_ready(held, delivery)

    def _hide(self, delivery: Delivery, now_ms: int, invisible_ms: int) -> None:
        if delivery.due:
            self._lines[delivery.line].hidden += 1
        super()._hide(delivery, now_ms, invisible_ms)

    def _remove(self, delivery: Delivery) -> None:
        self._assign(delivery, 0)
        line, held = delivery.line, self._lines[delivery.line]
        held.size -= 1
        if not held.size:
            del self._lines[line]
        if not delivery.due:
            held.hidden -= 1
        super()._remove(delivery)
        remaining = self._lines.get(line)
        if remaining is not None:
            self._offer(remaining, line)

    def _assign(self, delivery: Delivery, attempt_key: int) -> None:
        former = self._attempts.get(delivery.attempt_key)
        if former is not None:
            former.discard(delivery.queue_offset)
            if not former:
                del self._attempts[delivery.attempt_key]
        delivery.attempt_key = attempt_key
        if attempt_key:
            self._attempts.setdefault(attempt_key, set()).add(delivery.queue_offset)

    def _drop_stale(self) -> None:
        rows = len(self._hidden) + len(self._free) + self._rows
        if rows > 3 * len(self._in_flight) + _STALE_ROWS:
            self._rebuild()

    def _rebuild(self) -> None:
        super()._rebuild()
        self._ready.clear()
        self._lines: dict[int, _Line] = {}
        self._attempts: dict[int, set[int]] = {}
        for delivery in self._in_flight.values():
            held = self._lines.setdefault(delivery.line, _Line())
            held.size += 1
            if delivery.due:
                held.ready.append(delivery.queue_offset)
            else:
                held.hidden += 1
            if delivery.attempt_key:
                self._attempts.setdefault(delivery.attempt_key, set()).add(delivery.queue_offset)
        self._rows = self._due_count
        self._free = [
            (held.ready[0], line)
            for line, held in self._lines.items()
            if held.ready and (not held.hidden or line in self._batch)
        ]
        heapify(self._free)
