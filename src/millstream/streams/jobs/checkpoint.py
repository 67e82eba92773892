"""The checkpoint directory of one job: identity, start position, Spark's checkpoint, malformed spool."""

from __future__ import annotations

import hashlib
import shutil
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import Field, replace
from pathlib import Path
from typing import Any, Protocol

import msgspec

from millstream.streams.errors import JobError
from millstream.streams.jobs.adoption import (
    DeliveryNote,
    adopt_plan,
    batches_in,
    check_passes,
    check_places,
    find_cut_batch,
    fit_log,
    last_over,
    raw_ends,
    remove_strays,
)
from millstream.streams.jobs.identity import IDENTITY_FILE, JobIdentity, read_identity, write_identity
from millstream.streams.jobs.plan_text import OPTIONS_THAT_MATTER, difference
from millstream.streams.jobs.state_fit import PlanState, StateFit, StateRecord, fit_state
from millstream.streams.operators.key_groups import DEFAULT_KEY_GROUPS
from millstream.streams.plan.nodes import Node
from millstream.streams.plan.tables import Table
from millstream.streams.plan.types import TOLD_IF_SET
from millstream.streams.spark.source.position import Position
from millstream.streams.state.atomic_file import write_file

__all__ = ["Checkpoint", "CheckpointCopy", "fingerprint", "fit_plan"]

_ID_CHARACTERS = 12

_WAYS_OUT = "Go back to the old query, give the job another name, or remove the checkpoint, which begins anew."

_GROUPS_STAY = "A job keeps its key groups for life: leave pipeline.max-parallelism out, or give the job another name."


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
    """One directory. The identity is written before Spark's first micro-batch, and again where the query changes."""

    def __init__(self, directory: Path, identity: JobIdentity) -> None:
        self.directory = directory
        self._identity = identity
        self._delivery: DeliveryNote | None = None
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
        *,
        state: PlanState | None = None,
        ignores_unclaimed: bool = False,
        told: Callable[[StateFit], None] = lambda fit: None,
    ) -> Checkpoint:
        """The checkpoint in `directory`; a fresh one begins at `starts()`, a position for each source by name.

        `plan` is the same plan in lines, `state` what it keeps; None for a query that is never another one.
        `key_groups` are those that the user asks for; None takes those that the checkpoint has, or for a fresh one the
        default. Where the directory belongs to another plan whose state fits, it goes on with this one, and `told`
        gets the answer; `ignores_unclaimed` lets state go that no operator takes over. Raises JobError
        CHECKPOINT_MISMATCH where it does not fit, or has other key groups; nothing was written then.
        """
        identity = read_identity(directory)
        if identity is None:
            identity = JobIdentity(
                uuid.uuid4().hex[:_ID_CHARACTERS],
                plan_fingerprint,
                _plain(starts()),
                list(plan),
                key_groups or DEFAULT_KEY_GROUPS,
                None if state is None else StateRecord.fresh(state),
            )
            write_identity(directory, identity)
            return cls(directory, identity)
        fit = fit_plan(directory, identity, plan_fingerprint, plan, state, key_groups, ignores=ignores_unclaimed)
        if fit is not None:
            assert state is not None
            identity = adopt_plan(
                directory,
                identity,
                state,
                fit,
                fingerprint=plan_fingerprint,
                lines=plan,
                starts=_plain(starts()) if fit.new_sources else {},
            )
            told(fit)
        elif state is not None and identity.state is None:
            # Operators of an earlier release are named by their order, which is that of an equal plan.
            identity = replace(identity, state=StateRecord.fresh(state))
            write_identity(directory, identity)
        remove_strays(directory, identity)
        return cls(directory, identity)

    @classmethod
    def find(cls, directory: Path) -> Checkpoint | None:
        """The checkpoint in `directory`, whatever its plan; None if there is none."""
        identity = read_identity(directory)
        return None if identity is None else cls(directory, identity)

    @classmethod
    def put_identity(cls, directory: Path, content: bytes, *, renamed: bool) -> None:
        """Write a checkpoint's identity; a `renamed` one has another job id, so no sink knows its micro-batches."""
        if renamed:
            identity = msgspec.json.decode(content, type=JobIdentity)
            content = msgspec.json.encode(replace(identity, id=uuid.uuid4().hex[:_ID_CHARACTERS]))
        write_file(directory / IDENTITY_FILE, content)

    def begin_at(self, starts: dict[str, Position]) -> None:
        """Let a checkpoint whose query has not run begin there."""
        self._identity = replace(self._identity, starts=_plain(starts))
        write_identity(self.directory, self._identity)

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

    @property
    def fingerprint(self) -> str:
        """That of the plan it belongs to, see `fingerprint`."""
        return self._identity.fingerprint

    @property
    def plan(self) -> list[str]:
        """The lines of that plan; none in checkpoints of early releases."""
        return self._identity.plan

    def start(self, source: str) -> Position:
        """Where the first run began to read a source."""
        return Position.from_json(self._identity.starts[source])

    @property
    def state(self) -> StateRecord | None:
        """The operators and tables by the numbers and names that they keep; None where the order says them."""
        return self._identity.state

    @property
    def identity(self) -> JobIdentity:
        """What the identity file holds."""
        return self._identity

    @property
    def spark(self) -> Path:
        """Spark's own checkpoint; a changed query has one of its own."""
        return self.directory / self._identity.spark

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

    def fresh_ends(self, source: str) -> Path:
        """A file that was not there before, by which the passes over a table agree how far a micro-batch reads."""
        for old in self.ends.glob(f"{source}-*"):
            old.unlink(missing_ok=True)
        self.ends.mkdir(exist_ok=True, parents=True)
        return self.ends / f"{source}-{uuid.uuid4().hex[:_ID_CHARACTERS]}"

    @property
    def ends(self) -> Path:
        """Where the passes over a table say how far a micro-batch reads."""
        return self.directory / "ends"

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
        return self._ends(max(batches_in(self.spark / "offsets"), default=None))

    def delivered_ends(self) -> dict[str, Position]:
        """The end of the latest micro-batch that is over, by source; the start where there is none."""
        return self._ends(max(batches_in(self.spark / "commits"), default=None))

    def find_cut_batch(self) -> int | None:
        """The micro-batch of which sinks may have rows and not all have them all; None where there is none.

        One that all sinks have is noted in Spark's log, if Spark had no time for that. The query must not run.
        """
        return find_cut_batch(self.directory, self.spark)

    def rename(self) -> None:
        """Go on as another query for the sinks, so that none knows rows of an earlier attempt."""
        self._identity = replace(self._identity, id=uuid.uuid4().hex[:_ID_CHARACTERS])
        write_identity(self.directory, self._identity)

    def end_of(self, batch_id: int) -> dict[str, Position]:
        """The end of the micro-batch, which is planned, by source."""
        return self._ends(batch_id)

    def fit_log(self, sources: int) -> None:
        """Let Spark's log of a changed query have as many sources as the query has."""
        fit_log(self.spark, sources)

    def begin_delivery(self, batch_id: int) -> None:
        """Note that sinks may have rows of the micro-batch from here on: no other query may take it over."""
        self._delivery = msgspec.structs.replace(self._delivery or DeliveryNote.read(self.directory), begun=batch_id)
        self._delivery.write(self.directory)

    def end_delivery(self, batch_id: int) -> None:
        """Note that all sinks have the micro-batch."""
        self._delivery = DeliveryNote(batch_id, batch_id)
        self._delivery.write(self.directory)

    def _ends(self, batch_id: int | None) -> dict[str, Position]:
        raw = {**self._identity.starts, **raw_ends(self.spark, batch_id)}
        return {name: Position.from_json(one) for name, one in raw.items()}


def _plain(positions: Mapping[str, Position]) -> dict[str, dict[str, Any]]:
    return {name: position.to_json() for name, position in positions.items()}


def fit_plan(
    directory: Path,
    identity: JobIdentity,
    plan_fingerprint: str,
    plan: Sequence[str],
    state: PlanState | None,
    key_groups: int | None,
    *,
    ignores: bool,
    is_running: bool = False,
) -> StateFit | None:
    """What becomes of the state of a checkpoint with a changed plan; None where the plan is as it was.

    A micro-batch that is half done is in the way, unless the job `is_running`: it is over once the job is stopped.
    Raises JobError CHECKPOINT_MISMATCH where the plan may not go on from there. Writes nothing.
    """
    fit = None
    if identity.fingerprint != plan_fingerprint:
        found = difference(identity.plan, plan) if identity.plan else ""
        place = f"The checkpoint {directory}"
        if state is None or identity.state is None:
            raise JobError(
                "CHECKPOINT_MISMATCH", f"{place} belongs to another query. {found}".strip(), remedy=_WAYS_OUT
            )
        fit = fit_state(identity.state, state)
        fit.check(place, ignores_unclaimed=ignores, words=found)
        spark = directory / identity.spark
        if not is_running:
            check_passes(spark, last_over(directory, spark))
        check_places(directory, identity.state.sinks, state.sinks)
    if key_groups not in (None, identity.key_groups):
        words = f"The checkpoint {directory} has {identity.key_groups} key groups, not {key_groups}."
        raise JobError("CHECKPOINT_MISMATCH", words, remedy=_GROUPS_STAY)
    return fit


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
