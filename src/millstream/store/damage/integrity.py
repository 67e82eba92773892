"""Checks that a store's directory is complete, before a start changes anything.

The log must have every byte that is known to have been on the disk: from where retention left it up to the checkpoint
and the flush mark. Only the sizes of its files are looked at, and the last bytes of the log: a start stays as quick as
the log is long.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from millstream.model.errors import StartRefused
from millstream.store.commit_log import is_segment_name
from millstream.store.files import FileLayer
from millstream.store.manifest import ManifestDocument

__all__ = [
    "CONFIRMED",
    "LOG",
    "LogFile",
    "Loss",
    "check_no_loss",
    "is_part_there",
    "log_losses",
    "missing_of_log",
    "missing_ranges",
    "part_losses",
]

LOG: Final = "commitlog"
"""The part of a store that is its log."""

CONFIRMED: Final = "confirmed"
"""The part of a replicated store that says up to where replicas have its log: a flush mark."""

_NO_CONTENT: Final = frozenset({"lock", "lost+found"})
"""What an empty directory may have: the second one is what the root of an empty file system has."""

_TAIL_BYTES: Final = 3
"""Last bytes of a record that are never all zeros: its topic's end and the length of its properties at least."""

_CHUNK_BYTES: Final = 1024 * 1024


@dataclass(frozen=True, slots=True)
class LogFile:
    """A file of the log: where it starts, and how many bytes it has."""

    path: Path
    start: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Loss:
    """A part that is not there, or not all of it: its path below the data directory, and what that means."""

    directory: Path
    part: str
    words: str
    is_log: bool = False
    is_damaged: bool = False
    """Whether its files are there and cannot be read."""


def check_no_loss(losses: Sequence[Loss]) -> None:
    """Refuse a start where something is missing: DATA_MISSING, or LOG_INCOMPLETE where it is of the log alone."""
    if not losses:
        return
    is_log_alone = all(loss.is_log for loss in losses)
    accepted = " ".join(f"--accept-loss {shlex.quote(loss.part)}" for loss in losses)
    directory = shlex.quote(str(losses[0].directory))
    raise StartRefused(
        "LOG_INCOMPLETE" if is_log_alone else "DATA_MISSING",
        " ".join(loss.words for loss in losses),
        remedy=(
            "Nothing was changed. Put it back: mount its disk, or restore it from a copy. "
            f"To go on without it for good: millstream store repair --dir {directory} {accepted}."
        ),
    )


def is_part_there(path: Path, files: FileLayer) -> bool:
    """Whether a folder with something in it, a file, or a file's copy is there."""
    if path.is_dir():
        return not _NO_CONTENT.issuperset(files.names(path))
    return files.exists(path) or files.exists(path.with_name(path.name + ".bak"))


def part_losses(
    directory: Path, parts: Iterable[str], files: FileLayer, *, below: str = "", lost: dict[str, str]
) -> list[Loss]:
    """The noted parts that are not there. `lost` says by a part's first name what goes with it."""
    losses = []
    for part in sorted(parts):
        path = directory / below / part
        if not is_part_there(path, files):
            what = lost.get(part) or lost.get(part.partition("/")[0], "what it held is gone")
            words = f"{path} is missing or empty, and it was there: without it {what}."
            losses.append(Loss(directory, str(Path(below) / part), words))
    return losses


def log_losses(store: Path, files: FileLayer, noted: ManifestDocument | None, known: int) -> list[Loss]:
    """What the log of the store lacks of the bytes below `known`, which were on the disk."""
    directory = store / LOG
    missing = missing_of_log(store, files, noted, known)
    if missing:
        count = sum(end - start for start, end in missing)
        places = f"log offset {missing[0][0]} to {missing[-1][1]}"
        words = f"The log in {directory} lacks {count:,} bytes that were on the disk ({places})."
    elif noted is not None and LOG in noted.parts and not any(map(is_segment_name, files.names(directory))):
        words = f"The log in {directory} has no file, and it had one."
    else:
        return []
    words += " Without them their messages are gone, delayed ones and open transactions too."
    return [Loss(store.parent, f"{store.name}/{LOG}", words, is_log=True)]


def missing_of_log(store: Path, files: FileLayer, noted: ManifestDocument | None, known: int) -> list[tuple[int, int]]:
    """The ranges of log offsets below `known` that the log lacks, but for those that somebody has accepted."""
    log_files = _log_files(store / LOG, files)
    lost = noted.lost if noted is not None else ()
    first = log_files[0].start if log_files else 0
    start = first if noted is None or noted.log_start is None else noted.log_start
    there = [(each.start, each.start + each.size_bytes) for each in log_files]
    missing = missing_ranges([*there, *lost], start, known)
    if not missing and not any(lost_start < known <= lost_end for lost_start, lost_end in lost):
        missing = _unwritten_end(log_files, files, start, known)
    return missing


def missing_ranges(there: Iterable[tuple[int, int]], start: int, end: int) -> list[tuple[int, int]]:
    """What the ranges that are there, in any order, leave of the one from `start` to `end`."""
    missing = []
    position = start
    for range_start, range_end in sorted(there):
        if position >= end:
            break
        if range_start > position:
            missing.append((position, min(range_start, end)))
        position = max(position, range_end)
    if position < end:
        missing.append((position, end))
    return missing


def _log_files(directory: Path, files: FileLayer) -> list[LogFile]:
    found = []
    for path in files.entries(directory):
        if is_segment_name(path.name):
            with files.open_descriptor(path) as descriptor:
                found.append(LogFile(path, int(path.name), files.size(descriptor)))
    return found


def _unwritten_end(log_files: Sequence[LogFile], files: FileLayer, start: int, end: int) -> list[tuple[int, int]]:
    """The range of zeros below `end`, where a record ended: what an older copy of the log lacks.

    Where a file begins or ends there, what is before it is no record's end, and nothing can be said.
    """
    holder = next((each for each in log_files if each.start < end < each.start + each.size_bytes), None)
    if holder is None:
        return []
    with files.open_descriptor(holder.path) as descriptor:
        position = end - holder.start
        if files.pread(descriptor, _TAIL_BYTES, max(position - _TAIL_BYTES, 0)).strip(b"\0"):
            return []
        lowest = max(start - holder.start, 0)
        while position > lowest:
            size = min(position - lowest, _CHUNK_BYTES)
            written = files.pread(descriptor, size, position - size).rstrip(b"\0")
            if written:
                position += len(written) - size
                break
            position -= size
    return [(holder.start + position, end)]
