"""Writes checkpoints: syncs new consume queue entries, then records the position that they cover.

Only the queues that changed since the last checkpoint are looked at; an idle one costs its place in the document.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable
from typing import NamedTuple

from millstream.model.clock import Clock
from millstream.store.commit_log import CommitLog
from millstream.store.consume_queue import QueueExtent
from millstream.store.durability.checkpoint import CheckpointFile, StoreCheckpoint
from millstream.store.durability.flusher import Flusher
from millstream.store.durability.health import Health
from millstream.store.queue_table import AnyQueue, QueueTable, QueueTail

__all__ = ["CHECKPOINT_INTERVAL_S", "CHECKPOINT_LOG_BYTES", "CheckpointWriter"]

CHECKPOINT_LOG_BYTES = 16 * 1024 * 1024
"""Log written since the last checkpoint that makes the next one due; bounds a start's scan."""

CHECKPOINT_INTERVAL_S = 10.0
"""Time since the last checkpoint after which the next one is due, if anything was stored."""


class _Parts(NamedTuple):
    """What one checkpoint takes of the store under its mutex."""

    log_offset: int
    confirmed: int | None
    extents: list[tuple[AnyQueue, QueueExtent]]
    tails: list[QueueTail]


class CheckpointWriter:
    """Writes the checkpoints of one store; `write` is called from one thread at a time, `mutex` guards the queues.

    `confirmed` gives, under the mutex, up to where replicas have the log, None without replicas.
    `following` are called after each checkpoint with its log offset, outside of the store's mutex.
    """

    def __init__(
        self,
        log: CommitLog,
        queues: QueueTable,
        file: CheckpointFile,
        flusher: Flusher,
        health: Health,
        clock: Clock,
        *,
        mutex: threading.Lock,
        entries_per_file: int,
        log_offset: int,
        confirmed: Callable[[], int | None] = lambda: None,
    ) -> None:
        self.log_offset = log_offset
        self.begun = self.saved = 0
        """The numbers of the last checkpoint that was begun, and of the last one that is on the disk."""
        self.following: list[Callable[[int], None]] = []
        self.writing = threading.Lock()
        """Held while the queues' files are written; taken before the store's mutex."""
        self._log = log
        self._queues = queues
        self._file = file
        self._flusher = flusher
        self._health = health
        self._clock = clock
        self._mutex = mutex
        self._entries_per_file = entries_per_file
        self._confirmed = confirmed
        self._extents: dict[str, dict[int, tuple[bool, QueueExtent]]] = {}
        self._changed: set[AnyQueue] = set(queues)
        self._store_timestamp_ms = 0
        self._written_s = clock.monotonic_s()

    def note_changes(self, queues: Iterable[AnyQueue], store_timestamp_ms: int) -> None:
        """Note queues that the next checkpoint has to look at. Called under the mutex."""
        self._changed.update(queues)
        self._store_timestamp_ms = max(self._store_timestamp_ms, store_timestamp_ms)

    def forget(self, topics: Collection[str]) -> None:
        """Leave deleted topics out. Called under `writing` and the mutex."""
        for topic in topics:
            self._extents.pop(topic, None)
        self._changed = {queue for queue in self._changed if queue.topic not in topics}

    @property
    def is_due(self) -> bool:
        """Whether enough was stored, or enough time has passed, since the last checkpoint."""
        behind = self._flusher.flushed_log_offset - self.log_offset
        waited_s = self._clock.monotonic_s() - self._written_s
        return behind >= CHECKPOINT_LOG_BYTES or (behind > 0 and waited_s >= CHECKPOINT_INTERVAL_S)

    def write(self) -> None:
        """Flush, bring the consume queues to the disk and note it, so that the next start begins here.

        Raises DISK_FULL, which is not final and costs a longer start at most, and STORE_FAILED.
        """
        with self.writing:
            with self._mutex:
                parts = self._take()
                self.begun += 1
            try:
                self._save(parts)
            except BaseException:
                with self._mutex:
                    self._changed.update(queue for queue, _ in parts.extents)
                raise
            with self._mutex:
                for tail in parts.tails:
                    tail.forget()
            self.log_offset, self.saved = parts.log_offset, self.begun
            self._written_s = self._clock.monotonic_s()
            for follow in [*self.following]:
                follow(parts.log_offset)

    def _take(self) -> _Parts:
        changed, self._changed = self._changed, set()
        tails = [QueueTail.of(queue) for queue in changed if queue.entry_files.tail]
        extents = [(queue, queue.extent) for queue in changed]
        return _Parts(self._log.end, self._confirmed(), extents, tails)

    def _save(self, parts: _Parts) -> None:
        self._flusher.flush()
        for queue, extent in parts.extents:
            self._extents.setdefault(queue.topic, {})[queue.queue_id] = (queue.holds_batches, extent)
        try:
            self._queues.write_tails(parts.tails)
            self._file.save(self._document(parts.log_offset, parts.confirmed))
        except OSError as error:
            raise self._health.refusal("followed by its consume queues", error) from error

    def _document(self, log_offset: int, confirmed: int | None) -> StoreCheckpoint:
        queues: dict[str, dict[int, tuple[int, int]]] = {}
        batch_queues: dict[str, dict[int, tuple[int, int, int, int]]] = {}
        for topic, extents in self._extents.items():
            for queue_id, (holds_batches, extent) in extents.items():
                if holds_batches:
                    batch_queues.setdefault(topic, {})[queue_id] = (*extent,)
                else:
                    queues.setdefault(topic, {})[queue_id] = (extent.min_offset, extent.next_offset)
        return StoreCheckpoint(
            log_offset=log_offset,
            store_timestamp_ms=self._store_timestamp_ms,
            entries_per_file=self._entries_per_file,
            queues=queues,
            batch_queues=batch_queues,
            knows_manifest=True,
            confirmed_log_offset=confirmed,
        )
