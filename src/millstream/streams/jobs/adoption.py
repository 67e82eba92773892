"""Adapts a checkpoint to a changed query: rewrites Spark's log at the same positions and batch number.

Spark binds a checkpoint to the number and the order of a query's sources, and to nothing else that we use. So a new
log is begun, with one entry: the last micro-batch that is over, its offsets in a form that each source reads whatever
its place is. Micro-batches count on from there, and so do the versions of state and the origins of rows in sinks.
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import msgspec

from millstream.streams.errors import JobError
from millstream.streams.jobs.identity import JobIdentity, write_identity
from millstream.streams.jobs.state_fit import PlanState, StateFit
from millstream.streams.state.atomic_file import write_file

__all__ = [
    "HALF_DONE",
    "PLACED_NOTES",
    "DeliveryNote",
    "adopt_plan",
    "batches_in",
    "begin_log",
    "check_passes",
    "check_places",
    "find_cut_batch",
    "fit_log",
    "last_over",
    "name_query",
    "raw_ends",
    "remove_strays",
]

MOVED: Final = "moved"
"""The member of an offset that holds those of all sources; `millstream.streams.spark.source.agreed_ends` reads it."""

_NO_COMMIT: Final = 'v1\n{"nextBatchWatermarkMs":0}'

HALF_DONE = "Start the job once with the old query, so that it finishes that micro-batch; then change it."
_APART: Final = "Start the job once with the old query while no rows come, so that they meet; then change it."
_DELIVERY_FILE: Final = "delivery.json"
PLACED_NOTES: Final = ("*-partitions.json", "*-hits")
"""Notes of sinks that hold over micro-batches, by the place of the sink in its query."""


class DeliveryNote(msgspec.Struct, frozen=True):
    """The micro-batch whose delivery was begun last, and the last one that all sinks have."""

    begun: int = -1
    over: int = -1

    @classmethod
    def read(cls, directory: Path) -> DeliveryNote:
        """The note of the checkpoint in `directory`; one of nothing where there is none."""
        try:
            return msgspec.json.decode((directory / _DELIVERY_FILE).read_bytes(), type=cls)
        except FileNotFoundError:
            return cls()

    def write(self, directory: Path) -> None:
        """Put the note in the place of the one before; it stands and falls with Spark's log."""
        write_file(directory / _DELIVERY_FILE, msgspec.json.encode(self), durable=False)


def batches_in(directory: Path) -> list[int]:
    """The micro-batches that a log of Spark's has, in no order."""
    return [int(file.name) for file in directory.glob("*") if file.name.isdigit()]


def raw_ends(spark: Path, batch_id: int | None) -> dict[str, dict[str, Any]]:
    """The offsets at the end of a micro-batch, by source, as they stand in Spark's log; of None there are none."""
    found: dict[str, dict[str, Any]] = {}
    offsets = _offsets(spark, batch_id)
    for offset in offsets:
        found.update(offset.get(MOVED, {}))
    # What a source has read since the query changed stands in its own form.
    found.update((offset.get("name", ""), offset) for offset in offsets if MOVED not in offset)
    return found


def _offsets(spark: Path, batch_id: int | None) -> list[dict[str, Any]]:
    if batch_id is None:
        return []
    # A version line, a line of metadata, then one line per source; a dash where a source had nothing.
    lines = (spark / "offsets" / str(batch_id)).read_text().splitlines()[2:]
    return [msgspec.json.decode(line) for line in lines if line != "-"]


def last_over(directory: Path, spark: Path) -> int | None:
    """The last micro-batch that all sinks have; None where there is none.

    Raises JobError CHECKPOINT_MISMATCH if a later one is half done: a changed query would give other rows for it.
    """
    committed = max(batches_in(spark / "commits"), default=-1)
    planned = max(batches_in(spark / "offsets"), default=-1)
    note = DeliveryNote.read(directory)
    over = planned if note.over == planned else committed
    knows = note.begun >= committed and note.begun >= 0
    if over < planned and (note.begun >= planned or not knows):
        words = f"The micro-batch {planned} of the old query in {directory} was begun and is not over."
        raise JobError("CHECKPOINT_MISMATCH", words, remedy=HALF_DONE)
    return over if over >= 0 else None


def find_cut_batch(directory: Path, spark: Path) -> int | None:
    """The planned micro-batch of which some sinks may have rows and others not; None where there is none.

    One that all sinks have, and that Spark has not noted as over, is noted.
    """
    committed = max(batches_in(spark / "commits"), default=-1)
    planned = max(batches_in(spark / "offsets"), default=-1)
    note = DeliveryNote.read(directory)
    if planned <= committed:
        return None
    if note.over == planned:
        _write(spark / "commits" / str(planned), _NO_COMMIT)
        return None
    knows = note.begun >= committed and note.begun >= 0
    return planned if note.begun >= planned or not knows else None


def check_passes(spark: Path, batch_id: int | None) -> None:
    """Raise JobError CHECKPOINT_MISMATCH if passes over one table stand at different places after a micro-batch."""
    places: dict[str, list[Any]] = {}
    for offset in _offsets(spark, batch_id):
        if MOVED not in offset:
            places.setdefault(offset.get("name", ""), []).append((offset["queues"], offset["ended"]))
    for name, found in places.items():
        if any(one != found[0] for one in found):
            words = f"The branches of the old query have read the table {name} to different places."
            raise JobError("CHECKPOINT_MISMATCH", words, remedy=_APART)


def fit_log(spark: Path, sources: int) -> None:
    """Give the log of a changed query that has not run yet a line for each of Spark's sources."""
    for batch_id in batches_in(spark / "offsets"):
        file = spark / "offsets" / str(batch_id)
        version, metadata, *lines = file.read_text().splitlines()
        is_moved = all(line != "-" and MOVED in msgspec.json.decode(line) for line in lines)
        if lines and is_moved and len(lines) != sources:
            _write(file, "\n".join([version, metadata, *lines[:1] * sources]))


def check_places(directory: Path, before: Sequence[str], now: Sequence[str]) -> None:
    """Raise JobError CHECKPOINT_MISMATCH if a sink with notes under its place would stand at another place."""
    sinks = directory / "sinks"
    has_notes = any(next(sinks.glob(pattern), None) is not None for pattern in PLACED_NOTES)
    if has_notes and list(now[: len(before)]) != list(before):
        words = f"Sinks of {directory} keep notes by their place in the query, and the places have changed."
        remedy = "Leave the INSERTs in their order and put new ones behind them, or give the job another name."
        raise JobError("CHECKPOINT_MISMATCH", words, remedy=remedy)


def adopt_plan(
    directory: Path,
    identity: JobIdentity,
    plan: PlanState,
    fit: StateFit,
    *,
    fingerprint: str,
    lines: Sequence[str],
    starts: Mapping[str, dict[str, Any]],
) -> JobIdentity:
    """Let the checkpoint in `directory` go on with `plan`, whose fit was accepted; its identity from here on.

    `starts` say where tables that are new begin. A crash leaves the checkpoint of the old query or of the new one.
    Raises JobError CHECKPOINT_MISMATCH where a micro-batch is half done; then nothing was written.
    """
    assert identity.state is not None
    old = directory / identity.spark
    batch_id = last_over(directory, old)
    check_places(directory, identity.state.sinks, plan.sinks)
    names = [source.name for source in plan.sources]
    changed = replace(
        identity,
        fingerprint=fingerprint,
        plan=list(lines),
        starts={name: identity.starts.get(name) or starts[name] for name in names},
        state=identity.state.follow(plan, fit),
        generation=identity.generation + 1,
    )
    new = directory / changed.spark
    shutil.rmtree(new, ignore_errors=True)
    if batch_id is not None:
        ends = {**changed.starts, **{name: one for name, one in raw_ends(old, batch_id).items() if name in names}}
        begin_log(old, new, batch_id, ends)
    write_identity(directory, changed)
    remove_strays(directory, changed)
    return changed


def begin_log(old: Path, new: Path, batch_id: int, ends: Mapping[str, dict[str, Any]]) -> None:
    """Write a log of Spark's that stands after a micro-batch of another log, for sources of any number and order."""
    version, metadata, *_ = (old / "offsets" / str(batch_id)).read_text().splitlines()
    # How many sources Spark makes of the query is known when it is translated: see `fit_log`.
    line = msgspec.json.encode({MOVED: ends}).decode()
    # Spark also reads the entry before the last one.
    for place in range(max(0, batch_id - 1), batch_id + 1):
        _write(new / "offsets" / str(place), "\n".join([version, metadata, *[line] * len(ends)]))
    commit = old / "commits" / str(batch_id)
    _write(new / "commits" / str(batch_id), commit.read_text() if commit.exists() else _NO_COMMIT)
    name_query(new)


def name_query(spark: Path) -> None:
    """Give the query of a log an id that no other one has: Spark runs no two of one id."""
    _write(spark / "metadata", msgspec.json.encode({"id": str(uuid.uuid4())}).decode())


def _write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    write_file(file, text.encode())


def remove_strays(directory: Path, identity: JobIdentity) -> None:
    """Remove what changes of the query have left: earlier logs of Spark's, and the state of operators that are gone."""
    for log in directory.glob("spark*"):
        if log.name != identity.spark and log.is_dir():
            shutil.rmtree(log, ignore_errors=True)
    if identity.state is not None:
        known = {one.name for one in identity.state.operators}
        for operator in (directory / "operators").glob("*"):
            if operator.name not in known:
                shutil.rmtree(operator, ignore_errors=True)
