"""What a source reads, as one JSON text: it travels through Spark's options to every Python process of a query."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import TypeVar

from pyspark.sql import types as spark
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader

from millstream.streams.plan.types import DataType, Field, Schema
from millstream.streams.spark.hidden import KIND_COLUMN, QUEUE_COLUMN, TICK_COLUMN, WANTED_COLUMN
from millstream.streams.spark.rules.judged import Judged
from millstream.streams.spark.source.body_format import BodyFormat, KeyFormat
from millstream.streams.spark.source.position import Position
from millstream.streams.spark.source.topic_log import Access
from millstream.streams.spark.types import spark_schema

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
    """One read of one topic.

    `start` are the positions of a fresh checkpoint, `end` those where a batch ends. `parallelism` is how many
    partitions a large micro-batch is cut into. `max_rows` of a micro-batch, 0 for no limit. `final_tick` closes all
    windows when a bounded run has read everything. `spool` is the directory for malformed bodies, whose content is
    kept only if `keep_malformed`. `decoded` is the directory for rows that several passes share; blank for one pass.
    With `queues` each row tells its queue, with `changes`
    its kind. `body` and `key` say how rows stand in messages; `upserts` that a key's last message counts.
    `wake_after_ms` without rows bring a tick (0: never), once or, with `wake_again`, each time. `judged` says which
    rules' hits the rows are, where they are hits. With `wanted` each row tells which conditions want it.
    `access` is who asks the cluster. `origin` is the job whose packed hits are read, where the topic has such.
    """

    nameserver: str
    topic: str
    columns: tuple[SourceColumn, ...]
    start: Position
    end: Position | None = None
    tag: str = "*"
    max_rows: int = 0
    parallelism: int = 1
    final_tick: bool = False
    spool: str = ""
    keep_malformed: bool = True
    decoded: str = ""
    queues: bool = False
    body: BodyFormat = field(default_factory=BodyFormat)
    key: KeyFormat | None = None
    changes: bool = False
    upserts: bool = False
    wake_after_ms: int = 0
    wake_again: bool = False
    timeout_s: float = field(default=10.0)
    judged: Judged | None = None
    wanted: WantedRows | None = None
    access: Access = field(default_factory=Access)
    origin: str = ""

    def schema(self) -> spark.StructType:
        """Spark's schema of the rows: the columns, the hidden queue and kind where they are wanted, the hidden tick."""
        wanted = self.wanted is not None
        return rows_schema(self.columns, queues=self.queues, changes=self.changes, wanted=wanted)

    def stream_reader(self) -> DataSourceStreamReader:
        """A reader of micro-batches."""
        from millstream.streams.connectors.rocketmq.reader import TopicStreamReader

        return TopicStreamReader(self)

    def batch_reader(self) -> DataSourceReader:
        """A reader of the range between `start` and `end`."""
        from millstream.streams.connectors.rocketmq.reader import TopicBatchReader

        return TopicBatchReader(self)


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
