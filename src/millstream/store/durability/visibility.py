"""What is stored and not yet to be seen: a reader never sees what a crash could take back."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from millstream.store.queue_table import AnyQueue

__all__ = ["Visibility"]


class Visibility:
    """The queue ends that wait for the log to be safe up to their records, in the order of the log."""

    def __init__(self) -> None:
        self._hidden: deque[tuple[int, list[tuple[AnyQueue, int]]]] = deque()

    def hide(self, log_end: int, ends: Iterable[tuple[AnyQueue, int]]) -> None:
        """Show these queue ends, each below its queue offset, not before the log is safe up to `log_end`."""
        self._hidden.append((log_end, [*ends]))

    def show(self, safe_log_offset: int) -> None:
        """Let readers see what stands before the log offset."""
        while self._hidden and self._hidden[0][0] <= safe_log_offset:
            for queue, next_offset in self._hidden.popleft()[1]:
                queue.visible_offset = next_offset
