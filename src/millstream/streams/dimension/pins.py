"""The version of a dimension table for each micro-batch of a job: chosen once, repeated on replay."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

from millstream.streams.dimension.versions import TableVersion, VersionStore
from millstream.streams.errors import JobError
from millstream.streams.state.file_locks import hold_lock
from millstream.streams.state.pinned_versions import BatchVersions

__all__ = ["KEPT_BATCHES", "BatchPins"]

KEPT_BATCHES: Final = 2
"""Micro-batches whose versions a job keeps: Spark repeats the last one that it planned."""

_SUFFIX = ".pin"


class _Pin(msgspec.Struct, frozen=True):
    version: int
    id: str


_DECODER = msgspec.json.Decoder(_Pin)


class BatchPins:
    """The choices of the job `job` for one table, in `directory`, which lies beside the job's checkpoint.

    Whoever comes first in a micro-batch chooses the version that counts; all others, in whichever process, and every
    repetition get the same.
    """

    def __init__(self, directory: Path, store: VersionStore, job: str) -> None:
        self._directory = directory
        self._batches = BatchVersions(directory, _SUFFIX)
        self._store = store
        self._job = job

    def version(self, batch: int) -> TableVersion:
        """The version of the micro-batch with that number.

        Raises JobError JOB_FAILED where nothing is loaded yet, or what the micro-batch used before is gone.
        """
        pin = self._pin(batch) or self._choose_version(batch)
        head = self._store.head(pin.version)
        if head is None or head.id != pin.id:
            words = f"Micro-batch {batch} uses version {pin.version} of {self._store.directory}, which is gone."
            raise JobError("JOB_FAILED", words, remedy="Remove the checkpoint, which begins anew.")
        return head

    def batches(self) -> dict[int, int]:
        """The version of each micro-batch that is kept."""
        return {batch: pin.version for batch in self._batches.batches() if (pin := self._pin(batch))}

    def _choose_version(self, batch: int) -> _Pin:
        # The store forgets pins whose directory is not there.
        self._batches.make_directory()
        with hold_lock(self._store.pinning):
            known = self._pin(batch)
            if known is not None:
                return known
            head = self._store.current()
            if head is None:
                raise JobError("JOB_FAILED", f"The dimension table in {self._store.directory} was never loaded.")
            self._batches.forget_until(batch - KEPT_BATCHES)
            # Known to the store first: a version must not go that a repetition would ask for.
            self._store.pin_for(self._job, tuple(sorted({*self.batches().values(), head.version})), self._directory)
            # The lock is of one machine: another one may have been faster.
            return _DECODER.decode(self._batches.pin(batch, msgspec.json.encode(_Pin(head.version, head.id))))

    def _pin(self, batch: int) -> _Pin | None:
        pinned = self._batches.find(batch)
        return None if pinned is None else _DECODER.decode(pinned)
