"""Visibility of stored messages: readers never see what a crash could take back."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from operator import itemgetter

from millstream.protocol.record import RecordOutline
from millstream.store.queue_table import AnyQueue

__all__ = ["Visibility"]


class Visibility:
    """The queue ends that wait for the log to be safe up to their records, in the order of the log."""

    def __init__(self) -> None:
        self._hidden: deque[tuple[int, list[tuple[AnyQueue, int]]]] = deque()

    def hide(self, log_end: int, ends: Iterable[tuple[AnyQueue, int]]) -> None:
        """Show these queue ends, each below its queue offset, not before the log is safe up to `log_end`."""
        self._hidden.append((log_end, [*ends]))

    def hide_found(self, found: Iterable[tuple[AnyQueue, RecordOutline, int]]) -> None:
        """Keep records that the log has, each with its queue and its size, out of sight until the log is safe there."""
        hidden: set[AnyQueue] = set()
        for queue, outline, size_bytes in found:
            if queue not in hidden:
                hidden.add(queue)
                queue.visible_offset = outline.queue_offset
            next_offset = outline.queue_offset + (outline.batch_count or 1)
            self._hidden.append((outline.log_offset + size_bytes, [(queue, next_offset)]))
        self._hidden = deque(sorted(self._hidden, key=itemgetter(0)))

    def show(self, safe_log_offset: int) -> None:
        """Let readers see what stands before the log offset."""
        while self._hidden and self._hidden[0][0] <= safe_log_offset:
            for queue, next_offset in self._hidden.popleft()[1]:
                queue.visible_offset = next_offset
