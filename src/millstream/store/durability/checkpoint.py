"""A checkpoint: the log position up to which all derived files are on disk.

A start scans the log from `log_offset` on only. Lost or damaged, the checkpoint costs a scan of the whole log.
"""

from __future__ import annotations

import logging
from pathlib import Path

import msgspec

from millstream.model.errors import StoreError
from millstream.store.files import FileLayer
from millstream.store.snapshot import Snapshot

__all__ = ["CheckpointFile", "StoreCheckpoint"]

FORMAT_VERSION = 1

_log = logging.getLogger(__name__)


class StoreCheckpoint(msgspec.Struct, frozen=True, kw_only=True):
    """Log and consume queues are on the disk up to `log_offset`.

    `queues` holds for each topic and queue number the offsets (minimum, next) that the consume queue has by then,
    `batch_queues` beside them the numbers of the entries (minimum, next), for queues of batches.
    """

    log_offset: int
    store_timestamp_ms: int
    entries_per_file: int
    queues: dict[str, dict[int, tuple[int, int]]]
    batch_queues: dict[str, dict[int, tuple[int, int, int, int]]] = {}
    knows_manifest: bool = False
    """Whether a release wrote it that keeps the manifest; what others do to the directory is not noted there."""
    confirmed_log_offset: int | None = None
    """Up to where replicas had the log by then; None in a store that is not replicated."""
    format_version: int = FORMAT_VERSION


class CheckpointFile:
    """The checkpoint in its snapshot, with a checksum."""

    def __init__(self, path: Path, files: FileLayer) -> None:
        self._path = path
        self._snapshot = Snapshot(path, files)

    def load(self) -> StoreCheckpoint | None:
        """The last checkpoint, or None if there is none that can be read. A newer format is STORE_FORMAT."""
        try:
            document = self._snapshot.load()
            checkpoint = None if document is None else msgspec.json.decode(document, type=StoreCheckpoint)
        except (StoreError, msgspec.DecodeError) as error:
            _log.warning("The whole log will be scanned, because its checkpoint cannot be read: %s", error)
            return None
        if checkpoint is not None and checkpoint.format_version != FORMAT_VERSION:
            raise StoreError(
                "STORE_FORMAT", f"{self._path} has the format {checkpoint.format_version}, not {FORMAT_VERSION}."
            )
        return checkpoint

    def save(self, checkpoint: StoreCheckpoint) -> None:
        """Replace the checkpoint; it is on the disk when this returns."""
        self._snapshot.save(msgspec.json.encode(checkpoint))
