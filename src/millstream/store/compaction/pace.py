"""The pauses of compactions: they compute in a thread, and clients wait for the interpreter meanwhile."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

__all__ = ["CLIENTS_SHARE", "MAX_PAUSES_S", "STEP_RECORDS", "CompactionPace"]

CLIENTS_SHARE: Final = 0.9
"""Share of the time in which compactions leave the interpreter to clients. They take all that they get where records
come faster than that is enough for, where the disk is full, and before records that they need are removed."""

STEP_RECORDS: Final = 64
"""Records between two looks whether a compaction should pause: some 0.6 ms, for which a client may wait."""

MAX_PAUSES_S: Final = 60.0
"""Seconds for which the compactions of one round pause altogether; old messages are removed after them."""

_STEP_S: Final = 0.0005


class CompactionPace:
    """Has a thread that computes pause so long that it takes no more than its share. One thread rests at a time.

    `cpu_s` tells the processor time of the calling thread, `wait` waits until the event is set, or for the seconds.
    """

    def __init__(
        self,
        *,
        cpu_s: Callable[[], float] = time.thread_time,
        wait: Callable[[threading.Event, float], bool] = threading.Event.wait,
    ) -> None:
        self._cpu_s = cpu_s
        self._wait = wait
        self._spent_s: float | None = None
        self._left_s = MAX_PAUSES_S
        self._hurries = threading.Event()

    def begin(self) -> None:
        """A round begins; it pauses again, whatever the last one was told."""
        self._hurries.clear()
        self._spent_s, self._left_s = None, MAX_PAUSES_S

    def rest(self) -> None:
        """Pause for what the calling thread did since it rested last; return at once where that was little."""
        if self._spent_s is None:
            self._spent_s = self._cpu_s()
            return
        worked_s = self._cpu_s() - self._spent_s
        if worked_s < _STEP_S or self._hurries.is_set():
            return
        pause_s = min(worked_s * CLIENTS_SHARE / (1.0 - CLIENTS_SHARE), self._left_s)
        if pause_s > 0.0:
            self._left_s -= pause_s
            self._wait(self._hurries, pause_s)
        self._spent_s = self._cpu_s()

    def hurry(self) -> None:
        """End the pause that is under way, and pause no more in this round. For any thread."""
        self._hurries.set()
