"""The specification of a source as JSON text, which travels through Spark's options to Python processes."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import TypeVar

from pyspark.sql import types as spark

from millstream.streams.plan.types import DataType, Field, Schema
from millstream.streams.spark.columns.rows import KIND_COLUMN, QUEUE_COLUMN, TICK_COLUMN, WANTED_COLUMN
from millstream.streams.spark.columns.types import spark_schema
from millstream.streams.spark.source.formats.body_format import BodyFormat, KeyFormat
from millstream.streams.spark.source.position import Position
from millstream.streams.spark.source.topic_log import Access

__all__ = ["SourceColumn", "SourceSpec", "WantedRows", "as_kind", "rows_schema"]

Spec = TypeVar("Spec", bound="SourceSpec")


@dataclass(frozen=True, slots=True)
class SourceColumn:
    """One column: a field of the JSON body, or metadata of the message where `metadata` names it."""

    name: str
    type: DataType
    metadata: str | None = None


@dataclass(frozen=True, slots=True)
class WantedRows:
    """Conditions that are judged where rows are made: a rule set in `file`, and the columns that it alone needs.

    Each row tells the numbers of those that hold; with `drops` there are no rows without one.
    """

    file: str
    columns: tuple[SourceColumn, ...]
    drops: bool


@dataclass(frozen=True, slots=True)
class SourceSpec:
    """One read of one topic."""

    nameserver: str
    topic: str
    columns: tuple[SourceColumn, ...]
    start: Position
    """Where a fresh checkpoint begins."""
    end: Position | None = None
    """Where a batch ends; None in micro-batches."""
    tag: str = "*"
    """The tags that are read, as brokers filter by them."""
    max_rows: int = 0
    """Of a micro-batch, about; 0 for no limit."""
    parallelism: int = 1
    """How many partitions a large micro-batch is cut into."""
    final_tick: bool = False
    """Whether a bounded run closes all windows when it has read everything."""
    spool: str = ""
    """The directory for malformed bodies."""
    keep_malformed: bool = True
    """Whether their content is kept, else only their number and reasons."""
    decoded: str = ""
    """The directory for rows that several passes over a micro-batch share; blank for one pass."""
    queues: bool = False
    """Whether each row tells its queue."""
    body: BodyFormat = field(default_factory=BodyFormat)
    """How rows stand in messages' bodies."""
    key: KeyFormat | None = None
    """How columns stand in messages' keys."""
    changes: bool = False
    """Whether each row tells its kind of change."""
    upserts: bool = False
    """Whether the last message of a key counts."""
    wake_after_ms: int = 0
    """After how long without rows a tick comes, 0: never."""
    wake_again: bool = False
    """Whether it comes each time, else once."""
    timeout_s: float = field(default=10.0)
    """How long one call to the messaging system may take."""
    wanted: WantedRows | None = None
    """The conditions of which each row tells whether they hold."""
    access: Access = field(default_factory=Access)
    """Who asks the cluster."""
    read_from: str = "master"
    """Who is asked first for messages: master or replica."""
    cold: str = "direct"
    """How cold messages are read: from the object store itself (direct), or through the broker."""

    def schema(self) -> spark.StructType:
        """Spark's schema of the rows: the columns, the hidden queue and kind where they are wanted, the hidden tick."""
        wanted = self.wanted is not None
        return rows_schema(self.columns, queues=self.queues, changes=self.changes, wanted=wanted)


def as_kind(kind: type[Spec], spec: SourceSpec, **changes: object) -> Spec:
    """The read as one of another kind, with other values of some fields."""
    known = {one.name: getattr(spec, one.name) for one in fields(SourceSpec)}
    return kind(**{**known, **changes})


def rows_schema(
    columns: tuple[SourceColumn, ...], *, queues: bool, changes: bool = False, wanted: bool = False
) -> spark.StructType:
    """Spark's schema of a source's rows: `columns`, the hidden ones that are asked for, the hidden tick."""
    declared = spark_schema(Schema(tuple(Field(column.name, column.type) for column in columns)))
    if queues:
        declared = declared.add(QUEUE_COLUMN, spark.StringType())
    if changes:
        declared = declared.add(KIND_COLUMN, spark.ByteType())
    if wanted:
        declared = declared.add(WANTED_COLUMN, spark.ArrayType(spark.IntegerType()))
    return declared.add(TICK_COLUMN, spark.TimestampType())
