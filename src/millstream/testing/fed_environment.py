"""The environment of a job under test: input tables read feed files, outputs stay in memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from millstream.streams.jobs.environment import JobEnvironment
from millstream.streams.jobs.failed_calls import FailedCalls
from millstream.streams.jobs.outputs import QUERY_SINK, Output
from millstream.streams.jobs.progress import ResultRows
from millstream.streams.jobs.settings import JobSettings
from millstream.streams.jobs.side_outputs import LateOutput
from millstream.streams.plan.changelog import ChangelogMode, changelog_of
from millstream.streams.plan.nodes import JobPlan, QueryPlan, Scan
from millstream.streams.plan.tables import MetadataColumn, PhysicalColumn, Table
from millstream.streams.plan.types import DataType
from millstream.streams.spark.functions.user_calls import SpooledCall
from millstream.streams.spark.operators.operator_reports import LateShape
from millstream.streams.spark.source.data_source import load_rows
from millstream.streams.spark.source.dead_letters import DeadLetters, malformed_spool
from millstream.streams.spark.source.formats.body_format import formats_of
from millstream.streams.spark.source.position import Position
from millstream.streams.spark.source.reading import Reading, Source
from millstream.streams.spark.source.spec import SourceColumn, SourceSpec
from millstream.streams.state.spool import Spool
from millstream.testing.feed import QUEUE_PREFIX, FedSpec, Feed
from millstream.testing.results import LogDeadLetters, LogFailedCalls, LogLateOutput, LogSink, RunLog

__all__ = ["FedEnvironment"]


class FedEnvironment(JobEnvironment):
    """`files` are the feeds by table; other tables are read from where they are. What comes out goes to `log`.

    With `ends` event time is over behind the last row. `clock` is the file that tells processing time; None: the
    machine does.
    """

    parts_hits = False

    def __init__(self, files: Mapping[str, Path], log: RunLog, *, ends: bool, clock: Path | None = None) -> None:
        self._clock = clock
        self._files = files
        self._log = log
        self._ends = ends

    def source(self, table: Table, settings: JobSettings) -> Source:
        """The feed of the table, or the table itself where it is not fed."""
        file = self._files.get(table.name)
        return super().source(table, settings) if file is None else _FedSource(table, file, self._log, ends=self._ends)

    def outputs(
        self, plan: JobPlan | QueryPlan, settings: JobSettings, on_rows: Callable[[ResultRows], None] | None
    ) -> list[Output]:
        """Every output keeps its rows, whatever its table is."""
        if isinstance(plan, QueryPlan):
            named = [(QUERY_SINK, plan.query)]
        else:
            named = [(sink.table.name, sink.input) for sink in plan.sinks]
        last = len(named) - 1
        return [
            Output(node, LogSink(name, node.schema, self._log, is_last=number == last))
            for number, (name, node) in enumerate(named)
        ]

    def late(self, spool: Path, shapes: Mapping[str, Sequence[LateShape]], settings: JobSettings) -> LateOutput:
        """Late rows are kept, by the names of their columns."""
        return LogLateOutput(spool, shapes, settings, self._log)

    def calls(self, spool: Spool[SpooledCall], tables: Mapping[str, Table], settings: JobSettings) -> FailedCalls:
        """The rows of failed calls are kept."""
        return LogFailedCalls(spool, tables, settings, log=self._log)

    def now_us(self, checkpoint: Path, *, batch: bool) -> Callable[[], int]:
        """What the test says, else what the machine does."""
        if self._clock is None:
            return super().now_us(checkpoint, batch=batch)
        return partial(_read_clock, str(self._clock))


def _read_clock(clock: str) -> int:
    return int(Path(clock).read_text())


class _FedSource:
    """A table that a test feeds."""

    def __init__(self, table: Table, file: Path, log: RunLog, *, ends: bool) -> None:
        self.table = table
        self._file = file
        self._log = log
        self._ends = ends

    def beginning(self) -> Position:
        """Before the first message."""
        return Position(name=self.table.name)

    def end(self) -> Position:
        """Behind the last message."""
        offsets = Feed.read(str(self._file)).offsets()
        return Position({f"{QUEUE_PREFIX}{queue}": end for queue, end in offsets.items()}, name=self.table.name)

    def load(self, spark: SparkSession, columns: Mapping[str, DataType], reading: Reading) -> DataFrame:
        """The rows, decoded in Spark's Python workers as those of a topic are."""
        body, key = formats_of(self.table)
        spec = SourceSpec(
            nameserver="",
            topic=self.table.options.get("topic", self.table.name),
            columns=_columns(self.table, columns),
            start=reading.start,
            end=self.end() if reading.batch else None,
            final_tick=reading.final_tick and self._ends,
            spool=str(reading.spool),
            queues=reading.queues,
            body=body,
            key=key,
            changes=changelog_of(Scan(self.table, ())) is ChangelogMode.RETRACT,
            upserts=self.table.upserts,
            # A source that may be silent wakes its job in time; here that is part of each micro-batch.
            wake_again=reading.wake_again or reading.wake_after_ms > 0,
        )
        return load_rows(spark, FedSpec(spec, str(self._file)), batch=reading.batch, ends=reading.ends)

    def guard(self, reading: Reading, job: str) -> None:
        """None: what is fed is not judged."""

    def letters(self, spool: Path) -> DeadLetters:
        """Malformed messages are kept."""
        return LogDeadLetters(malformed_spool(spool), self.table.name, None, "", 0.0, log=self._log)


def _columns(table: Table, wanted: Mapping[str, DataType]) -> tuple[SourceColumn, ...]:
    found = []
    for column in table.columns:
        if column.name in wanted and isinstance(column, PhysicalColumn | MetadataColumn):
            key = column.key if isinstance(column, MetadataColumn) else None
            found.append(SourceColumn(column.name, column.type, key))
    return tuple(found)
