"""Gives freed memory back to the system: when much was freed, and while clients hold much.

What thousands of clients leave unread or unfinished comes and goes in buffers of all sizes. The C library keeps the
holes between them, which may be more than all the buffers; what lies in circles of objects waits for the search for
garbage, which a server makes seldom.
"""

from __future__ import annotations

import ctypes
import gc
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

__all__ = ["FreedMemory", "collect_garbage", "resident_bytes", "trim_heaps"]

_MUCH_BYTES: Final = 16 * 1024 * 1024
"""What clients hold at least, or held, for a look at the process's memory."""

_QUIET_S: Final = 3.0
_GIVE_BACK_INTERVAL_S: Final = 20.0

_GROWTH_BYTES: Final = 32 * 1024 * 1024
"""Bytes by which the process grows, while clients hold much, before its holes are given back."""

_LOOK_INTERVAL_S: Final = 0.25
_TRIM_SHARE: Final = 0.05
_COLLECTION_SHARE: Final = 0.005
"""Shares of the processor time that the two kinds of work may take: they stop the event loop. Holes of 200 MiB take
15 ms, a search for garbage 0.3 s with 8,000 sessions."""

_UNSEEN_BYTES: Final = 128 * 1024 * 1024
"""Bytes by which the process grows, since it gave back last, that count as held by clients although nobody said so:
what comes and goes between two sweeps is in no figure, and its holes stay."""

_COLLECTION_BYTES: Final = 64 * 1024 * 1024
"""What clients held at least before garbage is searched for: a busy server frees 16 MiB again and again."""


def trim_heaps() -> None:
    """Let the C library give freed memory back to the system; nothing where it cannot."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def collect_garbage() -> None:
    """Free what lies in circles of objects."""
    gc.collect()


def resident_bytes() -> int:
    """The process's own memory that is there, without mapped files; 0 where the system does not tell."""
    try:
        _, resident, shared = Path("/proc/self/statm").read_text().split()[:3]
    except (OSError, ValueError):
        return 0
    return (int(resident) - int(shared)) * os.sysconf("SC_PAGE_SIZE")


class FreedMemory:
    """Of one process. What clients hold is told by `sweep`; times are of the monotonic clock, in seconds. `timer` says
    how much processor time the work takes, which bounds how often it is done."""

    def __init__(
        self,
        *,
        trim: Callable[[], None] = trim_heaps,
        collect: Callable[[], None] = collect_garbage,
        resident: Callable[[], int] = resident_bytes,
        timer: Callable[[], float] = time.thread_time,
    ) -> None:
        self._trim = trim
        self._collect = collect
        self._resident = resident
        self._timer = timer
        self._most_bytes = 0
        self._less_since_s: float | None = None
        self._least_bytes: int | None = None
        """The process's memory at its least since the clients began to hold much, or since the last time."""
        self._settled_bytes: int | None = None
        """The process's memory at its least since it gave back last."""
        self._may_collect_s = 0.0
        self._may_give_back_s = 0.0
        self._may_look_s = 0.0

    def note_held(self, held_bytes: int) -> None:
        """Clients hold that much, some of which may be freed now."""
        self._most_bytes = max(self._most_bytes, held_bytes)

    def sweep(self, held_bytes: int, now_s: float) -> None:
        """Give back what is free, where it is much."""
        self.note_held(held_bytes)
        if held_bytes >= _MUCH_BYTES and now_s >= self._may_look_s:
            self._watch_growth(now_s)
        self._note_growth()
        if self._most_bytes < _MUCH_BYTES or held_bytes > self._most_bytes // 4:
            self._less_since_s = None
        elif self._less_since_s is None:
            self._less_since_s = now_s
        elif now_s - self._less_since_s >= _QUIET_S and now_s >= self._may_give_back_s:
            self._give_back(now_s)
            self._most_bytes, self._less_since_s = held_bytes, None

    def _note_growth(self) -> None:
        """Count what was held between two sweeps, as the process's memory shows it."""
        resident_bytes = self._resident()
        if self._settled_bytes is None or resident_bytes < self._settled_bytes:
            self._settled_bytes = resident_bytes
        grown_bytes = resident_bytes - self._settled_bytes
        if grown_bytes >= _UNSEEN_BYTES:
            self.note_held(grown_bytes)

    def _give_back(self, now_s: float) -> None:
        """Much was freed a while ago."""
        self._may_give_back_s = now_s + _GIVE_BACK_INTERVAL_S
        if self._most_bytes >= _COLLECTION_BYTES and now_s >= self._may_collect_s:
            self._may_collect_s = now_s + self._measure(self._collect) / _COLLECTION_SHARE
        self._trim()
        self._least_bytes = None
        self._settled_bytes = self._resident()

    def _watch_growth(self, now_s: float) -> None:
        """Give back the holes between buffers that are in use, once the process has grown."""
        self._may_look_s = now_s + _LOOK_INTERVAL_S
        resident_bytes = self._resident()
        if self._least_bytes is None or resident_bytes < self._least_bytes:
            self._least_bytes = resident_bytes
        elif resident_bytes >= self._least_bytes + _GROWTH_BYTES:
            self._may_look_s += self._measure(self._trim) / _TRIM_SHARE
            self._least_bytes = self._resident()

    def _measure(self, work: Callable[[], None]) -> float:
        began_s = self._timer()
        work()
        return self._timer() - began_s
