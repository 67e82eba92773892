"""Pending timers by queue offset, with due times: 8 bytes a timer, in pages of 2,048 offsets.

An entry is an integer of 59 bits, `offset in its page | due time`, so each page is sorted by the offset. A page goes
when its last timer is done.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable

__all__ = ["MAX_DUE_MS", "PendingOffsets"]

_DUE_BITS = 48
MAX_DUE_MS = (1 << _DUE_BITS) - 1
"""The latest due time that fits into an entry: in the year 10889."""

_PAGE_BITS = 11
_IN_PAGE = (1 << _PAGE_BITS) - 1


class PendingOffsets:
    """A sorted map of queue offset to due time. A lonely timer in its page costs some 200 bytes."""

    def __init__(self) -> None:
        self._pages: dict[int, array[int]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def append(self, queue_offset: int, due_ms: int) -> None:
        """Add a queue offset that is greater than all that were ever there."""
        number = queue_offset >> _PAGE_BITS
        page = self._pages.get(number)
        if page is None:
            page = self._pages[number] = array("q")
        page.append((queue_offset & _IN_PAGE) << _DUE_BITS | due_ms)
        self._count += 1

    def restore(self, timers: Iterable[tuple[int, int]]) -> None:
        """Fill an empty map with pairs of queue offset and due time in any order."""
        pages = self._pages
        for queue_offset, due_ms in timers:
            number = queue_offset >> _PAGE_BITS
            page = pages.get(number)
            if page is None:
                page = pages[number] = array("q")
            page.append((queue_offset & _IN_PAGE) << _DUE_BITS | due_ms)
        self._pages = {number: array("q", sorted(pages[number])) for number in sorted(pages)}
        self._count = sum(map(len, pages.values()))

    def due_ms(self, queue_offset: int) -> int | None:
        """When the timer is due, or None if there is none that is pending."""
        page = self._pages.get(queue_offset >> _PAGE_BITS)
        if page is None:
            return None
        entry = (queue_offset & _IN_PAGE) << _DUE_BITS
        at = bisect_left(page, entry)
        if at == len(page) or page[at] ^ entry > MAX_DUE_MS:
            return None
        return page[at] & MAX_DUE_MS

    def remove(self, queue_offset: int) -> int | None:
        """Take the timer out and return when it was due, or None if there is none that is pending."""
        number = queue_offset >> _PAGE_BITS
        page = self._pages.get(number)
        if page is None:
            return None
        entry = (queue_offset & _IN_PAGE) << _DUE_BITS
        at = bisect_left(page, entry)
        if at == len(page) or page[at] ^ entry > MAX_DUE_MS:
            return None
        due_ms = page.pop(at) & MAX_DUE_MS
        self._count -= 1
        if not page:
            del self._pages[number]
        return due_ms

    def oldest(self) -> int | None:
        """The smallest queue offset that is pending, or None."""
        for number, page in self._pages.items():
            return number << _PAGE_BITS | page[0] >> _DUE_BITS
        return None
