"""The interfaces of a connector: a source splits and reads, a sink writes and commits, a lookup finds rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from millstream.streams.plan.expressions import Expression

if TYPE_CHECKING:
    import pyarrow as pa

    from millstream.streams.dimension.versions import Loaded
    from millstream.streams.plan.expressions import Call
    from millstream.streams.spark.lookups.lookup_table import LookupSpec, LookupTable

__all__ = [
    "ChoosesEnds",
    "KeepsStart",
    "LookupConnector",
    "MalformedRows",
    "Offsets",
    "PlansRead",
    "SetsAside",
    "SinkBatch",
    "SinkConnector",
    "SinkTask",
    "SinkWriter",
    "SourceConnector",
    "SourcePartition",
]


Offsets = Mapping[str, int]
"""How far each queue of a source is read: the number of its next row, or of whatever else it is read by."""


@dataclass(frozen=True, slots=True)
class SourcePartition:
    """What one task reads: of one queue the rows from `start` up to but without `end`. `note` is the connector's own.

    It is kept as a pickle; two that are equal give the same rows.
    """

    queue: str
    start: int
    end: int
    note: str = ""


class SourceConnector(Protocol):
    """Reads a table. Errors that pass are raised as `model.errors.Unreachable` or `TimedOut`: the job starts again."""

    def first(self) -> Offsets:
        """Where a fresh job begins; called in the driver."""
        ...

    def latest(self) -> Offsets:
        """Where the data ends now; called in the driver, before each micro-batch. Never goes back."""
        ...

    def partitions(self, start: Offsets, end: Offsets) -> Sequence[SourcePartition]:
        """The tasks that read all between two offsets, each row in one; a replay asks for the same again."""
        ...

    def read(self, partition: SourcePartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task, in a worker: record batches with the table's columns by name; one left out is NULL."""
        ...


@runtime_checkable
class ChoosesEnds(Protocol):
    """A source that knows better than by its rows where a micro-batch ends."""

    def end_of(self, start: Offsets, max_rows: int, target: Offsets | None) -> Offsets:
        """Where the micro-batch that begins at `start` ends: at `start` where there is nothing to read yet.

        `max_rows` 0 sets no limit. `target` is what `latest` said when a bounded run began, None for a run without end.
        """
        ...


@runtime_checkable
class KeepsStart(Protocol):
    """A source whose rows depend on when its job first started."""

    def start_ms(self) -> int:
        """That time; the checkpoint keeps it, and later starts find it as `table.read.start_ms`."""
        ...


@runtime_checkable
class PlansRead(Protocol):
    """A source that the driver looks at once for all workers."""

    def plan(self, conditions: Sequence[Expression]) -> str:
        """What workers find as `table.read.plan`. Rows for which one of `conditions` fails may be left out."""
        ...


@dataclass(frozen=True, slots=True)
class MalformedRows:
    """Rows that do not fit their columns: where they are, and what a user does who sees none of the others."""

    place: str
    remedy: str = ""


@runtime_checkable
class SetsAside(Protocol):
    """A source that leaves rows that do not fit their columns in `table.read.spool`, where they are counted."""

    def malformed_rows(self) -> MalformedRows:
        """How they are told of."""
        ...


@dataclass(frozen=True, slots=True)
class SinkTask:
    """Which part of which micro-batch a writer writes; a replay has the same values and the same rows.

    For a connector `job_id` names the job and which of its outputs this is. `attempt` counts from 0 how often Spark has
    begun this task already: on a cluster it runs the task of a lost executor again, within the same micro-batch.
    """

    job_id: str
    batch_id: int
    partition: int
    attempt: int = 0


@dataclass(frozen=True, slots=True)
class SinkBatch:
    """A micro-batch of one output of one job."""

    job_id: str
    batch_id: int


class SinkWriter(Protocol):
    """Writes the rows of one task; lives in a worker."""

    def write(self, rows: pa.RecordBatch, kinds: pa.Array | None = None) -> None:
        """Take rows of the sink's schema; `kinds` has the number of each one's `RowKind`, None: all are inserts."""
        ...

    def finish(self) -> bytes:
        """Make everything durable that was taken, not yet visible if the sink can do that; the commit's message."""
        ...


class SinkConnector(Protocol):
    """Writes a table."""

    def writer(self, task: SinkTask) -> SinkWriter:
        """A writer for one task; called in a worker."""
        ...

    def commit(self, batch: SinkBatch, messages: Sequence[bytes]) -> None:
        """Make a micro-batch visible by what its writers left; in the driver, and again where a batch is replayed."""
        ...


class LookupConnector(Protocol):
    """Finds the rows of one table, in the driver and in workers; it is opened without a look at the data."""

    @property
    def watches(self) -> bool:
        """Whether `stamp` shows that a version is too old; else its age or the time of the day does."""
        ...

    def table(self) -> LookupTable:
        """What each worker asks, not read yet. Raises JobError JOB_FAILED where only a dimension table can be asked."""
        ...

    def loads_whole(self) -> bool:
        """Whether the table becomes a dimension table where neither an option nor a join says so."""
        ...

    def stamp(self) -> str:
        """What shows that the data is other data; blank where nothing does."""
        ...

    def load(self, fill: Callable[[], Loaded], directory: Path) -> Loaded:
        """What `fill` gives, which reads `batches` into the empty `directory`; again where an attempt failed.

        Raises JobError where the data cannot be read.
        """
        ...

    def batches(self, spec: LookupSpec, ends: dict[str, int], filters: Sequence[Call]) -> Iterator[pa.RecordBatch]:
        """All rows in the columns of `spec`, which may have more than the table that was opened; of a topic those up to
        `ends`, by queue. Rows for which one of `filters` fails may be left out.
        """
        ...
