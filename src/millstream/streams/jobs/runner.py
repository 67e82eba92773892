"""Runs plans on a Spark session: one Spark query for each source table of a plan."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from millstream.streams.errors import JobError
from millstream.streams.jobs.cause import first_cause
from millstream.streams.jobs.checkpoint import Checkpoint, fingerprint
from millstream.streams.jobs.dead_letter import DeadLetters
from millstream.streams.jobs.handle import JobHandle
from millstream.streams.jobs.outputs import Output, outputs_of
from millstream.streams.jobs.pipeline import BatchPipeline, Pipeline, StreamPipeline
from millstream.streams.jobs.progress import JobProgress, ResultRows
from millstream.streams.jobs.settings import JobSettings, SourceSettings
from millstream.streams.plan.nodes import JobPlan, QueryPlan, scans_of
from millstream.streams.plan.tables import MetadataColumn, PhysicalColumn, Table
from millstream.streams.spark.envelope import envelope, passes
from millstream.streams.spark.source.data_source import SPEC_OPTION, TopicDataSource
from millstream.streams.spark.source.malformed import Spool
from millstream.streams.spark.source.position import Position
from millstream.streams.spark.source.spec import SourceColumn, SourceSpec
from millstream.streams.spark.source.topic_log import TopicLog, open_log
from millstream.streams.spark.translate import is_windowed

__all__ = ["JobHandle", "JobProgress", "JobRunner", "ResultRows"]

TIMEOUT_S = 10.0
"""How long one call to the messaging system may take."""


class JobRunner:
    """Starts jobs on `spark`. Each job keeps its state under `checkpoint_root / name`."""

    def __init__(self, spark: SparkSession, *, nameserver: str, checkpoint_root: Path) -> None:
        self._spark = spark
        self._nameserver = nameserver
        self._root = checkpoint_root
        self._names: set[str] = set()
        spark.dataSource.register(TopicDataSource)

    def start(
        self,
        plan: JobPlan | QueryPlan,
        *,
        name: str,
        bounded: bool = False,
        on_rows: Callable[[ResultRows], None] | None = None,
    ) -> JobHandle:
        """Start the job and return at once; a job of that name goes on where its checkpoint stands.

        `bounded` reads what the topics hold now, closes all windows and ends; so does runtime mode batch. `on_rows` is
        called from other threads, one call at a time per source table. Raises JobError CHECKPOINT_MISMATCH for a
        checkpoint of another plan or of a bounded run with windows that has ended; NameRefused TOPIC_NOT_FOUND.
        """
        settings = JobSettings.of(plan.settings, self._nameserver)
        outputs = outputs_of(plan, settings, on_rows)
        pipelines: list[Pipeline] = []
        try:
            for table, members in _by_source(outputs):
                directory = self._root / name / table.name
                pipelines.append(self._pipeline(directory, table, members, settings, bounded=bounded))
        except BaseException:
            for pipeline in pipelines:
                pipeline.stop()
            raise
        return JobHandle(name, pipelines)

    def _pipeline(
        self, directory: Path, table: Table, outputs: list[Output], settings: JobSettings, *, bounded: bool
    ) -> Pipeline:
        if table.connector != "rocketmq":
            words = f"The table {table.name} cannot be read: its connector is {table.connector!r}."
            raise JobError("JOB_FAILED", words)
        source = SourceSettings.of(table, settings)
        log = open_log(source.nameserver, timeout_s=TIMEOUT_S)
        try:
            print_of = fingerprint([(output.sink.name, output.node) for output in outputs])
            checkpoint = Checkpoint.open(directory, print_of, lambda: _start(log, source))
            end = Position({queue: span.max_offset for queue, span in log.spans(source.topic).items()})
        finally:
            log.close()
        windowed = any(is_windowed(output.node) for output in outputs)
        if checkpoint.has_ended() and not bounded:
            raise JobError(
                "CHECKPOINT_MISMATCH",
                f"The checkpoint {directory} is of a bounded run that has ended: all its windows are closed.",
                remedy="Use another checkpoint directory.",
            )
        spec = SourceSpec(
            nameserver=source.nameserver,
            topic=source.topic,
            columns=_source_columns(table, outputs),
            start=checkpoint.start,
            end=end if settings.batch else None,
            tag=source.tag,
            group=source.group,
            max_rows=source.max_rows,
            parallelism=self._spark.sparkContext.defaultParallelism,
            final_tick=bounded and windowed,
            spool=str(checkpoint.spool),
            keep_malformed=source.dead_letter_topic is not None,
            decoded=str(checkpoint.decoded) if passes([output.node for output in outputs]) > 1 else "",
            timeout_s=TIMEOUT_S,
        )
        letters = DeadLetters(
            Spool(checkpoint.spool), source.topic, source.dead_letter_topic, source.nameserver, TIMEOUT_S
        )
        try:
            frame = envelope([output.node for output in outputs], self._load(spec, batch=settings.batch))
        except PySparkException as error:
            raise JobError("JOB_FAILED", f"The plan cannot run on Spark: {first_cause(error)}") from error
        if settings.batch:
            return BatchPipeline.run(frame, spec, outputs, checkpoint, letters)
        return StreamPipeline.run(
            frame, outputs, checkpoint, letters, bounded=bounded, interval_ms=settings.interval_ms
        )

    def _load(self, spec: SourceSpec, *, batch: bool) -> DataFrame:
        reader = self._spark.read if batch else self._spark.readStream
        return reader.format(TopicDataSource.name()).option(SPEC_OPTION, spec.encode()).load()


def _by_source(outputs: list[Output]) -> list[tuple[Table, list[Output]]]:
    """The outputs of each source table, in the order of the plan."""
    groups: list[tuple[Table, list[Output]]] = []
    for output in outputs:
        table = next(scans_of(output.node)).table
        for known, members in groups:
            if known == table:
                members.append(output)
                break
        else:
            groups.append((table, [output]))
    return groups


def _source_columns(table: Table, outputs: list[Output]) -> tuple[SourceColumn, ...]:
    """The physical and metadata columns that any of the outputs reads, in the table's order."""
    wanted = {name for output in outputs for scan in scans_of(output.node) for name in scan.columns}
    columns = []
    for column in table.columns:
        if column.name not in wanted:
            continue
        if isinstance(column, PhysicalColumn):
            columns.append(SourceColumn(column.name, column.type))
        elif isinstance(column, MetadataColumn):
            columns.append(SourceColumn(column.name, column.type, column.key))
    return tuple(columns)


def _start(log: TopicLog, source: SourceSettings) -> Position:
    """Where a fresh checkpoint begins to read."""
    spans = log.spans(source.topic)
    match source.startup:
        case "latest-offset":
            return Position({queue: span.max_offset for queue, span in spans.items()})
        case "timestamp":
            return Position({queue: log.offset_at(source.topic, queue, source.startup_timestamp_ms) for queue in spans})
        case _:
            return Position({queue: span.min_offset for queue, span in spans.items()})
