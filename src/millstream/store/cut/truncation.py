"""Truncates a store at a log offset, when a replica's log diverged from the new master's.

The log and all that is derived from it lose what lies behind. An intent file is written first and removed last, so a
crash on the way leaves the store as it was or a cut that the next start finishes.

    cut-to          the log offset, while a cut is under way
    confirmed       up to where replicas have the log: readers see nothing behind it

Where the checkpoint lies behind the cut it is set back (rewind.py), and only what is cut off is read for it. Timers are
made again from what is left of the log; the key index lets runs go that reach beyond the log's end whenever it is
opened. Deletions of topics that lie behind the cut are taken back, and the topics' queues made again from the log; what
retention and compaction removed since is gone.
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
from millstream.store.cut.rewind import LogTail, restart_checkpoint, rewind_checkpoint
from millstream.store.damage.integrity import CONFIRMED, LOG, check_no_loss
from millstream.store.damage.log_scan import LogScan, skip_records
from millstream.store.deleted_topics import DELETED_TOPICS, DeletedTopics
from millstream.store.directory_lock import DirectoryLock
from millstream.store.durability.checkpoint import CheckpointFile, StoreCheckpoint
from millstream.store.durability.flush_mark import FlushMark
from millstream.store.files import FileLayer, refusal_name
from millstream.store.snapshot import Snapshot
from millstream.store.store_state import StoreState

__all__ = ["cut_store", "finish_cut"]

_INTENT: Final = "cut-to"

_log = logging.getLogger(__name__)


class _Intent(msgspec.Struct):
    version: int
    log_offset: int
    segment_bytes: int
    discarded: list[str]
    """Files and folders beside the store that are derived from its log, by their paths from the store's directory."""
    checkpoint: StoreCheckpoint | None
    """In place of one that lies behind the cut: at the cut, or at the log's start where all queues are made again."""


def cut_store(
    directory: Path,
    log_offset: int,
    segment_bytes: int,
    files: FileLayer | None = None,
    *,
    discard: tuple[str, ...] = (),
    below_confirmed: bool = False,
    log_end: int | None = None,
) -> None:
    """Make `log_offset`, at which a record begins, the end of the log in a store's directory that nobody has open.

    `discard` names what is derived from the log outside of the store. Nothing happens where the log ends there already.
    `below_confirmed` lets go of what counts as confirmed too: for a caller who has proof, by lists of epochs, that the
    master's log went apart below. `log_end` is where the log ends, if the caller knows: without it the last segment is
    searched to its end, which takes seconds.

    Raises DATA_DIRECTORY_IN_USE, CUT_REFUSED with nothing changed, as a start does DATA_MISSING, LOG_INCOMPLETE and
    STORE_FORMAT, DISK_FULL and DATA_DIRECTORY_NOT_WRITABLE.
    """
    files = files or FileLayer()
    try:
        lock = DirectoryLock(directory, files)
        try:
            finish_cut(directory, files)
            found = StoreState.read(directory, files)
            check_no_loss(found.losses(files))
            log = CommitLog(directory / LOG, segment_bytes, files)
            try:
                intent = _plan(found, log, log_offset, files, log_end, below_confirmed=below_confirmed)
            finally:
                log.close()
            if intent is not None:
                intent.discarded += discard
                _intent_file(directory, files).save(msgspec.json.encode(intent))
                finish_cut(directory, files)
        finally:
            lock.release()
    except OSError as error:
        name = refusal_name(error, "DATA_DIRECTORY_NOT_WRITABLE")
        raise StartRefused(name, f"The log in {directory} cannot be cut: {error}.") from error


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
    if intent.checkpoint is not None:
        if intent.checkpoint.log_offset < end:
            _discard(files, directory / "consumequeue")
        CheckpointFile(directory / "checkpoint", files).save(intent.checkpoint)
    for name in ("flushed", CONFIRMED):
        mark = FlushMark(directory / name, files)
        if name == "flushed" or files.exists(directory / name):
            mark.reset(min(end, mark.load()) if name == CONFIRMED else end)
            mark.close()
    DeletedTopics(directory / DELETED_TOPICS, files).take_back(end)
    _discard(files, directory / "timers", *(directory / name for name in intent.discarded))
    log = CommitLog(directory / LOG, intent.segment_bytes, files)
    log.cut(end)
    log.sync_from(end)
    log.close()
    files.sync_directory(directory)
    _discard(files, directory / _INTENT, directory / (_INTENT + ".bak"))


def _plan(
    found: StoreState,
    log: CommitLog,
    log_offset: int,
    files: FileLayer,
    log_end: int | None,
    *,
    below_confirmed: bool,
) -> _Intent | None:
    """What is to be done; None where there is nothing to cut off. Raises CUT_REFUSED."""
    _check_place(log, log_offset)
    if log.segment_at(log_offset) is None:
        return None
    checkpoint = found.checkpoint
    end = log.end_of_segments if log_end is None else log_end
    tail = LogTail.read(log, log_offset, end, 0 if checkpoint is None else checkpoint.log_offset)
    _check_confirmed(found, log, log_offset, below_confirmed=below_confirmed)
    deleted = DeletedTopics(found.directory / DELETED_TOPICS, files)
    _check_compacted(found.directory, log_offset, tail, deleted, files)
    if checkpoint is None or checkpoint.log_offset > log_offset:
        checkpoint = _checkpoint_before(checkpoint, log, log_offset, tail, deleted)
        confirmed = None if found.confirmed is None else min(found.confirmed, log_offset)
        checkpoint = msgspec.structs.replace(checkpoint, confirmed_log_offset=confirmed)
        return _Intent(1, log_offset, log.segment_bytes, [], checkpoint)
    return _Intent(1, log_offset, log.segment_bytes, [], None)


def _checkpoint_before(
    present: StoreCheckpoint | None, log: CommitLog, log_offset: int, tail: LogTail, deleted: DeletedTopics
) -> StoreCheckpoint:
    if present is not None and not tail.is_damaged and deleted.last_log_offset <= log_offset:
        return rewind_checkpoint(present, tail, log_offset)
    return restart_checkpoint(log, present, deleted, log_offset)


def _check_place(log: CommitLog, log_offset: int) -> None:
    if not log.start <= log_offset <= log.end_of_segments:
        raise _refusal(log_offset, f"the log holds {log.start} to {log.end_of_segments}")
    segment = log.segment_at(log_offset)
    start = log_offset if segment is None else segment.start
    if skip_records(log, start, log_offset) == log_offset:
        return
    scan = LogScan(log, start, durable_end=log_offset)
    for _ in scan:
        pass
    if scan.position != log_offset:
        raise _refusal(log_offset, f"no record begins there; the last one before it ends at {scan.end_of_records}")


def _check_confirmed(found: StoreState, log: CommitLog, log_offset: int, *, below_confirmed: bool) -> None:
    """A mark behind the log's end, which a power failure can leave, says nothing of what is there."""
    end = min(found.confirmed or 0, log.end_of_segments)
    if next(iter(LogScan(log, log_offset, durable_end=end)), None) is None:
        return
    if not below_confirmed:
        raise _refusal(log_offset, f"replicas have confirmed the log up to {found.confirmed}")
    _log.warning(
        "The log in %s is cut at %d, and replicas had confirmed it up to %d: messages that were acknowledged go.",
        found.directory,
        log_offset,
        found.confirmed,
    )


def _check_compacted(directory: Path, log_offset: int, tail: LogTail, deleted: DeletedTopics, files: FileLayer) -> None:
    """Compaction reads confirmed messages alone, so this is for logs that went apart below what was confirmed."""
    compacted = CompactedQueues(directory / "compaction", files, CompactionOptions())
    try:
        for topic, queue_id in compacted.on_disk():
            end = compacted.obtain(topic, queue_id, 0).end_offset
            # That of a topic which was made again behind the cut has nothing of the one before.
            is_later = deleted.log_offset(topic) > log_offset
            if is_later or tail.is_damaged or tail.first.get((topic, queue_id), end) < end:
                raise _refusal(log_offset, f"the compacted queue {queue_id} of {topic} may hold later messages")
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
