"""The derived data that a store needs to start with a log that begins at another store's offset.

A new replica of a broker whose old messages are gone cannot read the whole log. It begins with an empty log at the
other one's start, with queues that begin where their first record there does.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from millstream.store.commit_log import CommitLog
from millstream.store.damage.integrity import CONFIRMED, LOG
from millstream.store.durability.checkpoint import CheckpointFile, StoreCheckpoint
from millstream.store.durability.flush_mark import FlushMark
from millstream.store.files import FileLayer
from millstream.store.manifest import StoreManifest
from millstream.store.queue_table import QueueTable
from millstream.store.store_format import write_format

__all__ = ["StoreSeed", "checkpoint_at_start", "seed_store"]


class StoreSeed(msgspec.Struct, frozen=True):
    """`checkpoint` is that of a log which begins, and ends, at its log offset."""

    checkpoint: StoreCheckpoint


def checkpoint_at_start(
    log_start: int, queues: QueueTable, *, store_timestamp_ms: int, entries_per_file: int, at_end: bool = False
) -> StoreCheckpoint:
    """The checkpoint that the store would have with nothing in its log yet: each queue begins and ends at its first
    record, or where it ends if it has none any more. `at_end`: all that readers see stands before `log_start`."""
    singles: dict[str, dict[int, tuple[int, int]]] = {}
    batches: dict[str, dict[int, tuple[int, int, int, int]]] = {}
    for queue in queues:
        # Thousands of queues are no matter at the end: nothing is searched for in their files.
        offset = queue.visible_offset if at_end else queue.first_offset_in_log(log_start)
        if queue.holds_batches:
            batches.setdefault(queue.topic, {})[queue.queue_id] = (offset, offset, 0, 0)
        else:
            singles.setdefault(queue.topic, {})[queue.queue_id] = (offset, offset)
    return StoreCheckpoint(
        log_offset=log_start,
        store_timestamp_ms=store_timestamp_ms,
        entries_per_file=entries_per_file,
        queues=singles,
        batch_queues=batches,
        knows_manifest=True,
        confirmed_log_offset=log_start,
    )


def seed_store(directory: Path, seed: StoreSeed, segment_bytes: int, files: FileLayer | None = None) -> None:
    """Make a store in a directory that has none, as the seed says; a crash on the way leaves one that is rebuilt.

    The caller holds the directory. Raises OSError, DISK_FULL.
    """
    files = files or FileLayer()
    log_start = seed.checkpoint.log_offset
    files.make_directory(directory)
    write_format(directory, files)
    log = CommitLog(directory / LOG, segment_bytes, files)
    try:
        log.begin_at(log_start)
    finally:
        log.close()
    for name in ("flushed", CONFIRMED):
        mark = FlushMark(directory / name, files)
        mark.reset(log_start)
        mark.close()
    manifest = StoreManifest(directory, files)
    manifest.begin()
    manifest.note_log(LOG, log_start)
    # Last: without it the store is one whose log is scanned, from the same start.
    CheckpointFile(directory / "checkpoint", files).save(seed.checkpoint)
