"""The dimension tables that a worker process has open: mapped files, so all workers of a machine share one copy."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from millstream.streams.dimension.hit_counts import COUNTS, HitCounts
from millstream.streams.dimension.index_key import IndexKey
from millstream.streams.dimension.overlay import SearchableTable, open_version
from millstream.streams.dimension.pins import BatchPins
from millstream.streams.dimension.versions import TableVersion, VersionLease, VersionStore, copy_version
from millstream.streams.errors import JobError
from millstream.streams.spark.runtime.micro_batch import micro_batch
from millstream.streams.state.worker_cache import WorkerCache

__all__ = ["MAX_OPEN", "MAX_OPEN_OF_TABLE", "OpenTables", "TableUse", "hit_counts", "open_tables"]

MAX_OPEN: Final = 16
"""Versions of dimension tables that a worker holds; the one that was used longest ago is let go first."""


MAX_OPEN_OF_TABLE: Final = 3
"""Versions of one table that a worker holds: those of the micro-batches that may be repeated, and a new one."""


@dataclass(frozen=True, slots=True)
class TableUse:
    """A dimension table as it travels to the workers.

    `store` is the directory of its versions, `pins` where the job `job` notes the version of each micro-batch, `key`
    how its rows are found (None: all are compared). `copies` is a directory of the worker's machine into which a
    version is copied once, where `store` is on a shared disk; blank: it is read where it is.
    """

    name: str
    store: str
    pins: str
    job: str
    key: IndexKey | None
    copies: str = ""


class OpenTables:
    """Those of one process. A version is opened once, whatever number of jobs ask it."""

    def __init__(self) -> None:
        self._open = WorkerCache[tuple[str, str], tuple[SearchableTable, VersionLease]](MAX_OPEN, close=_close)

    def table(self, use: TableUse) -> SearchableTable:
        """The version of the micro-batch that runs, with the index that `use` wants.

        Raises JobError JOB_FAILED where the version is gone, DimensionError where its files are damaged.
        """
        store = VersionStore(Path(use.store))
        head = BatchPins(Path(use.pins), store, use.job).version(micro_batch())
        opened = self._open.get((use.store, head.id))
        if opened is None:
            opened = self._open_table(store, head, use)
            others = [name for name, _ in self._open.items() if name[0] == use.store]
            for name in others[: max(0, len(others) + 1 - MAX_OPEN_OF_TABLE)]:
                self._open.discard(name)
            self._open.put((use.store, head.id), opened)
        table, _ = opened
        if use.key is not None and use.key not in table.indexes:
            table.add_index(use.key)
        return table

    def _open_table(
        self, store: VersionStore, head: TableVersion, use: TableUse
    ) -> tuple[SearchableTable, VersionLease]:
        held = store.lease(head.version)
        if held is None or held.head.id != head.id:
            raise JobError("JOB_FAILED", f"Version {head.version} of the table {use.name} is gone.")
        directory = copy_version(held, store, Path(use.copies)) if use.copies else held.directory
        return open_version(directory), held


def _close(opened: tuple[SearchableTable, VersionLease]) -> None:
    table, held = opened
    table.close()
    held.release()


@functools.cache
def open_tables() -> OpenTables:
    """Those of this process."""
    return OpenTables()


@functools.cache
def hit_counts(store: str) -> HitCounts:
    """What this process counts for a table."""
    return HitCounts(Path(store) / COUNTS)
