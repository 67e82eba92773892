"""The dimension tables of one job on its driver: loaded at start, reloaded while it runs."""

from __future__ import annotations

import datetime
import logging
import os
import shutil
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Final

import msgspec

from millstream.model.errors import MillstreamError
from millstream.streams.connectors.rocketmq.lookup import CHANGES, changes_of
from millstream.streams.dimension.directory import dimension_directory
from millstream.streams.dimension.hit_counts import COUNTS, HitCounts
from millstream.streams.dimension.index_key import IndexKey
from millstream.streams.dimension.versions import Loaded, ReloadRequest, TableVersion, VersionStore
from millstream.streams.spark.lookups.loads import TableLoad
from millstream.streams.spark.lookups.lookup_table import LookupSpec
from millstream.streams.spark.lookups.open_tables import TableUse
from millstream.streams.spark.lookups.opening import open_lookup

__all__ = ["COPIES_VARIABLE", "RETRY_S", "START_FRESH_S", "JobTables", "Schedule", "TableReloads"]


_log = logging.getLogger(__name__)

RETRY_S: Final = 10.0
"""How long a load that failed waits before the next attempt."""

START_FRESH_S: Final = 60.0
"""How old a version may be with which a job starts if no interval is set; an older one is loaded again before."""

_LOOK_S = 1.0
_DAY_S = 86_400
_DEFAULT_TTL = "10 s"


@dataclass(frozen=True, slots=True)
class Schedule:
    """When a version is too old: another stamp (`watches`), its age, or a new day, which begins at a second in UTC.

    `look_s` is how often that is looked at. `follows` names the topic of changes that bring it up to date in between.
    """

    watches: bool = False
    interval_s: float | None = None
    day_from_s: int | None = None
    look_s: float = _LOOK_S
    follows: str = ""

    @classmethod
    def of(cls, load: TableLoad) -> Schedule:
        """What the options of a table say."""
        spec, changes = load.spec, load.changes
        ttl_s = max(spec.seconds("lookup.cache.ttl", _DEFAULT_TTL) or 0, _LOOK_S)
        if changes is spec:
            return cls(look_s=ttl_s, follows=spec.option("topic"))
        if changes is not None:
            look_s = max(spec.seconds(f"{CHANGES}interval", _DEFAULT_TTL) or 0, _LOOK_S)
            plain = replace(load, spec=replace(spec, options=_without_changes(spec)))
            return replace(cls.of(plain), look_s=look_s, follows=changes.option("topic"))
        if open_lookup(spec).watches:
            return cls(watches=True, look_s=ttl_s)
        if spec.option("lookup.full-cache.reload-strategy", "PERIODIC").upper() == "TIMED":
            begins = datetime.time.fromisoformat(spec.option("lookup.full-cache.timed-reload.iso-time").rstrip("Zz"))
            return cls(day_from_s=(begins.hour * 60 + begins.minute) * 60 + begins.second)
        return cls(interval_s=spec.seconds("lookup.full-cache.periodic-reload.interval"))

    def __str__(self) -> str:
        if self.follows:
            own = replace(self, follows="")
            whole = "" if own == Schedule(look_s=self.look_s) else f", and whole {own}"
            return f"by the changes in {self.follows}, looked at every {self.look_s:g} s{whole}"
        if self.watches:
            return f"when its content changes, looked at every {self.look_s:g} s"
        if self.day_from_s is not None:
            return f"each day at {datetime.timedelta(seconds=self.day_from_s)} UTC"
        return "when a job starts" if self.interval_s is None else f"every {self.interval_s:g} s"

    def is_due(self, head: TableVersion, now_ms: int, stamp: Callable[[], str]) -> bool:
        """Whether a version is too old."""
        if self.watches:
            return stamp() != head.stamp
        if self.day_from_s is not None:
            return self._day(now_ms) != self._day(head.read_until_ms)
        return self.interval_s is not None and now_ms - head.read_until_ms >= self.interval_s * 1000

    def is_due_at_start(self, head: TableVersion, now_ms: int, stamp: Callable[[], str]) -> bool:
        """Whether a job that begins wants a newer one."""
        if self.watches or self.day_from_s is not None or self.interval_s is not None:
            return self.is_due(head, now_ms, stamp)
        return not self.follows and now_ms - head.time_ms >= START_FRESH_S * 1000

    def _day(self, time_ms: int) -> int:
        return (time_ms // 1000 - (self.day_from_s or 0)) // _DAY_S


class _Due(Enum):
    """What a version lacks: the changes since, or all."""

    CHANGES = "changes"
    WHOLE = "whole"


def _without_changes(spec: LookupSpec) -> tuple[tuple[str, str], ...]:
    return tuple((name, value) for name, value in spec.options if not name.startswith(CHANGES))


class TableReloads:
    """Keeps one table fresh from the driver of a job, in a thread of its own; micro-batches never wait for it.

    Where several jobs share a table, whoever is first loads it.
    """

    def __init__(
        self, load: TableLoad, store: VersionStore, *, clock_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000
    ) -> None:
        self.load = load
        self.store = store
        self._schedule = Schedule.of(load)
        self._clock_ms = clock_ms
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._again_ms = 0
        self._last_warning = ""
        self._is_blind = False

    @property
    def schedule(self) -> str:
        """When it is loaded, in words."""
        return str(self._schedule)

    def first(self) -> None:
        """See that there is a version, and none that is too old for a job that begins.

        Raises JobError or DimensionError where there is none and it cannot be loaded.
        """
        self.store.describe(self.load.note(self.schedule))
        head = self.store.current()
        if head is None:
            self.store.load(self._fill, newer_than=0)
            return
        due: _Due | None
        try:
            due = self._due(head, self._schedule.is_due_at_start)
        except (MillstreamError, OSError):
            # The load says what is wrong, and what there is goes on.
            due = _Due.WHOLE
        if due is not None:
            self._reload(head, due)

    def _due(
        self, head: TableVersion | None, is_due: Callable[[TableVersion, int, Callable[[], str]], bool]
    ) -> _Due | None:
        """What is to be loaded."""
        if head is None or self._is_asked(head) or is_due(head, self._clock_ms(), self.load.stamp):
            return _Due.WHOLE
        follows = self.load.changes is not None and self.load.ends() != head.ends
        return _Due.CHANGES if follows else None

    def begin(self) -> None:
        """Look from time to time from here on, until `stop`."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._watch, name="millstream-dimension", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Look no more. A load under way goes on to its end, which nobody waits for."""
        self._stopping.set()

    def look(self) -> bool:
        """Load the table if that is due; whether there is a new version."""
        now_ms = self._clock_ms()
        head = self.store.current()
        if now_ms < self._again_ms:
            return False
        try:
            due = self._due(head, self._schedule.is_due)
        except (MillstreamError, OSError) as error:
            # A source that cannot be looked at is told as one that cannot be loaded.
            self.store.complain(str(error))
            self._note_failure(error)
            self._is_blind = True
            return False
        if self._is_blind:
            self._is_blind = False
            self.store.complain("")
        return due is not None and self._reload(head, due)

    def trouble(self) -> str | None:
        """In one line, why what is joined is older than it should be."""
        trouble, head = self.store.load_failure(), self.store.current()
        if trouble is None:
            return None
        version = "nothing" if head is None else f"version {head.version} of {self._ago(head)}"
        return f"The table {self.load.spec.name} is not loaded again; {version} goes on: {trouble.words}"

    def _ago(self, head: TableVersion) -> str:
        return f"{datetime.datetime.fromtimestamp(head.time_ms / 1000, datetime.UTC):%Y-%m-%d %H:%M:%S} UTC"

    def _reload(self, head: TableVersion | None, due: _Due) -> bool:
        fill = self._fill if head is None or due is _Due.WHOLE else partial(self._fill_on, head)
        try:
            made = self.store.load(fill, newer_than=0 if head is None else head.version)
        except (MillstreamError, OSError) as error:
            self._note_failure(error)
            return False
        self._last_warning = ""
        HitCounts.fold(self.store.directory / COUNTS)
        return made is not None

    def _note_failure(self, error: BaseException) -> None:
        """Wait a while, and say it once."""
        self._again_ms = self._clock_ms() + int(RETRY_S * 1000)
        words = str(error)
        if words != self._last_warning:
            _log.warning("%s", self.trouble())
        self._last_warning = words

    def _is_asked(self, head: TableVersion) -> bool:
        asked_ms = ReloadRequest(self.store.directory).time_ms()
        return asked_ms is not None and asked_ms > head.read_from_ms

    def _fill(self, directory: Path) -> Loaded:
        return self.load.fill(directory, self._keys())

    def _fill_on(self, head: TableVersion, directory: Path) -> Loaded:
        return self.load.fill_on(directory, self._keys(), self.store.directory_of(head.version), head)

    def _keys(self) -> list[IndexKey]:
        note = self.store.note()
        keys = () if note is None else note.keys
        return [IndexKey.decode(msgspec.json.decode(key)) for key in keys]

    def _watch(self) -> None:
        while not self._stopping.wait(self._schedule.look_s):
            self.look()


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
