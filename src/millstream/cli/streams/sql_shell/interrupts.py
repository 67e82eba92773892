"""Handles Ctrl-C and SIGTERM in the shell."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["Interrupts"]


class Interrupts:
    """Sets `stopped` at Ctrl-C and SIGTERM; `terminated` tells the second.

    No exception comes in the middle of a call to Spark, whose connection it would break. Only while a line is read
    (`reading`) KeyboardInterrupt is raised, or EOFError for SIGTERM.
    """

    def __init__(self) -> None:
        self.stopped = threading.Event()
        self.terminated = False
        self._is_reading = False

    def install(self) -> None:
        """Take the signals over; to be called in the main thread."""
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._take)

    @contextmanager
    def reading(self) -> Iterator[None]:
        """While a line is read."""
        self._is_reading = True
        try:
            yield
        finally:
            self._is_reading = False

    def _take(self, number: int, _frame: object) -> None:
        self.stopped.set()
        self.terminated = self.terminated or number == signal.SIGTERM
        if self._is_reading:
            raise EOFError if self.terminated else KeyboardInterrupt
