"""Counters and distributions: plain numbers that cost one dictionary lookup, read on scrape."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Hashable, Iterator
from typing import Final, TypeVar

__all__ = ["LATENCY_BOUNDS_MS", "MAX_RPC_SERIES", "Counters", "Histogram", "LatencyRecorder", "RpcLatency"]


_K = TypeVar("_K", bound=Hashable)
_V = TypeVar("_V")


class Counters(dict[_K, _V]):
    """Values by key, made at first use; once there are `capacity` of them, all further keys share `other`.

    The first keys keep their own value, so that no counter ever jumps back; a key that is deleted makes room.
    """

    def __init__(self, make: Callable[[], _V], capacity: int) -> None:
        super().__init__()
        self._make = make
        self._capacity = capacity
        self.other: _V | None = None
        """What keys beyond the capacity share; None while all have a value of their own."""

    def __missing__(self, key: _K) -> _V:
        if len(self) < self._capacity:
            value = self[key] = self._make()
            return value
        if self.other is None:
            self.other = self._make()
        return self.other

    def rows(self) -> Iterator[tuple[_K | None, _V]]:
        """All keys with their values as of now, and at last None with what the others share, if there are any."""
        yield from list(self.items())
        if self.other is not None:
            yield None, self.other


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


LATENCY_BOUNDS_MS: Final = (1, 3, 5, 7, 10, 100, 1000, 2000, 3000)
"""RocketMQ's own bounds."""

MAX_RPC_SERIES: Final = 500
"""Pairs of request and response code of one server that are distinguished at most."""


def _histogram() -> Histogram:
    return Histogram(LATENCY_BOUNDS_MS)


class RpcLatency(Counters[tuple[int | str, int], Histogram]):
    """Histograms in milliseconds by request (a code, or the name of an RPC) and response code."""

    def __init__(self) -> None:
        super().__init__(_histogram, MAX_RPC_SERIES)

    def note(self, request: int | str, response_code: int, elapsed_s: float, times: int = 1) -> None:
        """Count a request, or as many as were answered together."""
        histogram = self[request, response_code]
        elapsed_ms = elapsed_s * 1000
        # In place, not by `add`: this runs for every request.
        histogram.counts[bisect_left(LATENCY_BOUNDS_MS, elapsed_ms)] += times
        histogram.total += elapsed_ms * times
