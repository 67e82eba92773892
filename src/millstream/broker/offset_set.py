"""A set of offsets, kept as stretches: what was done of a queue, in any order, at the cost of its gaps. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable

__all__ = ["OffsetSet"]


class OffsetSet:
    """Offsets of one queue. `stretches` are begin and end (not included), sorted, apart from each other."""

    def __init__(self, stretches: Iterable[tuple[int, int]] = ()) -> None:
        held = [(begin, end) for begin, end in stretches if begin < end]
        self._begins = [begin for begin, _ in held]
        self._ends = [end for _, end in held]

    def __contains__(self, offset: int) -> bool:
        index = bisect_right(self._begins, offset) - 1
        return index >= 0 and offset < self._ends[index]

    @property
    def stretches(self) -> list[tuple[int, int]]:
        """The stretches that it was made of, or became."""
        return list(zip(self._begins, self._ends, strict=True))

    def add(self, offset: int) -> None:
        """Hold one offset more; nothing if it is held."""
        if offset in self:
            return
        index = bisect_right(self._begins, offset)
        joins_left = index > 0 and self._ends[index - 1] == offset
        joins_right = index < len(self._begins) and self._begins[index] == offset + 1
        if joins_left and joins_right:
            self._ends[index - 1] = self._ends.pop(index)
            del self._begins[index]
        elif joins_left:
            self._ends[index - 1] = offset + 1
        elif joins_right:
            self._begins[index] = offset
        else:
            self._begins.insert(index, offset)
            self._ends.insert(index, offset + 1)

    def drop_below(self, offset: int) -> None:
        """Forget what lies below `offset`, where the queue begins by now."""
        keep = bisect_right(self._ends, offset)
        del self._begins[:keep], self._ends[:keep]
        if self._begins and self._begins[0] < offset:
            self._begins[0] = offset

    def drop_from(self, offset: int) -> None:
        """Forget what lies at `offset` or behind it, where the queue ends by now."""
        keep = bisect_right(self._begins, offset - 1)
        del self._begins[keep:], self._ends[keep:]
        if self._ends and self._ends[-1] > offset:
            self._ends[-1] = offset
