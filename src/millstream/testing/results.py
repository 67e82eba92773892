"""The results of a job under test: rows, changes, the materialized table, side outputs, by micro-batch."""

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
from millstream.streams.jobs.settings import JobSettings
from millstream.streams.jobs.side_outputs import LateOutput
from millstream.streams.plan.changelog import RowKind
from millstream.streams.plan.tables import Table
from millstream.streams.plan.types import Schema
from millstream.streams.spark.functions.user_calls import SpooledCall
from millstream.streams.spark.operators.operator_reports import LateShape, late_spool
from millstream.streams.spark.sinks.sink import Attempt, Written
from millstream.streams.spark.source.dead_letters import DeadLetters, Refusals

__all__ = [
    "FailedRow",
    "Letter",
    "LogDeadLetters",
    "LogFailedCalls",
    "LogLateOutput",
    "LogSink",
    "PlannedCrash",
    "Results",
    "RunLog",
]


_ADDS = (RowKind.INSERT, RowKind.UPDATE_AFTER)


@dataclass(frozen=True, slots=True)
class Letter:
    """A message that is no row of its table: where it was fed, and why."""

    table: str
    queue: int
    offset: int
    reason: str
    body: bytes


@dataclass(frozen=True, slots=True)
class FailedRow:
    """A row that is a dead letter, as JSON, since a call of a user's function failed for it, and what is told of it."""

    table: str
    function: str
    arguments: str
    reason: str
    trace: str
    body: bytes


@dataclass(frozen=True)
class Results:
    """The outputs by the names of their tables, "result" for a query. An output may be left out where there is one.

    `batches` has each micro-batch's changes by output; `late` the late rows by table; `late_count` is how many
    they are; `malformed` the messages that are no rows; `failed` the rows that users' functions failed for.
    """

    columns: Mapping[str, tuple[str, ...]]
    batches: Mapping[str, Sequence[Sequence[tuple[RowKind, tuple[Any, ...]]]]]
    late: Mapping[str, Sequence[Mapping[str, Any]]] = field(default_factory=dict)
    late_count: int = 0
    malformed: Sequence[Letter] = ()
    failed: Sequence[FailedRow] = ()

    def rows(self, output: str | None = None) -> list[dict[str, Any]]:
        """The rows that are there at the end, as dicts by column; equal rows as often as they are there."""
        name = self._find_output(output)
        counts, rows = self._count_rows(name)
        return [dict(zip(self.columns[name], rows[key], strict=True)) for key in rows for _ in range(counts[key])]

    def changelog(self, output: str | None = None) -> list[tuple[str, tuple[Any, ...]]]:
        """All changes in the order in which they were said: `+I`, `-U`, `+U` or `-D`, and the row."""
        return [(kind.short, row) for batch in self.batches[self._find_output(output)] for kind, row in batch]

    def table(self, output: str | None = None) -> Counter[tuple[Any, ...]]:
        """How often each row is there when all changes are added up; lists and dicts in rows are tuples.

        Raises AssertionError for a row that goes and is not there.
        """
        return +self._count_rows(self._find_output(output))[0]

    def _count_rows(self, name: str) -> tuple[Counter[tuple[Any, ...]], dict[tuple[Any, ...], tuple[Any, ...]]]:
        """How often each row is there by its key, and the rows."""
        counts: Counter[tuple[Any, ...]] = Counter()
        rows: dict[tuple[Any, ...], tuple[Any, ...]] = {}
        for kind, row in (told for batch in self.batches[name] for told in batch):
            key = _hashable(row)
            rows.setdefault(key, row)
            counts[key] += 1 if kind in _ADDS else -1
            if counts[key] < 0:
                raise AssertionError(f"The output {name} takes back {row}, which is not there.")
        return counts, rows

    def _find_output(self, output: str | None) -> str:
        if output is not None and output in self.batches:
            return output
        known = ", ".join(self.batches)
        if output is not None:
            raise KeyError(f"There is no output {output!r}; there are {known}.")
        if len(self.batches) != 1:
            raise KeyError(f"Name the output: there are {known}.")
        return next(iter(self.batches))


def _hashable(value: Any) -> Any:
    """The value, with lists and dicts as tuples."""
    match value:
        case tuple() | list():
            return tuple(map(_hashable, value))
        case dict():
            return tuple(sorted(((_hashable(key), _hashable(one)) for key, one in value.items()), key=repr))
        case float() if value != value:
            return "NaN"
        case _:
            return value


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
        row_kinds = [RowKind.INSERT] * len(rows) if kinds is None else [RowKind(kind or 0) for kind in kinds]
        self._rows += zip(row_kinds, rows, strict=True)


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
