"""The timers due within one hour.

A timer is an integer of 63 bits here, its key: `milliseconds into the hour | queue offset from the hour's first one`.
So keys sort by due time and, within a millisecond, in the order of the queue; and a done timer's record on the disk is
the complement of its key.

A key goes from `folded` (unsorted, while the hour is far) to the slot of its second, and from there, sorted, to
`fired`. It stays in the order of due times because a slot is fired before what is due later is handed out. A timer
that is done leaves its key behind, which is dropped when it comes to the front.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterator

from millstream.store.timer.pending_offsets import PendingOffsets

__all__ = ["HOUR_MS", "MAX_OFFSET_SPAN", "OFFSET_BITS", "Hour"]

HOUR_MS = 3_600_000
OFFSET_BITS = 41
MAX_OFFSET_SPAN = 1 << OFFSET_BITS
"""How far behind the first queue offset of an hour its others may lie: 2.2 million million timers."""

_OFFSET = MAX_OFFSET_SPAN - 1
_SECONDS = 3600
_SECOND_MS = 1000
_KEPT_HANDED_OUT = 4096
"""Keys at the front of `fired` that are over before they are removed, if they are also half of it."""


class Hour:
    """Timers with a due time from `number` hours after 1970 on, and queue offsets from `base_offset` on.

    `unsaved` are the keys and complements that are not on the disk yet. Costs 15 KB, 29 KB more once it is near, and
    8 bytes a timer.
    """

    __slots__ = (
        "_fired", "_folded", "_head", "_next_second", "_slots", "_sorted_second",
        "base_offset", "number", "pending", "seconds", "start_ms", "unsaved",
    )  # fmt: skip

    def __init__(self, number: int, base_offset: int) -> None:
        self.number = number
        self.base_offset = base_offset
        self.start_ms = number * HOUR_MS
        self.pending = 0
        self.seconds = array("I", bytes(4 * _SECONDS))  # pending timers by second
        self.unsaved = array("q")
        self._folded = array("q")
        self._slots: list[array[int] | None] | None = None
        self._next_second = 0  # no slot before it holds anything
        self._sorted_second = -1  # the slot that has been sorted because part of it was due
        self._fired = array("q")
        self._head = 0  # where `fired` begins

    def add(self, due_ms: int, queue_offset: int) -> None:
        """Schedule a timer of this hour; its queue offset is greater than those before it."""
        since_ms = due_ms - self.start_ms
        key = since_ms << OFFSET_BITS | queue_offset - self.base_offset
        self.unsaved.append(key)
        self.pending += 1
        second = since_ms // _SECOND_MS
        self.seconds[second] += 1
        if self._slots is None:
            self._folded.append(key)
        else:
            self._put(self._slots, second, key)

    def remove(self, due_ms: int, queue_offset: int) -> None:
        """Note that a pending timer is done."""
        since_ms = due_ms - self.start_ms
        self.unsaved.append(~(since_ms << OFFSET_BITS | queue_offset - self.base_offset))
        self.pending -= 1
        self.seconds[since_ms // _SECOND_MS] -= 1

    def restore(self, keys: array[int]) -> Iterator[tuple[int, int]]:
        """Fill a new hour with the keys that are on the disk; gives for each its queue offset and due time."""
        self._folded = keys
        self.pending = len(keys)
        base, start_ms, seconds = self.base_offset, self.start_ms, self.seconds
        for key in keys:
            since_ms = key >> OFFSET_BITS
            seconds[since_ms // _SECOND_MS] += 1
            yield base + (key & _OFFSET), start_ms + since_ms

    def unfold(self, max_count: int) -> None:
        """Bring at most `max_count` keys into the slots of their seconds, where `due` looks for them."""
        if self._slots is None:
            self._slots = [None] * _SECONDS
        first = max(len(self._folded) - max_count, 0)
        for key in self._folded[first:]:
            self._put(self._slots, (key >> OFFSET_BITS) // _SECOND_MS, key)
        del self._folded[first:]

    def _put(self, slots: list[array[int] | None], second: int, key: int) -> None:
        slot = slots[second]
        if slot is None:
            slots[second] = array("q", (key,))
            if second < self._next_second:
                self._next_second = second
        else:
            slot.append(key)
            if second == self._sorted_second:
                self._sorted_second = -1

    def pending_before(self, time_ms: int) -> int:
        """How many pending timers are due before a time, which is rounded down to the second."""
        second = (time_ms - self.start_ms) // _SECOND_MS
        if second >= _SECONDS:
            return self.pending
        return sum(self.seconds[: max(second, 0)])

    def due(self, now_ms: int, max_count: int, pending: PendingOffsets) -> list[int]:
        """The queue offsets of the first pending timers that are due now, or were at an earlier call."""
        last_ms = now_ms - self.start_ms
        if last_ms >= 0:
            self.unfold(len(self._folded))
        if self._head < len(self._fired):
            before_last_ms = min(last_ms, self._fired[-1] >> OFFSET_BITS)
            while self._fire_next(before_last_ms):
                pass
        while True:
            while len(self._fired) - self._head < max_count and self._fire_next(last_ms):
                pass
            found = self._first_fired(max_count, pending)
            if len(found) == max_count or not self._fire_next(last_ms):
                return found

    def keep_due(self, last_now_ms: int, below_offset: int) -> None:
        """Make the timers that were due at `last_now_ms` stay due, whatever time it is by now.

        Only those whose queue offset is below `below_offset`: the others were scheduled after that time.
        """
        last_ms = last_now_ms - self.start_ms
        if last_ms < 0:
            return
        self.unfold(len(self._folded))
        assert self._slots is not None
        limit, below = (last_ms + 1) << OFFSET_BITS, below_offset - self.base_offset
        for second in range(self._next_second, min(last_ms // _SECOND_MS + 1, _SECONDS)):
            slot = self._slots[second]
            if slot is not None:
                ready = [key for key in slot if key < limit and key & _OFFSET < below]
                left = [key for key in slot if key >= limit or key & _OFFSET >= below]
                self._slots[second] = array("q", left) if left else None
                self._append_fired(array("q", sorted(ready)))

    def _fire_next(self, last_ms: int) -> bool:
        """Fire what is due by `last_ms` in the first second that has something; whether there was any."""
        slots = self._slots
        if slots is None:
            return False
        end = min(last_ms // _SECOND_MS + 1, _SECONDS)
        for second in range(self._next_second, end):
            slot = slots[second]
            if slot is not None:
                self._next_second = second
                return self._fire(slots, second, slot, last_ms)
        self._next_second = max(self._next_second, end)
        return False

    def _fire(self, slots: list[array[int] | None], second: int, slot: array[int], last_ms: int) -> bool:
        if second != self._sorted_second:
            slot = slots[second] = array("q", sorted(slot))
            self._sorted_second = second
        count = bisect_left(slot, (last_ms + 1) << OFFSET_BITS)
        if not count:
            return False
        slots[second] = slot[count:] or None
        self._append_fired(slot[:count])
        return True

    def _append_fired(self, ready: array[int]) -> None:
        fired = self._fired
        if self._head == len(fired):
            self._fired, self._head = ready, 0
        elif ready and ready[0] < fired[-1]:
            self._fired, self._head = array("q", sorted([*fired[self._head :], *ready])), 0
        else:
            fired.extend(ready)

    def _first_fired(self, max_count: int, pending: PendingOffsets) -> list[int]:
        fired, base, due_ms = self._fired, self.base_offset, pending.due_ms
        kept: list[int] = []
        end = self._head
        while end < len(fired) and len(kept) < max_count:
            key = fired[end]
            end += 1
            if due_ms(base + (key & _OFFSET)) is not None:
                kept.append(key)
        head = end - len(kept)
        if head != self._head:
            fired[head:end] = array("q", kept)
            if head >= _KEPT_HANDED_OUT and head * 2 > len(fired):
                del fired[:head]
                head = 0
            self._head = head
        return [base + (key & _OFFSET) for key in kept]
