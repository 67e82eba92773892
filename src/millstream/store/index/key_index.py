"""Finding the messages of a topic by key: by each word of their property KEYS and by their UNIQ_KEY.

The log is the truth and `put` does no work for the index. Now and then `extend` makes a run (run.py) of what the log
has become longer by, and merges runs so that there are few. What no run covers yet is searched in the log itself, and
so is the range of a run that turns out to be damaged, until the next `extend` makes it again. Every answer is compared
with its record, so neither equal hashes nor old files give a wrong one.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from millstream.model.errors import StoreError
from millstream.store.commit_log import CommitLog
from millstream.store.files import FileLayer
from millstream.store.index.key_search import KeyQuery, KeySearch, Part
from millstream.store.index.log_stretch import LogStretch
from millstream.store.index.run import KeyRun
from millstream.store.index.run_builder import build_run
from millstream.store.index.run_merge import RunMerge
from millstream.store.index.run_table import load_runs, mergeable

__all__ = ["DEFAULT_RESULTS", "MAX_RESULTS", "KeyIndex", "KeyIndexOptions"]

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
            for begin, end in self._uncovered(end_log_offset):
                while begin < end and left > 0:
                    run = self._build(begin, min(begin + self._options.run_log_bytes, end))
                    left -= run.span.end - begin
                    begin = run.span.end
                    entries += run.entries
            self._merge_some(self._options.min_merged_entries + entries * _MERGED_PER_NEW_ENTRY)
            return not self._uncovered(end_log_offset)

    def _uncovered(self, end_log_offset: int) -> list[tuple[int, int]]:
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
