"""Cutting a store at a log offset, as a replica does whose log went on otherwise than that of the new master.

The log and all that is derived from it lose what lies behind. An intent file is written first and removed last, so a
crash on the way leaves the store as it was or a cut that the next start finishes.

    cut-to          the log offset, while a cut is under way
    confirmed       up to where replicas have the log: readers see nothing behind it

Consume queues and timers are made again from what is left of the log; where the checkpoint lies behind the cut the
whole log is read once. The key index lets runs go that reach beyond the log's end whenever it is opened.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Final

import msgspec

from millstream.model.errors import StartRefused, StoreError
from millstream.store.commit_log import CommitLog
from millstream.store.compaction.compacted_queues import CompactedQueues
from millstream.store.compaction.compaction import CompactionOptions
from millstream.store.directory_lock import DirectoryLock
from millstream.store.durability.checkpoint import CheckpointFile, StoreCheckpoint
from millstream.store.durability.flush_mark import FlushMark
from millstream.store.files import FileLayer, refusal_name
from millstream.store.integrity import LOG
from millstream.store.log_scan import LogScan
from millstream.store.snapshot import Snapshot

__all__ = ["CONFIRMED", "cut_store", "finish_cut"]

CONFIRMED: Final = "confirmed"
"""In a store's directory: the flush mark of what is confirmed."""

_INTENT: Final = "cut-to"

_log = logging.getLogger(__name__)


class _Intent(msgspec.Struct):
    version: int
    log_offset: int
    segment_bytes: int
    discarded: list[str]
    """Files and folders beside the store that are derived from its log, by their paths from the store's directory."""
    checkpoint: StoreCheckpoint | None
    """At the log's start, where that on the disk lies behind the cut: queues go on at these offsets."""


def cut_store(
    directory: Path,
    log_offset: int,
    segment_bytes: int,
    files: FileLayer | None = None,
    *,
    discard: tuple[str, ...] = (),
) -> None:
    """Make `log_offset`, at which a record begins, the end of the log in a store's directory that nobody has open.

    `discard` names what is derived from the log outside of the store. Nothing happens where the log ends there already.
    Raises DATA_DIRECTORY_IN_USE, CUT_REFUSED with nothing changed, DISK_FULL and DATA_DIRECTORY_NOT_WRITABLE.
    """
    files = files or FileLayer()
    lock = DirectoryLock(directory, files)
    try:
        finish_cut(directory, files)
        if _check(directory, log_offset, segment_bytes, files):
            checkpoint = _checkpoint_before(directory, log_offset, segment_bytes, files)
            intent = _Intent(1, log_offset, segment_bytes, list(discard), checkpoint)
            _intent_file(directory, files).save(msgspec.json.encode(intent))
            finish_cut(directory, files)
    except OSError as error:
        name = refusal_name(error, "DATA_DIRECTORY_NOT_WRITABLE")
        raise StartRefused(name, f"The log in {directory} cannot be cut: {error}.") from error
    finally:
        lock.release()


def finish_cut(directory: Path, files: FileLayer) -> None:
    """Carry out a cut that is noted, whether or not a part of it is done. The caller holds the lock."""
    noted = _intent_file(directory, files).load()
    if noted is None:
        return
    try:
        intent = msgspec.json.decode(noted, type=_Intent)
    except msgspec.DecodeError as error:
        raise StoreError("STORE_FORMAT", f"{directory / _INTENT} cannot be read: {error}.") from None
    end = intent.log_offset
    _log.warning("The log in %s is cut at %d.", directory, end)
    # First what says that there was more: a start would take the missing bytes for a loss.
    checkpoint_file = CheckpointFile(directory / "checkpoint", files)
    if intent.checkpoint is not None:
        _discard(files, directory / "consumequeue")
        checkpoint_file.save(intent.checkpoint)
    for name in ("flushed", CONFIRMED):
        mark = FlushMark(directory / name, files)
        if name == "flushed" or files.exists(directory / name):
            mark.reset(min(end, mark.load()) if name == CONFIRMED else end)
            mark.close()
    _discard(files, directory / "timers", *(directory / name for name in intent.discarded))
    log = CommitLog(directory / LOG, intent.segment_bytes, files)
    log.cut(end)
    log.sync_from(end)
    log.close()
    files.sync_directory(directory)
    _discard(files, directory / _INTENT, directory / (_INTENT + ".bak"))


def _check(directory: Path, log_offset: int, segment_bytes: int, files: FileLayer) -> bool:
    """Whether there is something to cut off. Raises CUT_REFUSED."""
    log = CommitLog(directory / LOG, segment_bytes, files)
    try:
        if not log.start <= log_offset <= log.end_of_segments:
            raise _refusal(log_offset, f"the log holds {log.start} to {log.end_of_segments}")
        segment = log.segment_at(log_offset)
        if segment is None:
            return False
        scan = LogScan(log, segment.start, durable_end=log_offset)
        for _ in scan:
            pass
        if scan.position != log_offset:
            raise _refusal(log_offset, f"no record begins there; the last one before it ends at {scan.end_of_records}")
        _check_compacted(directory, log_offset, files)
        return True
    finally:
        log.close()


def _checkpoint_before(
    directory: Path, log_offset: int, segment_bytes: int, files: FileLayer
) -> StoreCheckpoint | None:
    """A checkpoint at the log's start, from which queues are made again; None where the present one can stay.

    A queue begins at its first record that is left. One of which nothing is left goes on at the offset of the first
    record that is cut off, or where it ended: no offset is ever given twice.
    """
    present = CheckpointFile(directory / "checkpoint", files).load()
    if present is not None and present.log_offset <= log_offset:
        return None
    first: dict[tuple[str, int], int] = {}
    batches: set[tuple[str, int]] = set()
    log = CommitLog(directory / LOG, segment_bytes, files)
    try:
        for outline, _ in LogScan(log, log.start):
            place = outline.topic, outline.queue_id
            first.setdefault(place, outline.queue_offset)
            if outline.batch_count is not None:
                batches.add(place)
        start = log.start
    finally:
        log.close()
    for topic, queues in {} if present is None else present.queues.items():
        for queue_id, (_, following) in queues.items():
            first.setdefault((topic, queue_id), following)
    for topic, extents in {} if present is None else present.batch_queues.items():
        for queue_id, extent in extents.items():
            first.setdefault((topic, queue_id), extent[1])
            batches.add((topic, queue_id))
    singles: dict[str, dict[int, tuple[int, int]]] = {}
    several: dict[str, dict[int, tuple[int, int, int, int]]] = {}
    for (topic, queue_id), offset in first.items():
        if (topic, queue_id) in batches:
            several.setdefault(topic, {})[queue_id] = (offset, offset, 0, 0)
        else:
            singles.setdefault(topic, {})[queue_id] = (offset, offset)
    return StoreCheckpoint(
        log_offset=start,
        store_timestamp_ms=0 if present is None else present.store_timestamp_ms,
        entries_per_file=0 if present is None else present.entries_per_file,
        queues=singles,
        batch_queues=several,
        knows_manifest=present is None or present.knows_manifest,
    )


def _check_compacted(directory: Path, log_offset: int, files: FileLayer) -> None:
    """Compaction reads confirmed messages alone, so this is for logs that went apart below what was confirmed."""
    compacted = CompactedQueues(directory / "compaction", files, CompactionOptions())
    try:
        for topic, queue_id in compacted.on_disk():
            generation = compacted.obtain(topic, queue_id, 0).generation()
            rows = 0 if generation is None else generation.header.rows
            last = generation.entries(max(rows - 1, 0), 1) if generation is not None and rows else []
            if last and last[-1].log_offset >= log_offset:
                raise _refusal(log_offset, f"the compacted queue {queue_id} of {topic} holds later messages")
    finally:
        compacted.close()


def _refusal(log_offset: int, words: str) -> StoreError:
    return StoreError("CUT_REFUSED", f"The log cannot be cut at {log_offset}: {words}.")


def _intent_file(directory: Path, files: FileLayer) -> Snapshot:
    return Snapshot(directory / _INTENT, files)


def _discard(files: FileLayer, *paths: Path) -> None:
    for path in paths:
        if files.exists(path):
            if path.is_dir():
                files.remove_tree(path)
            else:
                files.remove(path)
