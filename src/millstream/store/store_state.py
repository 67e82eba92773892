"""Reads a store's state from its directory without changing it: checkpoints, and the synced end of the log."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from millstream.store.commit_log import is_segment_name
from millstream.store.compactor import COMPACTION
from millstream.store.damage.integrity import CONFIRMED, LOG, Loss, log_losses, missing_of_log, part_losses
from millstream.store.deleted_topics import DELETED_TOPICS
from millstream.store.durability.checkpoint import CheckpointFile, StoreCheckpoint
from millstream.store.durability.flush_mark import FlushMark
from millstream.store.files import FileLayer
from millstream.store.manifest import ManifestDocument, StoreManifest

__all__ = ["StoreState", "accept_log_loss"]

_LOST: Final = {
    DELETED_TOPICS: "messages of deleted topics come back",
    COMPACTION: "the last messages of a compacted queue's keys are gone",
    CONFIRMED: (
        "only what the checkpoint names counts as confirmed, and all of the log if there is no checkpoint either"
    ),
}


@dataclass(frozen=True, slots=True)
class StoreState:
    """One look at the directory of a store.

    `flushed` is 0 where nothing is known. `confirmed` is None where nothing says that the store was replicated, and 0
    where what says so cannot be read.
    """

    directory: Path
    noted: ManifestDocument | None
    checkpoint: StoreCheckpoint | None
    flushed: int
    confirmed: int | None

    @classmethod
    def read(cls, directory: Path, files: FileLayer) -> Self:
        """Look. Raises STORE_FORMAT for files of a later release, and OSError."""
        checkpoint = CheckpointFile(directory / "checkpoint", files).load()
        flushed = FlushMark(directory / "flushed", files).load()
        noted = StoreManifest(directory, files).load()
        if checkpoint is not None and not checkpoint.knows_manifest:
            # A release ran last that does not keep the manifest: what it says is of an earlier time.
            noted = None
        return cls(directory, noted, checkpoint, flushed, _read_confirmed(directory, checkpoint, files))

    @property
    def known_log_offset(self) -> int:
        """Up to where the log is known to have been on the disk."""
        return max(self.flushed, self.checkpoint.log_offset if self.checkpoint is not None else 0)

    def losses(self, files: FileLayer) -> list[Loss]:
        """What is missing of what was there."""
        parts = self.noted.parts - {LOG} if self.noted is not None else ()
        root, below = self.directory.parent, self.directory.name
        return [
            *log_losses(self.directory, files, self.noted, self.known_log_offset),
            *part_losses(root, parts, files, below=below, lost=_LOST),
        ]


def _read_confirmed(directory: Path, checkpoint: StoreCheckpoint | None, files: FileLayer) -> int | None:
    """What the mark says or the checkpoint, whichever is later: a power failure may leave an older mark."""
    checkpointed = (
        [] if checkpoint is None or checkpoint.confirmed_log_offset is None else [checkpoint.confirmed_log_offset]
    )
    if files.exists(directory / CONFIRMED):
        checkpointed.append(FlushMark(directory / CONFIRMED, files).load())
    return max(checkpointed, default=None)


def accept_log_loss(directory: Path, files: FileLayer) -> None:
    """Let the store's log be whole without what it lacks now; the caller holds the directory's lock."""
    manifest, found = StoreManifest(directory, files), StoreState.read(directory, files)
    missing = missing_of_log(directory, files, found.noted, found.known_log_offset)
    manifest.note_lost([*(found.noted.lost if found.noted is not None else ()), *missing])
    if not any(is_segment_name(name) for name in files.names(directory / LOG)):
        manifest.forget([LOG])
