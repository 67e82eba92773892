"""The runs of a directory: which there are, which of them count, and which are merged next."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path

from millstream.store.files import FileLayer
from millstream.store.index.run import KeyRun, is_partial_run, is_run, load_run

__all__ = ["load_runs", "mergeable", "without_overlaps"]

_log = logging.getLogger(__name__)


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
