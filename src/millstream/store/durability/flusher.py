"""Flushes the log: one sync at a time, recorded in the flush mark."""

from __future__ import annotations

import threading
from collections.abc import Callable

from millstream.store.commit_log import CommitLog
from millstream.store.durability.flush_mark import FlushMark
from millstream.store.durability.health import Health
from millstream.store.files import FileNotOpened

__all__ = ["Flusher"]


class Flusher:
    """Syncs a log whose writer holds `mutex` while it writes. `flush` may be called from any thread.

    `on_flushed` is called under the mutex once more of the log is on the disk.
    """

    def __init__(self, log: CommitLog, mark: FlushMark, mutex: threading.Lock, health: Health) -> None:
        self.flushed_log_offset = log.end
        self.on_flushed: Callable[[], None] = lambda: None
        self._log = log
        self._mark = mark
        self._mutex = mutex
        self._health = health
        self._flushing = threading.Lock()

    def flush(self) -> None:
        """Return when all that was written before is on the disk.

        Raises STORE_FAILED, and then always; FILE_NOT_OPENED, after which the next flush makes up for this one.
        """
        with self._flushing:
            with self._mutex:
                self._health.check()
                end = self._log.end
                segments = self._log.take_unsynced()
            try:
                self._log.sync(segments)
                if segments:
                    self._mark.note(end)
            except FileNotOpened:
                with self._mutex:
                    self._log.give_back(segments)
                raise
            except OSError as error:
                raise self._health.fail("flushed", error) from error
            with self._mutex:
                self.flushed_log_offset = end
                self.on_flushed()
