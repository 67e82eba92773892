"""The source tables of one pipeline: where each begins, what is read of it, and what becomes of malformed rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol

from pyspark.sql import DataFrame, SparkSession

from millstream.model.errors import NameRefused
from millstream.streams.errors import JobError
from millstream.streams.jobs.dead_letter import DeadLetters
from millstream.streams.jobs.group_positions import GroupPosition
from millstream.streams.jobs.rule_guard import RuleGuard
from millstream.streams.jobs.settings import JobSettings, SourceSettings
from millstream.streams.jobs.startup import Beginning, first_position
from millstream.streams.plan.changelog import Changelog, changelog_of
from millstream.streams.plan.expressions import Expression
from millstream.streams.plan.nodes import Node, Scan, scans_of
from millstream.streams.plan.tables import MetadataColumn, PhysicalColumn, Table
from millstream.streams.plan.types import DataType
from millstream.streams.spark.source.body_format import CHANGELOG_FORMATS, UPSERTS, formats_of
from millstream.streams.spark.source.data_source import SPEC_OPTION, TopicDataSource
from millstream.streams.spark.source.malformed import malformed_spool
from millstream.streams.spark.source.nexmark.settings import is_finite
from millstream.streams.spark.source.position import Position
from millstream.streams.spark.source.spec import SourceColumn, SourceSpec, WantedRows
from millstream.streams.spark.source.topic_log import open_log
from millstream.streams.sql.connectors import CONNECTORS

__all__ = ["Judging", "Reading", "Source", "TopicSource", "ends_by_itself", "open_source", "tables_of"]

TIMEOUT_S = 10.0
"""How long one call to the messaging system may take."""


@dataclass(frozen=True, slots=True)
class Judging:
    """The conditions that a source judges: their `file`, and the columns that they alone need.

    With `drops` rows for which none holds are left out.
    """

    file: Path
    columns: Mapping[str, DataType]
    drops: bool


@dataclass(frozen=True, slots=True)
class Reading:
    """How a pipeline reads a source from `start` on.

    `batch` reads once, without Spark's streaming; a bounded run with state sends a `final_tick`. `passes` is how often
    the rows of a micro-batch are read. `queues` lets each row tell its queue. `spool` and `decoded` are directories
    that a micro-batch empties, `notes` is one that stays.
    After `wake_after_ms` without rows (0: never) the source sends a tick, with `wake_again` each time. With `judging`
    rows tell which conditions hold. Rows for which one of `conditions` fails may be left out.
    """

    start: Position
    batch: bool
    final_tick: bool
    passes: int
    queues: bool
    spool: Path
    decoded: Path
    notes: Path
    wake_after_ms: int = 0
    wake_again: bool = False
    judging: Judging | None = None
    conditions: tuple[Expression, ...] = ()


class Source(Protocol):
    """A table that is read, opened once for a start of a job."""

    table: Table

    def beginning(self) -> Position:
        """Where a fresh checkpoint begins to read."""
        ...

    def load(self, spark: SparkSession, columns: Mapping[str, DataType], reading: Reading) -> DataFrame:
        """The rows, with the physical and metadata columns of those names and types and the hidden columns.

        Of a ROW the type may have only some fields; a source may give all of them nevertheless.
        """
        ...

    def end(self) -> Position:
        """What there was to read when the source was opened: where a batch ends."""
        ...

    def letters(self, spool: Path) -> DeadLetters | None:
        """What becomes of malformed rows; None where there are none."""
        ...

    def guard(self, reading: Reading, job: str) -> RuleGuard | None:
        """What looks after the rules that judge for the job of that name; None where none do."""
        ...


def open_source(table: Table, settings: JobSettings) -> Source:
    """The source of `table`. Raises JobError JOB_FAILED for a connector that cannot be read."""
    if table.connector == "nexmark":
        from millstream.streams.jobs.nexmark_source import NexmarkSource

        return NexmarkSource(table, settings)
    if table.connector == "filesystem":
        from millstream.streams.jobs.file_source import FileSource

        return FileSource(table, settings)
    if table.connector == "jdbc":
        from millstream.streams.jobs.database_source import DatabaseSource

        return DatabaseSource(table, settings)
    if table.connector == "datagen":
        from millstream.streams.jobs.datagen_source import DatagenSource

        return DatagenSource(table, settings)
    if table.connector == "rules":
        from millstream.streams.jobs.rules_source import RulesSource

        return RulesSource(table, settings)
    if table.connector == "packed-hits":
        from millstream.streams.jobs.packed_source import PackedHitsSource

        return PackedHitsSource(table, settings)
    if table.connector in CONNECTORS and CONNECTORS[table.connector].source:
        from millstream.streams.jobs.connected_source import ConnectedSource

        return ConnectedSource(table, settings)
    if table.connector not in ("rocketmq", UPSERTS):
        words = f"The table {table.name} cannot be read: its connector is {table.connector!r}."
        raise JobError("JOB_FAILED", words)
    return TopicSource(table, SourceSettings.of(table, settings), waits=settings.waits_for_topics)


def ends_by_itself(table: Table) -> bool:
    """Whether a table has an end, so that a job over such tables alone ends as a bounded one does."""
    if table.connector == "nexmark":
        return is_finite(table.options)
    if table.connector == "datagen":
        return any(name == "number-of-rows" or name.endswith(".end") for name in table.options)
    if table.connector in CONNECTORS and CONNECTORS[table.connector].bounded:
        return True
    return table.connector == "filesystem" and "source.monitor-interval" not in table.options


def tables_of(nodes: Iterable[Node]) -> list[Table]:
    """The tables that are read, each once, in the order of the plan."""
    found: dict[str, Table] = {}
    for node in nodes:
        for scan in scans_of(node):
            found.setdefault(scan.table.name, scan.table)
    return list(found.values())


class TopicSource:
    """A topic of a RocketMQ cluster. Raises NameRefused TOPIC_NOT_FOUND, ConnectionFailed.

    With `waits` a topic that is not there is read from its beginning once it is.
    """

    def __init__(self, table: Table, settings: SourceSettings, *, waits: bool = False) -> None:
        self.table = table
        self._settings = settings
        self._beginning = Beginning(Position(name=table.name))
        self._end = Position(name=table.name)
        self._refusal: JobError | None = None
        log = open_log(settings.nameserver, timeout_s=TIMEOUT_S, access=settings.access)
        try:
            spans = log.spans(settings.topic)
            self._end = Position({queue: span.max_offset for queue, span in spans.items()}, name=table.name)
            self._beginning = first_position(log, settings, table.name)
        except NameRefused as error:
            if not waits or error.name != "TOPIC_NOT_FOUND":
                raise
        except JobError as error:
            # A job that goes on from its checkpoint needs no offsets of the group.
            self._refusal = error
        finally:
            log.close()

    def beginning(self) -> Position:
        """What `scan.startup.mode` says. Raises JobError GROUP_WITHOUT_OFFSETS where the table says so."""
        if self._refusal is not None:
            raise self._refusal
        return self._beginning.position

    def notice(self) -> str:
        """What is to be said of the beginning, blank for nothing."""
        return self._beginning.notice

    def end(self) -> Position:
        """The ends of all queues."""
        return self._end

    def load(self, spark: SparkSession, columns: Mapping[str, DataType], reading: Reading) -> DataFrame:
        """The topic's rows, decoded in Spark's Python workers."""
        spec = self.spec(spark, columns, reading)
        reader = spark.read if reading.batch else spark.readStream
        return reader.format(TopicDataSource.name()).option(SPEC_OPTION, spec.encode()).load()

    def spec(self, spark: SparkSession, columns: Mapping[str, DataType], reading: Reading) -> SourceSpec:
        """What is read of the topic, and how."""
        settings = self._settings
        body, key = formats_of(self.table)
        narrowed = body.name in ("json", *CHANGELOG_FORMATS)
        judging = reading.judging
        return SourceSpec(
            nameserver=settings.nameserver,
            topic=settings.topic,
            columns=_source_columns(self.table, columns, narrowed=narrowed),
            start=reading.start,
            end=self._end if reading.batch else None,
            tag=settings.tag,
            max_rows=settings.max_rows,
            parallelism=spark.sparkContext.defaultParallelism,
            final_tick=reading.final_tick,
            spool=str(reading.spool),
            keep_malformed=settings.dead_letter_topic is not None,
            decoded=str(reading.decoded) if reading.passes > 1 else "",
            queues=reading.queues,
            body=body,
            key=key,
            changes=changelog_of(Scan(self.table, ())) is Changelog.RETRACT,
            upserts=self.table.connector == UPSERTS,
            wake_after_ms=reading.wake_after_ms,
            wake_again=reading.wake_again,
            timeout_s=TIMEOUT_S,
            access=settings.access,
            wanted=None
            if judging is None
            else WantedRows(
                str(judging.file),
                _source_columns(self.table, judging.columns, narrowed=narrowed),
                judging.drops,
            ),
        )

    def guard(self, reading: Reading, job: str) -> RuleGuard | None:
        """None: a topic is not judged."""
        return None

    def group(self) -> GroupPosition | None:
        """The offsets of the table's consumer group, if it has one."""
        settings = self._settings
        if not settings.group:
            return None
        return GroupPosition(
            settings, partial(open_log, settings.nameserver, timeout_s=TIMEOUT_S, access=settings.access)
        )

    def letters(self, spool: Path) -> DeadLetters:
        """Malformed messages go to the dead-letter topic."""
        settings = self._settings
        topic, nameserver = settings.dead_letter_topic, settings.nameserver
        return DeadLetters(
            malformed_spool(spool),
            settings.topic,
            topic,
            nameserver,
            TIMEOUT_S,
            settings.access,
            self.table.name,
            "Name their format; plain text is one STRING column with 'format' = 'raw'. "
            f"See one: millstream consume {settings.topic} --count 1.",
        )


def _source_columns(table: Table, wanted: Mapping[str, DataType], *, narrowed: bool) -> tuple[SourceColumn, ...]:
    """The physical and metadata columns of those names, in the table's order; `narrowed` ones have the wanted types.

    Only a format that names fields can leave some out.
    """
    columns = []
    for column in table.columns:
        if column.name not in wanted:
            continue
        if isinstance(column, PhysicalColumn):
            columns.append(SourceColumn(column.name, wanted[column.name] if narrowed else column.type))
        elif isinstance(column, MetadataColumn):
            columns.append(SourceColumn(column.name, column.type, column.key))
    return tuple(columns)
