"""How long things took, to three digits or so: counts in buckets whose width grows with the value, as in HdrHistogram.

Each power of two has 128 buckets, so what is read is at most 0.8 % too high; the maximum is exact.
"""

from __future__ import annotations

from typing import Final

__all__ = ["LatencyRecorder"]

_SUB_BITS: Final = 7
_SUB_BUCKETS: Final = 1 << _SUB_BITS
_MAX_US: Final = (1 << 36) - 1
"""About 19 hours; longer times count as that long, but for the maximum."""

_BUCKETS: Final = (36 - _SUB_BITS + 1) * _SUB_BUCKETS


class LatencyRecorder:
    """Takes times in seconds and tells percentiles in milliseconds. Its size does not depend on how many it took."""

    def __init__(self) -> None:
        self._counts = [0] * _BUCKETS
        self.count = 0
        self._max_us = 0

    def add(self, seconds: float) -> None:
        """Count one time; a negative one, as of a clock that was set, counts as none."""
        microseconds = max(0, round(seconds * 1e6))
        self._counts[_bucket_of(min(microseconds, _MAX_US))] += 1
        self.count += 1
        if microseconds > self._max_us:
            self._max_us = microseconds

    @property
    def max_ms(self) -> float | None:
        """The longest time; None if there was none."""
        return self._max_us / 1000 if self.count else None

    def percentile_ms(self, percent: float) -> float | None:
        """The time that so many percent did not exceed; None if there was none."""
        if not self.count:
            return None
        wanted = max(1, -(-self.count * percent // 100))
        seen = 0
        for bucket, count in enumerate(self._counts):
            seen += count
            if seen >= wanted:
                return min(_upper_us(bucket), self._max_us) / 1000
        return self._max_us / 1000


def _bucket_of(microseconds: int) -> int:
    shift = max(0, microseconds.bit_length() - _SUB_BITS - 1)
    return (shift << _SUB_BITS) + (microseconds >> shift)


def _upper_us(bucket: int) -> int:
    """The greatest value that the bucket counts."""
    shift = max(0, (bucket >> _SUB_BITS) - 1)
    return ((bucket - (shift << _SUB_BITS) + 1) << shift) - 1
