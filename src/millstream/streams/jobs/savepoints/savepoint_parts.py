"""Savepoints of a job with several plans: one directory with a numbered savepoint for each.

A script with several INSERTs is one job of a job server, and each INSERT has checkpoints of its own. So the savepoint
of such a job is a directory with a whole savepoint in `0`, `1`, and so on. That of a job with one plan is the
savepoint itself.
"""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from millstream.streams.errors import JobError
from millstream.streams.jobs.savepoints.savepoint import Savepoint, StagedSavepoint, describe_savepoint, stage_savepoint

__all__ = ["StageSavepoint", "StagedParts", "count_parts", "describe_parts", "stage_checkpoints", "stage_parts"]

StageSavepoint = Callable[[Path, str], StagedSavepoint]
"""Holds the savepoint of one plan for that directory, under that name for people."""

_ID_CHARACTERS: Final = 12


@dataclass(frozen=True, slots=True)
class StagedParts:
    """The savepoints of all plans, held and not described yet; `place` gets the name `target` once all are whole."""

    parts: tuple[StagedSavepoint, ...]
    place: Path
    target: Path

    def finish(self) -> list[Savepoint]:
        """Describe all and give the directory its name. Raises JobError SAVEPOINT_REFUSED; then nothing is left."""
        try:
            found = [part.finish() for part in self.parts]
            if self.place != self.target:
                os.replace(self.place, self.target)
        except OSError as error:
            self.discard()
            raise _refusal(self.target, error) from None
        except BaseException:
            self.discard()
            raise
        return found

    def discard(self) -> None:
        """Remove what is held."""
        for part in self.parts:
            shutil.rmtree(part.directory, ignore_errors=True)
        if self.place != self.target:
            shutil.rmtree(self.place, ignore_errors=True)


def stage_parts(target: Path, name: str, plans: Sequence[StageSavepoint]) -> StagedParts:
    """Hold a savepoint for each plan. Raises what they raise, OSError as JobError SAVEPOINT_REFUSED."""
    if target.exists():
        words = f"{target} is there already."
        raise JobError("SAVEPOINT_REFUSED", words, remedy="Name a directory that does not exist.")
    if len(plans) == 1:
        try:
            return StagedParts((plans[0](target, name),), target, target)
        except OSError as error:
            raise _refusal(target, error) from None
    place = target.with_name(f".{target.name}.{uuid.uuid4().hex[:_ID_CHARACTERS]}")
    staged: list[StagedSavepoint] = []
    try:
        place.mkdir(parents=True)
        for number, stage in enumerate(plans):
            staged.append(stage(place / str(number), name))
    except OSError as error:
        shutil.rmtree(place, ignore_errors=True)
        raise _refusal(target, error) from None
    except BaseException:
        shutil.rmtree(place, ignore_errors=True)
        raise
    return StagedParts(tuple(staged), place, target)


def stage_checkpoints(root: Path, job: str, target: Path, name: str) -> StagedParts:
    """Hold what a savepoint of a job that is stopped is made of: of `root / job`, `root / job+1`, and so on.

    Raises JobError CHECKPOINT_MISMATCH where it has no checkpoint, SAVEPOINT_REFUSED as `stage_parts` does.
    """
    checkpoints = [root / job]
    while (more := root / f"{job}+{len(checkpoints)}").is_dir():
        checkpoints.append(more)

    def of(checkpoint: Path) -> StageSavepoint:
        return lambda place, label: stage_savepoint(checkpoint, place, label)

    return stage_parts(target, name, [of(checkpoint) for checkpoint in checkpoints])


def describe_parts(path: Path) -> list[Savepoint]:
    """What the savepoints in `path` say of themselves, by the numbers of plans. Raises as `describe_savepoint`."""
    return [describe_savepoint(part) for part in ([path] if count_parts(path) is None else _parts(path))]


def count_parts(path: Path) -> int | None:
    """How many parts the savepoint has, one for each plan of its job; None for one that is of a single plan."""
    if not (path / "0" / "savepoint.json").is_file() or (path / "savepoint.json").exists():
        return None
    return len(_parts(path))


def _parts(path: Path) -> list[Path]:
    parts: list[Path] = []
    while (part := path / str(len(parts))).is_dir():
        parts.append(part)
    return parts


def _refusal(target: Path, error: OSError) -> JobError:
    words = f"The savepoint cannot be written to {target}: {error.strerror or error}."
    return JobError("SAVEPOINT_REFUSED", words, remedy="Name a directory that the process of the job can write.")
