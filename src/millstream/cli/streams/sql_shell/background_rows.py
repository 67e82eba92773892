"""Rows of background jobs that arrived while the user was typing."""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from millstream.streams.jobs.progress import ResultRows

__all__ = ["BackgroundRows"]

_ROWS_KEPT = 20
"""Rows of each print sink that wait for the next prompt."""


class BackgroundRows:
    """Rows of print sinks that came while the user typed: the newest of each, shown before the next prompt."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._results: dict[str, deque[ResultRows]] = {}
        self._counts: dict[str, int] = {}

    def add(self, result: ResultRows) -> None:
        """Rows arrived, in any thread."""
        with self._lock:
            waiting = self._results.setdefault(result.sink, deque())
            waiting.append(result)
            self._counts[result.sink] = self._counts.get(result.sink, 0) + len(result.rows)
            while len(waiting) > 1 and sum(len(one.rows) for one in waiting) - len(waiting[0].rows) >= _ROWS_KEPT:
                waiting.popleft()

    def take(self) -> list[tuple[ResultRows, int]]:
        """What came since the last call, at most the newest few rows of each sink, and how many came in all."""
        with self._lock:
            results, counts = self._results, self._counts
            self._results, self._counts = {}, {}
        return [(_newest(waiting), counts[sink]) for sink, waiting in results.items()]


def _newest(waiting: deque[ResultRows]) -> ResultRows:
    from dataclasses import replace

    rows = [row for one in waiting for row in one.rows][-_ROWS_KEPT:]
    kinds = [kind for one in waiting for kind in one.kinds or ()][-_ROWS_KEPT:]
    return replace(waiting[-1], rows=rows, kinds=kinds or None)
