"""Savepoints: all checkpoints of a job at one moment, in one portable directory.

A savepoint holds a directory for each query of the job, with its identity, the one entry of Spark's log that it stands
at, the files of its operators up to that micro-batch, pinned versions of rules, models and dimension tables, and what
sinks keep over micro-batches. `savepoint.json` describes it and has the size and the SHA-256 of each file; it is
written last, and the directory gets its name once it is whole.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import msgspec

from millstream import __version__
from millstream.streams.errors import JobError
from millstream.streams.jobs.adoption import (
    PLACED_NOTES,
    batches_in,
    begin_log,
    check_passes,
    last_over,
    name_query,
    raw_ends,
)
from millstream.streams.jobs.identity import (
    IDENTITY_FILE,
    JobIdentity,
    read_identity,
    read_owner,
    shared_query,
    write_identity,
)
from millstream.streams.jobs.savepoints.placed_state import is_of_batch, put_state, take_state
from millstream.streams.jobs.state_fit import StateRecord
from millstream.streams.state.atomic_file import write_file

__all__ = [
    "SavedQuery",
    "Savepoint",
    "StagedSavepoint",
    "begins_from",
    "check_savepoint",
    "describe_savepoint",
    "open_savepoint",
    "stage_savepoint",
    "write_savepoint",
]

_MANIFEST: Final = "savepoint.json"
_FORMAT: Final = 1
_KEPT: Final = ("sources", "rules", "models", "lookups")
"""Directories of a checkpoint that hold what is pinned, copied as they are."""

_JOB_FREE: Final = "Give the job another name, or remove its checkpoint."
_ID_CHARACTERS: Final = 12


class SavedQuery(msgspec.Struct, frozen=True):
    """One query of the job: where it stands, and what its state is of.

    `micro_batch` None: no query of its own has run; one that it shares with others may have.
    """

    directory: str
    micro_batch: int | None
    positions: dict[str, dict[str, Any]]
    plan: list[str]
    key_groups: int
    state: StateRecord


class Savepoint(msgspec.Struct, frozen=True):
    """What a savepoint says of itself. `files` are sizes in bytes and SHA-256 by path; `time_ms` is since 1970."""

    id: str
    name: str
    job: str
    time_ms: int
    release: str
    queries: list[SavedQuery]
    files: dict[str, tuple[int, str]]
    format: int = _FORMAT

    def lines(self) -> list[str]:
        """The description for a user."""
        made = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(self.time_ms / 1000))
        size = sum(size for size, _ in self.files.values())
        head = f"Savepoint {self.name or self.id} of job {self.job}, made {made} by Millstream {self.release}"
        lines = [head, f"{len(self.files)} files, {size} bytes"]
        for query in self.queries:
            stands = (
                "no micro-batch of its own" if query.micro_batch is None else f"after micro-batch {query.micro_batch}"
            )
            lines.append(f"Query {query.directory}: {stands}, {query.key_groups} key groups")
            for name, position in query.positions.items():
                rows = sum(position.get("queues", {}).values())
                lines.append(f"  Table {name}: {len(position.get('queues', {}))} queues, offsets in all {rows}")
            lines += [f"  Operator {one.form.id} {one.form}" for one in query.state.operators]
            lines += [f"  Sink {name}" for name in query.state.sinks]
            lines += [f"  {line}" for line in query.plan]
        return lines


@dataclass(frozen=True, slots=True)
class StagedSavepoint:
    """Files that are linked or copied into a directory beside the target, and do not change any more."""

    directory: Path
    target: Path
    name: str
    job: str
    queries: tuple[SavedQuery, ...]

    def finish(self) -> Savepoint:
        """Describe it and give the directory its name. Raises OSError."""
        files = {path: _digest(self.directory / path) for path in _files_below(self.directory)}
        made = Savepoint(
            uuid.uuid4().hex[:_ID_CHARACTERS],
            self.name,
            self.job,
            time.time_ns() // 1_000_000,
            __version__,
            list(self.queries),
            files,
        )
        write_file(self.directory / _MANIFEST, msgspec.json.format(msgspec.json.encode(made), indent=2))
        os.replace(self.directory, self.target)
        return made


def write_savepoint(checkpoint: Path, target: Path, name: str = "") -> Savepoint:
    """Write a savepoint of a job that is stopped. `checkpoint` is its directory, or that of one of its queries.

    `target` must not exist. Raises JobError CHECKPOINT_MISMATCH where there is no checkpoint, or a micro-batch is half
    done, SAVEPOINT_REFUSED where the target is there; OSError.
    """
    return stage_savepoint(checkpoint, target, name).finish()


def stage_savepoint(
    checkpoint: Path, target: Path, name: str = "", *, pause: Callable[[], AbstractContextManager[None]] = nullcontext
) -> StagedSavepoint:
    """Hold what a savepoint is made of, by hard links where the file system has them.

    No micro-batch of a job that runs may run within `pause()`. State that lies in another place is read before, and
    within it only what came meanwhile.
    """
    queries = _queries_of(checkpoint)
    if not queries:
        words = f"There is no checkpoint in {checkpoint}."
        raise JobError("CHECKPOINT_MISMATCH", words, remedy="Give the directory of a job that has run.")
    if target.exists():
        words = f"{target} is there already."
        raise JobError("SAVEPOINT_REFUSED", words, remedy="Name a directory that does not exist.")
    staged = target.with_name(f".{target.name}.{uuid.uuid4().hex[:_ID_CHARACTERS]}")
    try:
        staged.mkdir(parents=True)
        _read_ahead(queries, staged)
        with pause():
            saved = tuple(_stage_query(directory, identity, staged) for directory, identity in _queries_of(checkpoint))
    except BaseException:
        shutil.rmtree(staged, ignore_errors=True)
        raise
    job = checkpoint.parent.name if (checkpoint / IDENTITY_FILE).exists() else checkpoint.name
    return StagedSavepoint(staged, target, name, job, saved)


def _queries_of(checkpoint: Path) -> list[tuple[Path, JobIdentity]]:
    directories = [checkpoint] if (checkpoint / IDENTITY_FILE).exists() else sorted(checkpoint.glob("*"))
    return [(one, identity) for one in directories if (identity := read_identity(one)) is not None]


def _stage_query(directory: Path, identity: JobIdentity, staged: Path) -> SavedQuery:
    state = identity.state
    if state is None or state.has_script_rows:
        reason = (
            "was written by an earlier release, or is of a batch job: start the job once with this release"
            if state is None
            else "is of a query that reads rows which stand in the script"
        )
        raise JobError("SAVEPOINT_REFUSED", f"The checkpoint {directory} {reason}.", remedy="")
    identity = replace(identity, starts={**identity.starts, **_shared_ends(directory, identity)})
    spark = directory / identity.spark
    batch_id = last_over(directory, spark)
    check_passes(spark, batch_id)
    place = staged / directory.name
    place.mkdir(exist_ok=True)
    ends = {**identity.starts, **raw_ends(spark, batch_id)}
    saved = replace(identity, generation=0)
    write_identity(place, saved)
    if batch_id is not None:
        begin_log(spark, place / saved.spark, batch_id, ends)
        for operator in state.operators:
            _stage_state(directory, operator.name, place / "operators" / operator.name, batch_id)
    for name in _KEPT:
        _copy_tree(directory / name, place / name)
    for pattern in PLACED_NOTES:
        for note in (directory / "sinks").glob(pattern):
            _copy_tree(note, place / "sinks" / note.name)
    return SavedQuery(directory.name, batch_id, ends, identity.plan, identity.key_groups, state)


def _shared_ends(directory: Path, identity: JobIdentity) -> dict[str, dict[str, Any]]:
    """Where the query stands that the job shares with others, by table; blank where it shares none.

    Jobs that share a query keep no state, so this and their identity are all that they need to go on alone.
    """
    name = shared_query(directory)
    query = None if name is None else directory.parent.parent / name
    shared = None if query is None else read_identity(query)
    if query is None or shared is None:
        return {}
    spark = query / shared.spark
    ends = {**shared.starts, **raw_ends(spark, last_over(query, spark))}
    return {table: ends[table] for table in identity.starts if table in ends}


def _read_ahead(queries: Iterable[tuple[Path, JobIdentity]], staged: Path) -> None:
    """Take state that lies in other places while the job goes on, so that the rest is little."""
    for directory, identity in queries:
        owner = read_owner(directory)
        over = max(batches_in(directory / identity.spark / "commits"), default=None)
        if owner is None or not owner.operators or over is None or identity.state is None:
            continue
        for operator in identity.state.operators:
            target = staged / directory.name / "operators" / operator.name
            take_state(owner.operators, operator.name, target, over, is_ahead=True)


def _stage_state(directory: Path, operator: str, target: Path, batch_id: int) -> None:
    """The files of an operator as they are after a micro-batch."""
    owner = read_owner(directory)
    if owner is not None and owner.operators:
        take_state(owner.operators, operator, target, batch_id)
        return
    source = directory / "operators" / operator
    for path in _files_below(source):
        if is_of_batch(Path(path).name, batch_id):
            _hold(source / path, target / path)


def _copy_tree(source: Path, target: Path) -> None:
    if source.is_file():
        _copy(source, target)
    for path in _files_below(source):
        _copy(source / path, target / path)


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)


def _hold(source: Path, target: Path) -> None:
    """A file that never changes, by a second name where that is possible: the job may remove the first one."""
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)


def _files_below(directory: Path) -> Iterator[str]:
    """Paths of the files, without those that a writer has not finished and the manifest."""
    for root, _, names in sorted(os.walk(directory)):
        for name in sorted(names):
            path = os.path.relpath(os.path.join(root, name), directory)
            if not name.startswith(".") and path != _MANIFEST:
                yield path


def _digest(file: Path) -> tuple[int, str]:
    with file.open("rb") as content:
        digest = hashlib.file_digest(content, "sha256").hexdigest()
    return file.stat().st_size, digest


def describe_savepoint(path: Path) -> Savepoint:
    """What the savepoint in `path` says of itself. Raises JobError SAVEPOINT_REFUSED, CHECKPOINT_DAMAGED."""
    file = path / _MANIFEST
    if not file.is_file():
        words = f"There is no savepoint in {path}: {_MANIFEST} is missing."
        raise JobError("SAVEPOINT_REFUSED", words, remedy="Give the directory that `job savepoint` has written.")
    try:
        found = msgspec.json.decode(file.read_bytes(), type=Savepoint)
    except msgspec.DecodeError as error:
        raise JobError("CHECKPOINT_DAMAGED", f"The file {file} is damaged: {error}.") from None
    if found.format != _FORMAT:
        words = f"The savepoint {path} has the format {found.format}; this release reads {_FORMAT}."
        raise JobError("SAVEPOINT_REFUSED", words, remedy=f"Use Millstream {found.release}, or newer.")
    return found


def check_savepoint(path: Path) -> Savepoint:
    """The savepoint in `path`, of which each file is as it was written. Raises as above, with the file's name."""
    found = describe_savepoint(path)
    for name, (size, digest) in found.files.items():
        file = path / name
        if not file.is_file():
            raise JobError("CHECKPOINT_DAMAGED", f"The savepoint {path} lacks the file {name}.")
        if _digest(file) != (size, digest):
            raise JobError("CHECKPOINT_DAMAGED", f"The file {name} of the savepoint {path} is damaged.")
    return found


def begins_from(path: Path, job: Path, copied_origin: Callable[[str], str] = lambda _query: "") -> bool:
    """Whether a job that names the savepoint `path` is still to begin from it.

    One that has begun from a savepoint which is not there any more goes on without it. `copied_origin` gives the
    savepoint that a query, by the name of its directory, began with as the copy of its checkpoint says that lies
    elsewhere; blank where there is none. Raises as `describe_savepoint`, and what that raises.
    """
    origins = {identity.origin for _, identity in _queries_of(job)} - {""}
    if origins and not (path / _MANIFEST).exists():
        return False
    found = describe_savepoint(path)
    if not origins:
        origins = {copied_origin(query.directory) for query in found.queries}
    return found.id not in origins


def open_savepoint(path: Path, job: Path, location: str = "") -> None:
    """Let the job whose checkpoints lie in `job` begin from a savepoint, under ids of its own.

    Its operators' state goes to `location`, if that is not blank. Where it has begun from this savepoint already, it
    goes on instead. Raises JobError CHECKPOINT_MISMATCH where it has other checkpoints, or a copy at `location`, and
    what `check_savepoint` raises; no checkpoint was written then. OSError.
    """
    found = describe_savepoint(path)
    present = _queries_of(job)
    if not present and job.exists() and any(job.iterdir()):
        words = f"{job} is not empty, and holds no checkpoint."
        raise JobError("CHECKPOINT_MISMATCH", words, remedy=_JOB_FREE)
    # Queries over tables that came to the job later have no origin.
    if any(identity.origin == found.id for _, identity in present):
        return
    if present:
        words = f"The job has a checkpoint in {job}, which is not of the savepoint {path}."
        raise JobError("CHECKPOINT_MISMATCH", words, remedy=_JOB_FREE)
    check_savepoint(path)
    staged = job.with_name(f".{job.name}.{uuid.uuid4().hex[:_ID_CHARACTERS]}")
    try:
        for query in found.queries:
            _copy_tree(path / query.directory, staged / query.directory)
            identity = read_identity(staged / query.directory)
            assert identity is not None
            fresh = replace(identity, id=uuid.uuid4().hex[:_ID_CHARACTERS], origin=found.id)
            write_identity(staged / query.directory, fresh)
            if query.micro_batch is not None:
                # Several jobs may begin from here.
                name_query(staged / query.directory / fresh.spark)
            if location:
                put_state(staged / query.directory, location, (job.name, query.directory))
        job.parent.mkdir(parents=True, exist_ok=True)
        # An empty directory, as was seen above, makes room.
        os.replace(staged, job)
    except BaseException:
        shutil.rmtree(staged, ignore_errors=True)
        raise
