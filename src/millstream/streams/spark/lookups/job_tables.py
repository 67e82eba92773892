"""The dimension tables of one job, on its driver: loaded before it begins, kept fresh while it runs."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Final

from millstream.streams.connectors.rocketmq.lookup import CHANGES, changes_of
from millstream.streams.dimension.directory import dimension_directory
from millstream.streams.dimension.versions import VersionStore
from millstream.streams.spark.lookups.loads import TableLoad
from millstream.streams.spark.lookups.lookup_table import LookupSpec
from millstream.streams.spark.lookups.open_tables import TableUse
from millstream.streams.spark.lookups.reloads import TableReloads

__all__ = ["COPIES_VARIABLE", "JobTables"]

COPIES_VARIABLE: Final = "MILLSTREAM_DIMENSION_COPIES"
"""The environment's name of a directory of each machine into which tables on a shared disk are copied."""


class JobTables:
    """The tables of the job `job`, which notes the version of each micro-batch below `pins`.

    `nameserver` is that of topics whose tables name none.
    """

    def __init__(self, pins: Path, job: str, nameserver: str = "", *, root: Path | None = None) -> None:
        self._pins = pins
        self._job = job
        self._nameserver = nameserver
        self._root = root or dimension_directory()
        self._reloads: dict[str, TableReloads] = {}

    def with_address(self, spec: LookupSpec) -> LookupSpec:
        """The table with the address of its cluster, where it is a topic or has one of changes."""
        changes = changes_of(spec)
        if changes is None or changes.option("nameserver"):
            return spec
        name = "nameserver" if changes is spec else f"{CHANGES}nameserver"
        return replace(spec, options=tuple(sorted((*spec.options, (name, self._nameserver)))))

    def use(self, load: TableLoad) -> TableUse:
        """The table for the workers; there is a version of it when this returns.

        Raises JobError, DimensionError where it cannot be loaded.
        """
        identity = load.identity
        store = VersionStore(self._root / identity)
        known = self._reloads.get(identity)
        reloads = TableReloads(load, store)
        if known is None:
            self._reloads[identity] = reloads
            reloads.first()
        else:
            # Joined twice, perhaps by another key: the versions to come have both.
            store.describe(load.note(known.schedule))
        copies = os.environ.get(COPIES_VARIABLE, "")
        return TableUse(load.spec.name, str(store.directory), str(self._pins / identity), self._job, load.key, copies)

    def forget_batches(self) -> None:
        """Begin without any micro-batch: a batch job repeats none."""
        shutil.rmtree(self._pins, ignore_errors=True)

    def begin(self) -> None:
        """Keep the tables fresh from here on."""
        for reloads in self._reloads.values():
            reloads.begin()

    def stop(self) -> None:
        """Keep them fresh no more."""
        for reloads in self._reloads.values():
            reloads.stop()

    def trouble(self) -> str | None:
        """What keeps a table from being loaded again, in one line."""
        return next((said for reloads in self._reloads.values() if (said := reloads.trouble())), None)
