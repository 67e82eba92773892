"""The timers of one broker: which records of its timer topic are due when, and which are delivered.

A timer is a record of the timer topic's queue, known by its queue offset. The log is the truth: what is here can be
made again from the timer topic and from the records that were delivered. So nothing here waits for a disk but
`checkpoint`, which bounds how much of the log a start has to look at again.

After `open` the caller goes through the log once more: `schedule` for each timer record from `covered_queue_offset` on,
then `done` for each delivery or cancellation from `covered_log_offset` on. What is known already is passed over. Then
each timer is exactly once pending or done.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Self

from millstream.store.files import FileLayer
from millstream.store.timer.timer_log import TimerLog
from millstream.store.timer.wheel import Wheel

__all__ = ["MAX_PENDING", "UNSAVED_LIMIT", "TimerStore"]

MAX_PENDING = 10_000_000
"""Pending timers from which on `is_full` asks the caller to accept no more; bounds the memory at some 200 MB."""

UNSAVED_LIMIT = 1_000_000
"""Changes from which on `needs_checkpoint` is set; bounds the memory that they take (8 bytes each)."""


class TimerStore:
    """The timers in one directory. Every call is fit for any thread, and short but for `checkpoint`."""

    def __init__(self, log: TimerLog, *, queue_end: int, log_end: int) -> None:
        self._log = log
        self._mutex = threading.Lock()
        self._checkpoint_mutex = threading.Lock()  # taken before the other
        loaded = log.load(queue_end=queue_end, log_end=log_end)
        self._wheel = Wheel(loaded.covered_queue_offset if loaded is not None else 0)
        if loaded is not None:
            self._wheel.restore(loaded.hours)
        self.needs_rebuild = loaded is None and queue_end > 0
        """At the start nothing could be used: all of the timer topic and of the log has to be gone through."""
        self.covered_queue_offset = loaded.covered_queue_offset if loaded is not None else 0
        """All timer records below this queue offset are known after a crash."""
        self.covered_log_offset = loaded.covered_log_offset if loaded is not None else 0
        """All deliveries and cancellations below this log offset are known after a crash."""

    @classmethod
    def open(cls, directory: Path, *, queue_end: int, log_end: int, files: FileLayer | None = None) -> Self:
        """The timers as of the last checkpoint; see the module for what the caller does next.

        `queue_end` and `log_end` are where the timer topic's queue and the log end: a checkpoint that covers more is of
        no use. Raises STORE_FORMAT for a file of another release, and OSError.
        """
        return cls(TimerLog(directory, files or FileLayer()), queue_end=queue_end, log_end=log_end)

    def schedule(self, due_ms: int, queue_offset: int) -> bool:
        """Add the timer of a record; False if it is known already. Call it in the order of the timer topic.

        Raises ILLEGAL_DELIVERY_TIME for a time before 1970 or behind the year 10889; every other time is kept.
        """
        with self._mutex:
            return self._wheel.schedule(due_ms, queue_offset)

    def due(self, now_ms: int, max_count: int) -> list[int]:
        """The queue offsets of at most `max_count` timers that are due, earliest first, then in the queue's order.

        They are handed out again until they are done. What was due at one call stays due if the clock steps back.
        """
        with self._mutex:
            return self._wheel.due(now_ms, max_count)

    def finish(self, queue_offset: int) -> bool:
        """Note that the record was delivered or cancelled, due or not; False if it is not pending.

        Call it when what says so stands in the log.
        """
        with self._mutex:
            return self._wheel.finish(queue_offset)

    def due_ms(self, queue_offset: int) -> int | None:
        """When the record is due, or None if it is not pending."""
        with self._mutex:
            return self._wheel.due_ms(queue_offset)

    @property
    def next_queue_offset(self) -> int:
        """The queue offset from which on timer records are not known yet."""
        return self._wheel.next_queue_offset

    def oldest_pending(self) -> int | None:
        """The smallest queue offset that is pending, or None: retention must keep the timer topic from there on."""
        with self._mutex:
            return self._wheel.oldest_pending()

    def counts(self, now_ms: int, bounds_s: Sequence[int]) -> list[int]:
        """How many timers are due in up to so many seconds, by these ascending bounds, and how many behind the last
        one, to the second. Takes up to two milliseconds.
        """
        with self._mutex:
            return self._wheel.counts(now_ms, bounds_s)

    def __len__(self) -> int:
        """How many timers are pending."""
        return len(self._wheel)

    @property
    def is_full(self) -> bool:
        """Whether the caller should accept no more delayed messages for now; those in the log are always taken."""
        return len(self._wheel) >= MAX_PENDING

    @property
    def needs_checkpoint(self) -> bool:
        """Whether much has changed since the last checkpoint."""
        return self._wheel.unsaved >= UNSAVED_LIMIT

    def checkpoint(self, covered_log_offset: int, flush: Callable[[], object]) -> None:
        """Bring the timers to the disk. Runs in a thread of its own while the other calls go on.

        Every delivery and cancellation below `covered_log_offset` must have been noted by `done`; while a start goes
        through the log that is still the `covered_log_offset` of this store. `flush` returns when all of the log
        written before is on the disk, so that no power failure takes back what the files rely on.

        Raises what `flush` raises, and OSError; the timers stay as they are, and the next checkpoint saves them.
        """
        with self._checkpoint_mutex:
            with self._mutex:
                covered_queue_offset = self._wheel.next_queue_offset
                changes = self._wheel.take_changes()
            try:
                flush()
                self._log.save(
                    changes, covered_queue_offset=covered_queue_offset, covered_log_offset=covered_log_offset
                )
            except BaseException:
                with self._mutex:
                    self._wheel.give_back(changes)
                raise
            self.covered_queue_offset, self.covered_log_offset = covered_queue_offset, covered_log_offset
            self.needs_rebuild = False
