"""How values are distributed: plain counts by upper bound, read when somebody asks."""

from __future__ import annotations

from bisect import bisect_left

__all__ = ["Histogram"]


class Histogram:
    """Counts of values up to each bound (inclusive, ascending) and beyond the last one, and their sum."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: tuple[int, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total: float = 0

    def add(self, value: float, times: int = 1) -> None:
        """Count a value, `times` times."""
        self.counts[bisect_left(self.bounds, value)] += times
        self.total += value * times
