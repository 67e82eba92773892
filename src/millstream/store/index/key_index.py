"""The key index: finds messages of a topic by each word of KEYS and by UNIQ_KEY.

The log is the truth and `put` does no work for the index. Now and then `extend` makes a run (run.py) of what the log
has become longer by, and merges runs so that there are few. What no run covers yet is searched in the log itself, and
so is the range of a run that turns out to be damaged, until the next `extend` makes it again. Every answer is compared
with its record, so neither equal hashes nor old files give a wrong one.

The runs of a directory: which there are, which of them count, and which are merged next.

Making a run from a part of the log.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from millstream.model.errors import StoreError
from millstream.protocol.checksum import crc32
from millstream.store.commit_log import CommitLog
from millstream.store.files import FileLayer
from millstream.store.index.key_search import KeyQuery, KeySearch, Part
from millstream.store.index.log_stretch import LogStretch
from millstream.store.index.record_keys import RecordWalk, keys_of
from millstream.store.index.run import (
    ENTRY,
    KeyRun,
    RunSpan,
    is_partial_run,
    is_run,
    load_run,
    stored_seconds,
    topic_seed,
)
from millstream.store.index.run_merge import RunMerge
from millstream.store.index.run_writer import RunWriter

__all__ = [
    "DEFAULT_RESULTS",
    "MAX_BUILT_ENTRIES",
    "MAX_RESULTS",
    "KeyIndex",
    "KeyIndexOptions",
    "build_run",
    "load_runs",
    "mergeable",
    "without_overlaps",
]

MAX_BUILT_ENTRIES = 262_144
"""Entries after which a run ends before its part of the log does; bounds the memory of building one."""

_RECORDS_BETWEEN_RESTS = 256
_ENTRIES_BETWEEN_RESTS = 2048
_BUCKETS = 256

_NO_TIMES = (2**63 - 1, -(2**63))
"""Begin and end ms of a run without records: no time lies between them, and a merge takes those of the others."""


class _Gathered(NamedTuple):
    """The entries of a part of the log in buckets by the first byte of their hash.

    Sorting each bucket alone costs less than sorting all and never holds the interpreter for long.
    """

    buckets: list[list[bytes]]
    span: RunSpan


def build_run(
    log: CommitLog, begin: int, end: int, directory: Path, files: FileLayer, rest: Callable[[], None]
) -> KeyRun:
    """The run over the log from `begin`, where a record starts, to `end`, or less if there are very many keys.

    The last record may reach beyond `end`. `rest` is called now and then, to let other threads in. The run is on the
    disk when this returns; errors of the disk are OSError and leave nothing behind.
    """
    buckets, span = _gather(log, begin, end, rest)
    writer = RunWriter(directory, span.begin, span.end, files)
    try:
        entries_since_rest = 0
        for bucket in buckets:
            bucket.sort()
            writer.add(b"".join(bucket))
            entries_since_rest += len(bucket)
            bucket.clear()
            if entries_since_rest >= _ENTRIES_BETWEEN_RESTS:
                entries_since_rest = 0
                rest()
        return writer.finish(span)
    except OSError:
        writer.abandon()
        raise


def _gather(log: CommitLog, begin: int, end: int, rest: Callable[[], None]) -> _Gathered:
    buckets: list[list[bytes]] = [[] for _ in range(_BUCKETS)]
    walk = RecordWalk(log, begin, end)
    begin_ms, end_ms = _NO_TIMES
    stored_s, last_ms, seed, last_topic = 0, None, 0, None
    entries, records_since_rest, pack = 0, 0, ENTRY.pack
    for records in walk.pieces():
        for log_offset, size, stored_ms, topic, text in records:
            if stored_ms != last_ms:
                begin_ms, end_ms = min(begin_ms, stored_ms), max(end_ms, stored_ms)
                stored_s, last_ms = stored_seconds(stored_ms), stored_ms
            if topic != last_topic:
                seed, last_topic = topic_seed(topic), topic
            keys = keys_of(text)
            for key in keys:
                found = crc32(key, seed)
                buckets[found >> 24].append(pack(found, log_offset, stored_s))
            entries += len(keys)
            if entries >= MAX_BUILT_ENTRIES:
                return _Gathered(buckets, RunSpan(begin, log_offset + size, begin_ms, end_ms))
        records_since_rest += len(records)
        if records_since_rest >= _RECORDS_BETWEEN_RESTS:
            records_since_rest = 0
            rest()
    return _Gathered(buckets, RunSpan(begin, walk.position, begin_ms, end_ms))


def load_runs(directory: Path, files: FileLayer) -> list[KeyRun]:
    """The runs whose headers are whole, in the order of the log, without overlaps. Files that do not count are removed.

    Raises STORE_FORMAT, with every file as it was, if one of them is of an unknown version.
    """
    files.make_directory(directory)
    entries = files.entries(directory)
    found = {path: load_run(path, files) for path in entries if is_run(path.name)}
    damaged = [path for path, run in found.items() if run is None]
    if damaged:
        _log.warning("Files of the key index that are damaged will be made again from the log: %d", len(damaged))
    runs = without_overlaps(run for run in found.values() if run is not None)
    kept = {run.path for run in runs}
    for path in entries:
        if is_partial_run(path.name) or (path in found and path not in kept):
            files.discard(path)
    return runs


def without_overlaps(runs: Iterable[KeyRun]) -> list[KeyRun]:
    """The runs in the order of the log; of those that overlap the one that covers most.

    A crash between the writing of a merged run and the removal of its parts leaves all of them.
    """
    kept: list[KeyRun] = []
    for run in sorted(runs, key=lambda run: run.span.end - run.span.begin, reverse=True):
        if all(run.span.end <= other.span.begin or other.span.end <= run.span.begin for other in kept):
            kept.append(run)
    return sorted(kept, key=lambda run: run.span.begin)


def mergeable(runs: Sequence[KeyRun], fan_in: int, max_log_bytes: int) -> list[KeyRun] | None:
    """`fan_in` neighbours of one level, the lowest first, that together cover at most `max_log_bytes` of the log."""
    best: list[KeyRun] | None = None
    for first in range(len(runs) - fan_in + 1):
        window = list(runs[first : first + fan_in])
        level = window[0].span.level
        if (
            all(run.span.level == level and not run.is_damaged for run in window)
            and all(run.span.end == following.span.begin for run, following in pairwise(window))
            and window[-1].span.end - window[0].span.begin <= max_log_bytes
            and (best is None or level < best[0].span.level)
        ):
            best = window
    return best


DEFAULT_RESULTS = 32
"""Messages that a query answers if it does not say how many."""

MAX_RESULTS = 64
"""Messages that a query answers at most, whatever it says."""

_MERGED_PER_NEW_ENTRY = 4
"""Entries that `extend` merges for each one it adds; more than the levels that an entry passes through."""

_REST_S = 0.0002

_log = logging.getLogger(__name__)


def _rest() -> None:
    time.sleep(_REST_S)


@dataclass(frozen=True, slots=True)
class KeyIndexOptions:
    """How the index divides its files.

    `run_log_bytes`: log that one run covers when it is made. `fan_in`: runs that become one. `max_merged_log_bytes`:
    log that one run covers at most; retention frees its file only when all of it is gone. `min_merged_entries`: merged
    by each `extend` besides what its new entries ask for.
    """

    run_log_bytes: int = 16 * 1024 * 1024
    fan_in: int = 16
    max_merged_log_bytes: int = 8 * 1024 * 1024 * 1024
    min_merged_entries: int = 65_536


class KeyIndex:
    """The index of one log, kept in `directory`; made after the log's recovery and before anything is put.

    `find` may be called by any number of threads while another one calls the rest. `counts` says whether the records
    of a topic at a log offset still count. `rest` lets other threads in and is called every millisecond or two.
    """

    def __init__(
        self,
        directory: Path,
        log: CommitLog,
        files: FileLayer,
        *,
        counts: Callable[[str, int], bool] = lambda topic, log_offset: True,
        options: KeyIndexOptions | None = None,
        rest: Callable[[], None] = _rest,
    ) -> None:
        self._directory = directory
        self._log = log
        self._files = files
        self._search = KeySearch(log, files, lambda: self._parts, counts, rest)
        self._options = options or KeyIndexOptions()
        self._rest = rest
        self._mutex = threading.Lock()  # everything but find
        self._merge: RunMerge | None = None
        self._start = log.start
        self._runs: list[KeyRun] = []
        self._parts: tuple[Part, ...] = ()
        self._replace_runs(load_runs(directory, files))
        self.cut(log.end)
        self.trim(log.start)

    @property
    def covered_log_offset(self) -> int:
        """Up to where all of the log is covered by runs; what follows is searched in the log by each `find`."""
        return next(part.begin for part in self._parts if isinstance(part, LogStretch))

    @property
    def file_count(self) -> int:
        """The number of runs."""
        return len(self._runs)

    def extend(self, end_log_offset: int, *, max_log_bytes: int | None = None) -> bool:
        """Cover the log up to `end_log_offset`, where a record ends, and merge some runs; whether all is covered.

        Runs found damaged or missing are made again first, wherever they are. The log must be on the disk up to there.
        At most about `max_log_bytes` are read, so that an index that has to be made again comes in pieces. OSError
        leaves what is covered as it was before or better.
        """
        with self._mutex:
            self._drop([run for run in self._runs if run.is_damaged])
            left = sys.maxsize if max_log_bytes is None else max_log_bytes
            entries = 0
            for begin, end in self._find_uncovered(end_log_offset):
                while begin < end and left > 0:
                    run = self._build(begin, min(begin + self._options.run_log_bytes, end))
                    left -= run.span.end - begin
                    begin = run.span.end
                    entries += run.entries
            self._merge_some(self._options.min_merged_entries + entries * _MERGED_PER_NEW_ENTRY)
            return not self._find_uncovered(end_log_offset)

    def _find_uncovered(self, end_log_offset: int) -> list[tuple[int, int]]:
        stretches = [part for part in self._parts if isinstance(part, LogStretch)]
        ranges = [(each.begin, end_log_offset if each.end is None else each.end) for each in stretches]
        return [(begin, end) for begin, end in ranges if begin < end]

    def _build(self, begin: int, end: int) -> KeyRun:
        run = build_run(self._log, begin, end, self._directory, self._files, self._rest)
        self._replace_runs([*self._runs, run])
        return run

    def _merge_some(self, entries: int) -> None:
        options = self._options
        while entries > 0:
            try:
                if self._merge is None:
                    runs = mergeable(self._runs, options.fan_in, options.max_merged_log_bytes)
                    if runs is None:
                        return
                    self._merge = RunMerge(runs, self._directory, self._files)
                count = self._merge.advance()
                if not count:
                    self._take_merged(self._merge, self._merge.finish())
            except StoreError as error:
                _log.warning("A part of the key index will be made again from the log: %s", error)
                self._abandon_merge()
                return
            except OSError:
                self._abandon_merge()
                raise
            entries -= count
            self._rest()

    def _take_merged(self, merge: RunMerge, merged: KeyRun) -> None:
        self._merge = None
        self._replace_runs([*(run for run in self._runs if run not in merge.runs), merged])
        for run in merge.runs:
            self._files.discard(run.path)

    def _abandon_merge(self) -> None:
        if self._merge is not None:
            self._merge.abandon()
            self._merge = None

    def _replace_runs(self, runs: Sequence[KeyRun]) -> None:
        self._runs = sorted(runs, key=lambda run: run.span.begin)
        parts: list[Part] = []
        covered = self._start
        for run in self._runs:
            if run.span.begin > covered:
                parts.append(LogStretch(self._log, covered, run.span.begin, self._rest))
            parts.append(run)
            covered = max(covered, run.span.end)
        # One value, replaced before a file is removed: a find that misses a file finds new parts here.
        self._parts = (*parts, LogStretch(self._log, covered, None, self._rest))

    def _drop(self, runs: Sequence[KeyRun]) -> None:
        if self._merge is not None and any(run in self._merge.runs for run in runs):
            self._abandon_merge()
        self._replace_runs([run for run in self._runs if run not in runs])
        for run in runs:
            self._files.discard(run.path)

    def trim(self, start_log_offset: int) -> None:
        """Let the log start at `start_log_offset`: runs wholly below it are removed, nothing below it is answered."""
        with self._mutex:
            self._start = max(self._start, start_log_offset)
            self._drop([run for run in self._runs if run.span.end <= self._start])

    def cut(self, end_log_offset: int) -> None:
        """Let the log end at `end_log_offset`, before anything is put there: runs that reach beyond it are removed."""
        with self._mutex:
            self._start = min(self._start, end_log_offset)
            beyond = [run for run in self._runs if run.span.end > end_log_offset]
            self._drop(beyond)
            if beyond:
                # Back after a power failure, such a run would stand for records that it does not know.
                self._files.sync_directory(self._directory)

    def close(self) -> None:
        """Give up a merge that is under way; the next start begins it again."""
        with self._mutex:
            self._abandon_merge()

    def find(
        self,
        topic: str,
        key: str,
        begin_ms: int,
        end_ms: int,
        max_results: int = DEFAULT_RESULTS,
        *,
        visible_log_offset: int,
    ) -> list[int]:
        """Log offsets of records of the topic with the key, stored from `begin_ms` to `end_ms` (both included).

        Newest first, at most `max_results` and `MAX_RESULTS`, none at `visible_log_offset` or behind. Every record was
        there, whole and of that key a moment ago.
        """
        limit = min(max_results, MAX_RESULTS)
        try:
            query = KeyQuery(topic, topic.encode(), key.encode(), begin_ms, end_ms, self._start, visible_log_offset)
        except UnicodeEncodeError:
            return []  # no record holds what UTF-8 cannot
        return self._search.run(query, limit) if key and limit > 0 else []
