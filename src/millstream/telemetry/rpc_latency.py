"""How long requests took, by what was asked and what was answered."""

from __future__ import annotations

from bisect import bisect_left
from typing import Final

from millstream.telemetry.counters import Counters
from millstream.telemetry.histogram import Histogram

__all__ = ["LATENCY_BOUNDS_MS", "MAX_RPC_SERIES", "RpcLatency"]

LATENCY_BOUNDS_MS: Final = (1, 3, 5, 7, 10, 100, 1000, 2000, 3000)
"""RocketMQ's own bounds."""

MAX_RPC_SERIES: Final = 500
"""Pairs of request and response code of one server that are told apart at most."""


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
