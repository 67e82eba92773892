"""What a job under test gives, kept by micro-batch: rows, late rows, malformed messages; and the crash in between."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from millstream.streams.connectors.print.sink import PrintSink
from millstream.streams.jobs.checkpoint import Checkpoint
from millstream.streams.jobs.failed_calls import FailedCalls
from millstream.streams.jobs.late_output import LateOutput
from millstream.streams.jobs.settings import JobSettings
from millstream.streams.plan.changelog import RowKind
from millstream.streams.plan.tables import Table
from millstream.streams.plan.types import Schema
from millstream.streams.spark.functions.user_spool import SpooledCall
from millstream.streams.spark.operators.late_shapes import LateShape
from millstream.streams.spark.operators.operator_reports import late_spool
from millstream.streams.spark.sinks.sink import Attempt, Written
from millstream.streams.spark.source.dead_letters import DeadLetters, Refusals
from millstream.testing.results import FailedRow, Letter

__all__ = ["LogDeadLetters", "LogFailedCalls", "LogLateOutput", "LogSink", "PlannedCrash", "RunLog"]

ChangedRow = tuple[RowKind, tuple[Any, ...]]


class PlannedCrash(Exception):
    """The crash that a test has asked for."""


@dataclass
class RunLog:
    """What came out of all runs of one job. Used by the threads of its pipelines.

    `told` has the rows by output and Spark's number of the micro-batch: a micro-batch that is repeated after a crash
    takes the place of its first attempt, and `differing` names those that said something else then.
    With `crash_after` the job ends when all outputs of that micro-batch are written, before the checkpoint knows it.
    """

    columns: dict[str, tuple[str, ...]] = field(default_factory=dict)
    rows: dict[str, dict[int, list[ChangedRow]]] = field(default_factory=dict)
    differing: list[tuple[str, int]] = field(default_factory=list)
    late: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    dead_letters: list[Letter] = field(default_factory=list)
    failed: list[FailedRow] = field(default_factory=list)
    crash_after: int | None = None
    crashed: bool = False
    lock: threading.Lock = field(default_factory=threading.Lock)

    def keep_rows(self, sink: str, batch_id: int, rows: list[ChangedRow]) -> None:
        """Take the rows of a micro-batch, in place of those of an earlier attempt."""
        with self.lock:
            batches = self.rows.setdefault(sink, {})
            before = batches.get(batch_id)
            if before is not None and Counter(map(repr, before)) != Counter(map(repr, rows)):
                self.differing.append((sink, batch_id))
            batches[batch_id] = rows


class LogSink(PrintSink):
    """Keeps the rows of one output in the log; the `is_last` one of a job crashes it where the test asked for that."""

    def __init__(self, name: str, schema: Schema, log: RunLog, *, is_last: bool) -> None:
        super().__init__(name, schema, self._take)
        self._log: RunLog | None = log
        self._is_last = is_last
        self._rows: list[ChangedRow] = []
        self._notes = Path()
        log.columns[name] = schema.names

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_log": None, "_is_last": False, "_rows": [], "_notes": Path()}

    def begin(self, attempt: Attempt) -> bool:
        """Nothing of an earlier attempt stays."""
        self._rows = []
        self._notes = attempt.notes
        return False

    def commit(self, batch_id: int, written: Sequence[Written]) -> None:
        """Keep the rows. Raises PlannedCrash."""
        super().commit(batch_id, written)
        log = self._log
        assert log is not None
        log.keep_rows(self.name, batch_id, self._rows)
        if self._is_last and log.crash_after is not None and _batches_planned(self._notes.parent) >= log.crash_after:
            log.crash_after, log.crashed = None, True
            raise PlannedCrash

    def _take(self, columns: tuple[str, ...], rows: list[tuple[Any, ...]], kinds: list[int] | None) -> None:
        told = [RowKind.INSERT] * len(rows) if kinds is None else [RowKind(kind or 0) for kind in kinds]
        self._rows += zip(told, rows, strict=True)


@dataclass(frozen=True)
class LogDeadLetters(DeadLetters):
    """Empties the spool of malformed messages into the log."""

    log: RunLog = field(default_factory=RunLog)

    def deliver(self) -> Refusals:
        """The malformed messages."""
        count, reason = 0, ""
        for one in self.spool.take():
            queue = int(one.queue.rpartition("/")[2])
            self.log.dead_letters.append(Letter(self.source_topic, queue, one.queue_offset, one.reason, one.body))
            count, reason = count + 1, reason or one.reason
        return Refusals(count, reason)


@dataclass
class LogFailedCalls(FailedCalls):
    """Keeps the rows of failed calls in the log."""

    log: RunLog = field(default_factory=RunLog)

    def send(self, table: Table, calls: Sequence[SpooledCall]) -> None:
        """Keep them."""
        self.log.failed += [
            FailedRow(table.name, one.call.function, one.call.arguments, one.call.reason, one.call.trace, one.row)
            for one in calls
        ]


def _batches_planned(pipeline: Path) -> int:
    """How many of the test's micro-batches lie before the end of the one that is delivered now."""
    found = Checkpoint.find(pipeline)
    return max((position.cut_ms for position in found.positions().values()), default=0) if found is not None else 0


class LogLateOutput(LateOutput):
    """Empties the spool of late rows into the log."""

    def __init__(
        self, spool: Path, shapes: Mapping[str, Sequence[LateShape]], settings: JobSettings, log: RunLog
    ) -> None:
        super().__init__(spool, shapes, settings)
        self._late = late_spool(spool)
        self._inputs = shapes
        self._log = log

    def deliver(self) -> Counter[str]:
        """How many rows were late, by operator."""
        counts: Counter[str] = Counter()
        for late in self._late.take():
            for number, row in late.rows():
                counts[late.operator] += 1
                shape = self._inputs[late.operator][number]
                for table in shape.tables:
                    kept = dict(zip(shape.schema.names, row, strict=False))
                    self._log.late.setdefault(table.name, []).append(kept)
        return counts
