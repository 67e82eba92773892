"""The directory of one job: its identity, where it started reading, Spark's checkpoint and the malformed spool."""

from __future__ import annotations

import hashlib
import shutil
import uuid
from collections.abc import Callable, Sequence
from dataclasses import Field, dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

import msgspec

from millstream.streams.errors import JobError
from millstream.streams.jobs.plan_text import OPTIONS_THAT_MATTER, difference
from millstream.streams.operators.key_groups import DEFAULT_KEY_GROUPS
from millstream.streams.plan.nodes import Node
from millstream.streams.plan.tables import Table
from millstream.streams.plan.types import TOLD_IF_SET
from millstream.streams.spark.operators.bucket_files import BUCKETS
from millstream.streams.spark.source.position import Position
from millstream.streams.state.atomic_file import write_file

__all__ = ["Checkpoint", "CheckpointCopy", "fingerprint"]

_IDENTITY_FILE = "job.json"
_ID_CHARACTERS = 12

_WAYS_OUT = "Go back to the old query, give the job another name, or remove the checkpoint, which begins anew."

_GROUPS_STAY = "A job keeps its key groups for life: leave pipeline.max-parallelism out, or give the job another name."


@dataclass(frozen=True, slots=True)
class _Identity:
    id: str
    fingerprint: str
    starts: dict[str, Position]
    plan: list[str] = field(default_factory=list)
    key_groups: int = BUCKETS


class CheckpointCopy(Protocol):
    """A copy of the directory in another place."""

    def before_writing(self) -> None:
        """Copy what a repeat of the micro-batch needs whose sinks have begun and whose tasks have not."""
        ...

    def after_writing(self) -> None:
        """A micro-batch was delivered."""
        ...

    def end(self) -> None:
        """The query has ended."""
        ...

    def close(self) -> None:
        """The query has not begun."""
        ...

    def trouble(self) -> str | None:
        """What is to be told of a copy that is far behind; None if it is not."""
        ...


class Checkpoint:
    """One directory. The identity is written once, before Spark's first micro-batch."""

    def __init__(self, directory: Path, identity: _Identity) -> None:
        self.directory = directory
        self._identity = identity
        self.mirror: CheckpointCopy | None = None
        """The copy of this directory in another place, if the job has one."""

    @classmethod
    def open(
        cls,
        directory: Path,
        plan_fingerprint: str,
        starts: Callable[[], dict[str, Position]],
        plan: Sequence[str] = (),
        key_groups: int | None = None,
    ) -> Checkpoint:
        """The checkpoint in `directory`; a fresh one begins at `starts()`, a position for each source by name.

        `plan` is the same plan in lines. `key_groups` are those that the user asks for; None takes those that the
        checkpoint has, or for a fresh one the default. Raises JobError CHECKPOINT_MISMATCH if the directory belongs to
        another plan, with the first line that differs, or has other key groups.
        """
        file = directory / _IDENTITY_FILE
        if file.exists():
            identity = msgspec.json.decode(file.read_bytes(), type=_Identity)
            if identity.fingerprint != plan_fingerprint:
                words = f"The checkpoint {directory} belongs to another query."
                found = difference(identity.plan, plan) if identity.plan else ""
                raise JobError("CHECKPOINT_MISMATCH", f"{words} {found}".strip(), remedy=_WAYS_OUT)
            if key_groups not in (None, identity.key_groups):
                words = f"The checkpoint {directory} has {identity.key_groups} key groups, not {key_groups}."
                raise JobError("CHECKPOINT_MISMATCH", words, remedy=_GROUPS_STAY)
            return cls(directory, identity)
        identity = _Identity(
            uuid.uuid4().hex[:_ID_CHARACTERS], plan_fingerprint, starts(), list(plan), key_groups or DEFAULT_KEY_GROUPS
        )
        write_file(directory / _IDENTITY_FILE, msgspec.json.encode(identity))
        return cls(directory, identity)

    @classmethod
    def find(cls, directory: Path) -> Checkpoint | None:
        """The checkpoint in `directory`, whatever its plan; None if there is none."""
        file = directory / _IDENTITY_FILE
        return cls(directory, msgspec.json.decode(file.read_bytes(), type=_Identity)) if file.exists() else None

    @classmethod
    def put_identity(cls, directory: Path, content: bytes, *, renamed: bool) -> None:
        """Write a checkpoint's identity; a `renamed` one has another job id, so no sink knows its micro-batches."""
        if renamed:
            identity = msgspec.json.decode(content, type=_Identity)
            content = msgspec.json.encode(replace(identity, id=uuid.uuid4().hex[:_ID_CHARACTERS]))
        write_file(directory / _IDENTITY_FILE, content)

    def begin_at(self, starts: dict[str, Position]) -> None:
        """Let a checkpoint whose query has not run begin there."""
        self._identity = replace(self._identity, starts=starts)
        write_file(self.directory / _IDENTITY_FILE, msgspec.json.encode(self._identity))

    @property
    def has_run(self) -> bool:
        """Whether a query of its own has begun."""
        return (self.spark / "offsets").exists()

    @property
    def key_groups(self) -> int:
        """The key groups of each operator, which stay the same over restarts."""
        return self._identity.key_groups

    @property
    def job_id(self) -> str:
        """Twelve hexadecimal digits that stay the same over restarts."""
        return self._identity.id

    def start(self, source: str) -> Position:
        """Where the first run began to read a source."""
        return self._identity.starts[source]

    @property
    def spark(self) -> Path:
        """Spark's own checkpoint."""
        return self.directory / "spark"

    @property
    def spool(self) -> Path:
        """Where workers leave malformed messages."""
        return self.directory / "malformed"

    @property
    def decoded(self) -> Path:
        """Where the passes of a micro-batch share decoded rows."""
        return self.directory / "decoded"

    def clear_scratch(self) -> None:
        """Remove what an attempt that ended left to its own micro-batch: it is read again."""
        for directory in (self.spool, self.decoded, self.late, self.calls):
            shutil.rmtree(directory, ignore_errors=True)

    @property
    def operators(self) -> Path:
        """Where operators of ours keep their state."""
        return self.directory / "operators"

    @property
    def sources(self) -> Path:
        """Where sources keep what their positions are counted in."""
        return self.directory / "sources"

    @property
    def models(self) -> Path:
        """Where the versions of models are that the job uses."""
        return self.directory / "models"

    @property
    def rules(self) -> Path:
        """Where the conditions lie that sources judge."""
        return self.directory / "rules"

    @property
    def lookups(self) -> Path:
        """Where it is noted which versions of dimension tables micro-batches use."""
        return self.directory / "lookups"

    @property
    def sinks(self) -> Path:
        """Where sinks note how far a micro-batch had come."""
        return self.directory / "sinks"

    @property
    def calls(self) -> Path:
        """Where workers leave failed calls of users' functions."""
        return self.directory / "calls"

    @property
    def late(self) -> Path:
        """Where workers leave rows that came behind the watermark."""
        return self.directory / "late"

    @property
    def one_row(self) -> Path:
        """A file of one row, from which a stream reads rows that stand in the script."""
        return self.directory / "one-row"

    def has_ended(self) -> bool:
        """Whether a bounded run on this checkpoint has sent its final tick: event time is over."""
        return any(position.ended for position in self.positions().values())

    def positions(self) -> dict[str, Position]:
        """The end of the latest micro-batch that was planned, by source; the start where there is none."""
        return self._ends(max(_batches(self.spark / "offsets"), default=None))

    def delivered_ends(self) -> dict[str, Position]:
        """The end of the latest micro-batch that is over, by source; the start where there is none."""
        return self._ends(max(_batches(self.spark / "commits"), default=None))

    def end_of(self, batch_id: int) -> dict[str, Position]:
        """The end of the micro-batch, which is planned, by source."""
        return self._ends(batch_id)

    def _ends(self, batch_id: int | None) -> dict[str, Position]:
        found = dict(self._identity.starts)
        if batch_id is None:
            return found
        lines = (self.spark / "offsets" / str(batch_id)).read_text().splitlines()
        # A version line, a line of metadata, then one line per source; a dash where a source had nothing.
        for line in lines[2:]:
            if line != "-":
                position = Position.from_json(msgspec.json.decode(line))
                found[position.name] = position
        return found


def _batches(directory: Path) -> list[int]:
    return [int(file.name) for file in directory.glob("*") if file.name.isdigit()]


def fingerprint(outputs: list[tuple[str, Node]]) -> str:
    """A digest of what the outputs compute; equal plans have equal digests in every process."""
    plain = msgspec.to_builtins([(name, _tag(node)) for name, node in outputs], order="sorted")
    return hashlib.sha256(msgspec.json.encode(plain, order="sorted")).hexdigest()


def _counts(value: Any, of: Field[Any]) -> bool:
    return of.compare and (of.metadata != TOLD_IF_SET or getattr(value, of.name) != of.default)


def _tag(value: Any) -> Any:
    """Dataclasses as lists that begin with the class's name, so that two kinds with equal fields stay apart."""
    if isinstance(value, Table):
        options = {name: value.options[name] for name in OPTIONS_THAT_MATTER if name in value.options}
        return ["Table", value.name, _tag(value.columns), options, _tag(value.watermark)]
    if hasattr(value, "__dataclass_fields__"):
        return [
            type(value).__name__,
            *(_tag(getattr(value, name)) for name, of in value.__dataclass_fields__.items() if _counts(value, of)),
        ]
    if isinstance(value, tuple):
        return [_tag(item) for item in value]
    return value
