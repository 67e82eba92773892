"""Lookup and hit counts of a dimension table: one file per process, summed when shown."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from millstream.streams.state.file_locks import FileLock

__all__ = ["COUNTS", "COUNTS_EVERY_S", "HitCounts", "LookupHits"]

COUNTS: Final = "counts"
"""The directory beside a table's versions in which processes leave what they counted."""

COUNTS_EVERY_S: Final = 1.0
"""How often a process writes its counts at most."""

MAX_COUNT_FILES: Final = 64
"""Files of counts beside a table at most; then those of processes that have ended become one."""

_TOTAL = "total"


class LookupHits(msgspec.Struct, frozen=True):
    """Rows that asked, and those of them that found at least one row."""

    probes: int = 0
    hits: int = 0

    def __add__(self, other: LookupHits) -> LookupHits:
        return LookupHits(self.probes + other.probes, self.hits + other.hits)

    @property
    def rate(self) -> float | None:
        """The share of rows that found something; None where none asked."""
        return self.hits / self.probes if self.probes else None


class HitCounts:
    """The counts of this process in `directory`. What is not written when it is killed is lost: they only inform."""

    def __init__(self, directory: Path, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._directory = directory
        self._clock = clock
        self._path = directory / f"{os.getpid()}-{uuid.uuid4().hex[:8]}.json"
        self._mine = LookupHits()
        self._written_s: float | None = None
        self._lock: FileLock | None = None

    def add(self, probes: int, hits: int) -> None:
        """Count rows. Never raises: a count is no reason to stop."""
        self._mine += LookupHits(probes, hits)
        now_s = self._clock()
        if self._written_s is not None and now_s - self._written_s < COUNTS_EVERY_S:
            return
        self._written_s = now_s
        self.write()

    def write(self) -> None:
        """Write what is counted so far."""
        try:
            if self._lock is None:
                self._directory.mkdir(parents=True, exist_ok=True)
                self._lock = FileLock.take(self._path, shared=True)
            # One small write in place: a lock is on this very file.
            with self._path.open("r+b") as file:
                file.write(msgspec.json.encode(self._mine).ljust(64))
        except OSError:
            return

    @staticmethod
    def read(directory: Path) -> LookupHits:
        """The sum over all processes."""
        found = LookupHits()
        for path in directory.glob("*.json"):
            found += _read_hits(path)
        return found

    @staticmethod
    def fold(directory: Path) -> None:
        """Make the files of processes that have ended one, where there are many."""
        paths = [path for path in directory.glob("*.json") if path.stem != _TOTAL]
        if len(paths) < MAX_COUNT_FILES:
            return
        total = directory / f"{_TOTAL}.json"
        for path in paths:
            lock = FileLock.take(path, wait=False)
            if lock is None:
                continue
            more = _read_hits(total) + _read_hits(path)
            path.unlink(missing_ok=True)
            total.write_bytes(msgspec.json.encode(more))
            lock.release()


def _read_hits(path: Path) -> LookupHits:
    try:
        return msgspec.json.decode(path.read_bytes(), type=LookupHits)
    except (OSError, msgspec.MsgspecError):
        return LookupHits()
