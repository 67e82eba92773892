"""The timer wheel: pure; time is passed in, and changes to save are returned.

Timers live in the hour of their due time (`Hour`), and every pending one in `PendingOffsets`.
"""

from __future__ import annotations

from array import array
from bisect import insort
from collections.abc import Sequence
from itertools import chain, pairwise
from typing import NamedTuple

from millstream.model.errors import MessageRefused
from millstream.store.timer.hour import HOUR_MS, MAX_OFFSET_SPAN, Hour
from millstream.store.timer.pending_offsets import MAX_DUE_MS, PendingOffsets

__all__ = ["UNFOLD_STEP", "HourChange", "Wheel"]

UNFOLD_STEP = 4096
"""Timers of the hour to come that one call of `due` makes ready, so that no call pays for the whole hour."""


class HourChange(NamedTuple):
    """An hour that has pending timers, and what happened in it since it was last saved (see `Hour`)."""

    number: int
    base_offset: int
    pending: int
    keys: array[int]


class Wheel:
    """The timers whose queue offset is below `next_queue_offset` and that are not done.

    A timer that was due at one call of `due` stays due, even if the clock steps back.
    """

    def __init__(self, next_queue_offset: int = 0) -> None:
        self.next_queue_offset = next_queue_offset
        self.unsaved = 0
        self._pending = PendingOffsets()
        self._hours: dict[int, Hour] = {}
        self._order: list[int] = []
        self._last_now_ms = 0
        self._last_next_offset = 0  # `next_queue_offset` at the last call of `due`
        self._latest_ms = 0

    def __len__(self) -> int:
        return len(self._pending)

    def restore(self, saved: list[HourChange]) -> None:
        """Fill an empty wheel with what was saved: the keys of pending timers only."""
        hours = (self._new_hour(change.number, change.base_offset).restore(change.keys) for change in saved)
        self._pending.restore(chain.from_iterable(hours))

    def schedule(self, due_ms: int, queue_offset: int) -> bool:
        """Add a timer; False, and nothing changes, for a queue offset below `next_queue_offset`.

        Raises ILLEGAL_DELIVERY_TIME for a time before 1970 or behind `MAX_DUE_MS`.
        """
        if queue_offset < self.next_queue_offset:
            return False
        if not 0 <= due_ms <= MAX_DUE_MS:
            raise MessageRefused("ILLEGAL_DELIVERY_TIME", f"{due_ms} ms since 1970 is no time that a timer can have.")
        number = due_ms // HOUR_MS
        hour = self._hours.get(number)
        if hour is None:
            hour = self._new_hour(number, queue_offset)
        elif queue_offset - hour.base_offset >= MAX_OFFSET_SPAN:
            raise ValueError(f"queue offset {queue_offset} is too far from {hour.base_offset} for one hour")
        hour.add(due_ms, queue_offset)
        self._pending.append(queue_offset, due_ms)
        self.next_queue_offset = queue_offset + 1
        self.unsaved += 1
        return True

    def _new_hour(self, number: int, base_offset: int) -> Hour:
        hour = self._hours[number] = Hour(number, base_offset)
        if number <= self._last_now_ms // HOUR_MS + 1:
            hour.unfold(0)
        insort(self._order, number)
        return hour

    def due_ms(self, queue_offset: int) -> int | None:
        """When the timer is due, or None if it is not pending."""
        return self._pending.due_ms(queue_offset)

    def due(self, now_ms: int, max_count: int) -> list[int]:
        """The queue offsets of the first timers that are due and not done, earliest first."""
        if now_ms < self._last_now_ms:
            for number in self._order:
                self._hours[number].keep_due(self._last_now_ms, self._last_next_offset)
        self._last_now_ms, self._last_next_offset = now_ms, self.next_queue_offset
        self._latest_ms = max(self._latest_ms, now_ms)
        following = self._hours.get(now_ms // HOUR_MS + 1)
        if following is not None:
            following.unfold(UNFOLD_STEP)
        found: list[int] = []
        for number in self._order:
            hour = self._hours[number]
            if len(found) >= max_count or hour.start_ms > self._latest_ms:
                break
            if hour.pending:
                found += hour.due(now_ms, max_count - len(found), self._pending)
        return found

    def finish(self, queue_offset: int) -> bool:
        """Take a timer out for good; False if it is not pending."""
        due_ms = self._pending.remove(queue_offset)
        if due_ms is None:
            return False
        self._hours[due_ms // HOUR_MS].remove(due_ms, queue_offset)
        self.unsaved += 1
        return True

    def oldest_pending(self) -> int | None:
        """The smallest queue offset that is pending, or None."""
        return self._pending.oldest()

    def counts(self, now_ms: int, bounds_s: Sequence[int]) -> list[int]:
        """How many timers are due in up to so many seconds, by these ascending bounds, and how many behind the last
        one: each timer counts in one of the numbers.
        """
        limits_ms = [now_ms + bound_s * 1000 for bound_s in bounds_s]
        before = [sum(hour.pending_before(limit_ms) for hour in self._hours.values()) for limit_ms in limits_ms]
        return [later - earlier for earlier, later in pairwise([0, *before, len(self)])]

    def take_changes(self) -> list[HourChange]:
        """All hours with pending timers and what is unsaved in them; the other hours are forgotten."""
        self._order = [number for number in self._order if self._hours[number].pending]
        self._hours = {number: self._hours[number] for number in self._order}
        changes = []
        for hour in self._hours.values():
            changes.append(HourChange(hour.number, hour.base_offset, hour.pending, hour.unsaved))
            hour.unsaved = array("q")
        self.unsaved = 0
        return changes

    def give_back(self, changes: list[HourChange]) -> None:
        """Take changes that could not be saved as unsaved again."""
        for change in changes:
            hour = self._hours[change.number]
            hour.unsaved = change.keys + hour.unsaved
            self.unsaved += len(change.keys)
