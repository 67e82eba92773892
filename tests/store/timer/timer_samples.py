"""A stand-in for the commit log, as far as timers know it: timer records and deliveries, in the order of the log."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from crash.file_twins import HastyFiles

from millstream.store.files import FileLayer
from millstream.store.timer.timer_log import TimerLog
from millstream.store.timer.timer_store import TimerStore

__all__ = ["NOW_MS", "SMALL_FILE_BYTES", "History", "open_small"]

NOW_MS = 1_700_000_000_000
SMALL_FILE_BYTES = 16 + 8 * 5
"""Room for five entries, so that an hour soon has several files."""


def open_small(directory: Path, history: History, files: FileLayer | None = None) -> TimerStore:
    """The timers of a directory with small files, nothing replayed yet."""
    log = TimerLog(directory, files or HastyFiles(), max_file_bytes=SMALL_FILE_BYTES)
    return TimerStore(log, queue_end=history.queue_end, log_end=len(history.log))


@dataclass
class History:
    """`log` holds a pair (due time, queue offset) for a timer record and a queue offset alone for what was done.

    An entry's index is its log offset. `flushed` is how much of it is on the disk.
    """

    log: list[tuple[int, int] | int] = field(default_factory=list)
    flushed: int = 0

    @property
    def queue_end(self) -> int:
        return max((entry[1] + 1 for entry in self.log if isinstance(entry, tuple)), default=0)

    @property
    def pending(self) -> dict[int, int]:
        """The model: the due time of each queue offset that is not done."""
        pending = {}
        for entry in self.log:
            if isinstance(entry, tuple):
                pending[entry[1]] = entry[0]
            else:
                pending.pop(entry, None)
        return pending

    def schedule(self, timers: TimerStore, due_ms: int, queue_offset: int | None = None) -> int:
        queue_offset = self.queue_end if queue_offset is None else queue_offset
        self.log.append((due_ms, queue_offset))
        assert timers.schedule(due_ms, queue_offset)
        return queue_offset

    def done(self, timers: TimerStore, queue_offset: int) -> None:
        self.log.append(queue_offset)
        assert timers.finish(queue_offset)

    def flush(self) -> None:
        self.flushed = len(self.log)

    def checkpoint(self, timers: TimerStore) -> None:
        timers.checkpoint(len(self.log), self.flush)

    def replay(self, timers: TimerStore) -> None:
        """What a broker does after a start."""
        for entry in self.log:
            if isinstance(entry, tuple) and entry[1] >= timers.covered_queue_offset:
                timers.schedule(*entry)
        for entry in self.log[timers.covered_log_offset :]:
            if isinstance(entry, int):
                timers.finish(entry)

    def assert_held_by(self, timers: TimerStore) -> None:
        """Each timer is exactly once pending or done, with its own due time."""
        pending = self.pending
        assert len(timers) == len(pending)
        assert {offset: timers.due_ms(offset) for offset in range(self.queue_end)} == {
            offset: pending.get(offset) for offset in range(self.queue_end)
        }
        assert timers.oldest_pending() == min(pending, default=None)
        latest_ms = max(pending.values(), default=0)
        expected = sorted(pending, key=lambda offset: (pending[offset], offset))
        assert timers.due(latest_ms, len(pending) + 1) == expected
