"""What the remoting connections of a process hold in memory before it is a request and after it is an answer.

One for all remoting servers of a process, whatever their ports: their limits are limits of the process.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Final

from millstream.transport.half_frames import UNSIGNED_AHEAD_BYTES, UNSIGNED_BUDGET_BYTES, HalfFrames
from millstream.transport.late_answers import LateAnswers
from millstream.transport.unread_answers import UnreadAnswers

__all__ = ["SWEEP_INTERVAL_S", "ConnectionMemory", "give_back_freed_memory"]

SWEEP_INTERVAL_S: Final = 1.0
"""How often the server looks for frames and answers whose time is over."""

_MUCH_BYTES: Final = 16 * 1024 * 1024
_QUIET_S: Final = 3.0
_GIVE_BACK_INTERVAL_S: Final = 20.0


def give_back_freed_memory() -> None:
    """Let the C library give freed memory back to the system; nothing where it cannot. Takes about 0.1 s a GiB."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


class ConnectionMemory:
    """`give_back` is called some seconds after much memory was freed. Times are of the monotonic clock, in seconds."""

    def __init__(self, *, give_back: Callable[[], None] = give_back_freed_memory) -> None:
        self.frames = HalfFrames()
        self.unsigned_frames = HalfFrames(UNSIGNED_BUDGET_BYTES, UNSIGNED_AHEAD_BYTES)
        """Those of the connections that have not signed a request yet, where access control is on."""
        self.answers = UnreadAnswers()
        self.late_answers = LateAnswers()
        self._give_back = give_back
        self._most_bytes = 0
        self._less_since_s: float | None = None
        self._may_give_back_s = 0.0

    @property
    def used_bytes(self) -> int:
        """What is held now."""
        return self.frames.used_bytes + self.unsigned_frames.used_bytes + self.answers.used_bytes

    def sweep(self, now_s: float) -> None:
        """End what takes too long; to be called every `SWEEP_INTERVAL_S`."""
        # Before: what is freed here was there.
        self._most_bytes = max(self._most_bytes, self.used_bytes)
        self.frames.sweep(now_s)
        self.unsigned_frames.sweep(now_s)
        self.answers.sweep(now_s)
        if self._most_bytes < _MUCH_BYTES or self.used_bytes > self._most_bytes // 4:
            self._less_since_s = None
        elif self._less_since_s is None:
            self._less_since_s = now_s
        elif now_s - self._less_since_s >= _QUIET_S and now_s >= self._may_give_back_s:
            self._may_give_back_s = now_s + _GIVE_BACK_INTERVAL_S
            self._most_bytes, self._less_since_s = self.used_bytes, None
            self._give_back()
