"""Deadlines of a port's calls in one table, so that a call needs no timer of its own. Pure."""

from __future__ import annotations

from typing import Final, Protocol

__all__ = ["TICK_S", "DeadlineTable", "HasDeadline"]

TICK_S: Final = 0.1
"""A call ends at its deadline or up to so many seconds later; its client has given it up by itself then."""

_TICK_S: Final = TICK_S
_MAX_WAIT_S: Final = 10 * 365 * 86_400.0
"""A call that may take longer has no deadline."""


class HasDeadline(Protocol):
    """What the table keeps of its place in it: 0 where it has none."""

    bucket: int


class DeadlineTable:
    """Entries by the tick in which they are due. Times are of the monotonic clock, in seconds."""

    __slots__ = ("_buckets", "_next_tick")

    def __init__(self) -> None:
        self._buckets: dict[int, dict[HasDeadline, None]] = {}
        self._next_tick = 0

    def __len__(self) -> int:
        return sum(map(len, self._buckets.values()))

    def add(self, entry: HasDeadline, due_s: float, now_s: float) -> None:
        """Note when an entry is due."""
        if due_s - now_s > _MAX_WAIT_S:
            return
        if not self._buckets:
            self._next_tick = int(now_s / _TICK_S)
        tick = max(int(due_s / _TICK_S) + 1, self._next_tick)
        bucket = self._buckets.get(tick)
        if bucket is None:
            bucket = self._buckets[tick] = {}
        bucket[entry] = None
        entry.bucket = tick

    def remove(self, entry: HasDeadline) -> None:
        """Forget an entry; a second time is no error."""
        tick = entry.bucket
        if not tick:
            return
        entry.bucket = 0
        bucket = self._buckets.get(tick)
        if bucket is not None:
            bucket.pop(entry, None)
            if not bucket:
                del self._buckets[tick]

    def take_due(self, now_s: float) -> list[HasDeadline]:
        """The entries that are due, which are forgotten."""
        tick = int(now_s / _TICK_S)
        found: list[HasDeadline] = []
        if not self._buckets:
            self._next_tick = tick
            return found
        if tick - self._next_tick > len(self._buckets):
            ticks = sorted(one for one in self._buckets if one <= tick)
        else:
            ticks = list(range(self._next_tick, tick + 1))
        for one in ticks:
            for entry in self._buckets.pop(one, ()):
                entry.bucket = 0
                found.append(entry)
        self._next_tick = tick + 1
        return found
