"""What is outside of a job: what its tables are read from and written to, its side outputs, and its clock."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from millstream.streams.jobs.failed_calls import FailedCalls
from millstream.streams.jobs.late_output import LateOutput
from millstream.streams.jobs.outputs import Output, outputs_of
from millstream.streams.jobs.progress import ResultRows
from millstream.streams.jobs.settings import JobSettings
from millstream.streams.jobs.sources import open_source
from millstream.streams.plan.nodes import JobPlan, QueryPlan
from millstream.streams.plan.tables import Table
from millstream.streams.spark.functions.user_spool import SpooledCall
from millstream.streams.spark.operators.late_shapes import LateShape
from millstream.streams.spark.runtime.micro_batch import LoggedTime, ToldTime
from millstream.streams.spark.source.reading import Source
from millstream.streams.state.spool import Spool

__all__ = ["JobEnvironment"]


class JobEnvironment:
    """What the tables themselves say. A test of a job puts its own in this place."""

    parts_hits = True
    """Whether what keeps state over hits may be a query of its own, with a topic between."""

    def source(self, table: Table, settings: JobSettings) -> Source:
        """What `table` is read from. Raises what `open_source` raises."""
        return open_source(table, settings)

    def outputs(
        self, plan: JobPlan | QueryPlan, settings: JobSettings, on_rows: Callable[[ResultRows], None] | None
    ) -> list[Output]:
        """The outputs of a job with their sinks. Raises what `outputs_of` raises."""
        return outputs_of(plan, settings, on_rows)

    def late(self, spool: Path, shapes: Mapping[str, Sequence[LateShape]], settings: JobSettings) -> LateOutput:
        """What takes the late rows that workers leave in `spool`."""
        return LateOutput(spool, shapes, settings)

    def calls(self, spool: Spool[SpooledCall], tables: Mapping[str, Table], settings: JobSettings) -> FailedCalls:
        """What takes the failed calls of users' functions that workers leave in `spool`."""
        return FailedCalls(spool, tables, settings)

    def now_us(self, checkpoint: Path, *, batch: bool) -> Callable[[], int]:
        """What tells a worker the processing time of its micro-batch in microseconds since 1970.

        `checkpoint` is Spark's; a batch job has no log of offsets there, and one time.
        """
        return ToldTime(time.time_ns() // 1000) if batch else LoggedTime(str(checkpoint / "offsets"))
