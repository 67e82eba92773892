"""Which version of a dimension table each micro-batch of a job uses: chosen once, the same when it is repeated."""

from __future__ import annotations

import os
import uuid
from pathlib import Path
from typing import Final

import msgspec

from millstream.streams.dimension.file_locks import locked
from millstream.streams.dimension.versions import VersionHead, VersionStore
from millstream.streams.errors import JobError
from millstream.streams.whole_files import make_directory, sync_directory

__all__ = ["KEPT_BATCHES", "BatchPins"]

KEPT_BATCHES: Final = 2
"""Micro-batches whose versions a job keeps: Spark repeats the last one that it planned."""

_SUFFIX = ".pin"


class _Pin(msgspec.Struct, frozen=True):
    version: int
    id: str


class BatchPins:
    """The choices of the job `job` for one table, in `directory`, which lies beside the job's checkpoint.

    Whoever comes first in a micro-batch chooses the version that counts; all others, in whichever process, and every
    repetition get the same.
    """

    def __init__(self, directory: Path, store: VersionStore, job: str) -> None:
        self._directory = directory
        self._store = store
        self._job = job

    def version(self, batch: int) -> VersionHead:
        """The version of the micro-batch with that number.

        Raises JobError JOB_FAILED where nothing is loaded yet, or what the micro-batch used before is gone.
        """
        pin = self._pin(batch) or self._chosen(batch)
        head = self._store.head(pin.version)
        if head is None or head.id != pin.id:
            words = f"Micro-batch {batch} uses version {pin.version} of {self._store.directory}, which is gone."
            raise JobError("JOB_FAILED", words, remedy="Remove the checkpoint, which begins anew.")
        return head

    def batches(self) -> dict[int, int]:
        """The version of each micro-batch that is kept."""
        return {int(path.stem): pin.version for path in self._paths() if (pin := self._pin(int(path.stem)))}

    def _chosen(self, batch: int) -> _Pin:
        for named in make_directory(self._directory):
            sync_directory(named)
        with locked(self._store.pinning):
            known = self._pin(batch)
            if known is not None:
                return known
            head = self._store.current()
            if head is None:
                raise JobError("JOB_FAILED", f"The dimension table in {self._store.directory} was never loaded.")
            for path in self._paths():
                if int(path.stem) <= batch - KEPT_BATCHES:
                    path.unlink(missing_ok=True)
            # Known to the store first: a version must not go that a repetition would ask for.
            self._store.keep_for(self._job, tuple(sorted({*self.batches().values(), head.version})), self._directory)
            return self._put(batch, _Pin(head.version, head.id))

    def _put(self, batch: int, pin: _Pin) -> _Pin:
        """The pin, or that of who was faster on another machine."""
        unfinished = self._directory / f".{batch}.{uuid.uuid4().hex}"
        with unfinished.open("wb") as file:
            file.write(msgspec.json.encode(pin))
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(unfinished, self._path(batch))
        except FileExistsError:
            pin = self._pin(batch) or pin
        finally:
            unfinished.unlink(missing_ok=True)
        # A pin that a crash of the machine takes away would be chosen anew, and may be another version then.
        sync_directory(self._directory)
        return pin

    def _pin(self, batch: int) -> _Pin | None:
        try:
            return msgspec.json.decode(self._path(batch).read_bytes(), type=_Pin)
        except FileNotFoundError:
            return None

    def _path(self, batch: int) -> Path:
        return self._directory / f"{batch}{_SUFFIX}"

    def _paths(self) -> list[Path]:
        return [path for path in self._directory.glob(f"*{_SUFFIX}") if path.stem.isdigit()]
