"""Commits complete partitions of file tables after each micro-batch, and notifies readers.

What has new rows and is not whole yet is kept beside Spark's checkpoint. A partition that gets rows later is told
again.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from millstream.streams.connectors.filesystem.sink import FileSink
from millstream.streams.errors import JobError
from millstream.streams.jobs.outputs import Output
from millstream.streams.operators.operator import START_OF_TIME_US
from millstream.streams.operators.state import OperatorState
from millstream.streams.optimizer.prune_columns import prune_columns
from millstream.streams.plan.expressions import Column, columns_of
from millstream.streams.plan.nodes import Node, Project, Scan, scans_of
from millstream.streams.plan.tables import Table
from millstream.streams.spark.operators.clocks import Clocks, Seen
from millstream.streams.spark.sinks.sink import EventTimesSink
from millstream.streams.state.atomic_file import write_file

__all__ = ["PartitionCommits", "check_event_time", "timed_scans"]

_log = logging.getLogger(__name__)


def timed_scans(outputs: Sequence[Output]) -> list[Scan]:
    """The tables whose event time says when partitions of the outputs are whole, each read for that alone."""
    tables: dict[str, Table] = {}
    for output in outputs:
        if _follows_event_time(output):
            for table in _timed_tables(output.node):
                tables.setdefault(table.name, table)
    return [_scan(table) for table in tables.values()]


def check_event_time(outputs: Sequence[Output]) -> None:
    """Raise JobError SINK_FAILED where partitions wait for a watermark that never comes."""
    for output in outputs:
        if _follows_event_time(output) and not _timed_tables(output.node):
            words = f"Partitions of {output.sink.name} wait for a watermark, but no table that is read has one."
            remedy = "Declare a WATERMARK, or set 'sink.partition-commit.trigger' = 'process-time'."
            raise JobError("SINK_FAILED", words, remedy=remedy)


def _follows_event_time(output: Output) -> bool:
    sink = output.sink
    return isinstance(sink, FileSink) and sink.policy is not None and sink.policy.clock is not None


def _timed_tables(node: Node) -> list[Table]:
    return [scan.table for scan in scans_of(node) if scan.table.watermark is not None]


def _scan(table: Table) -> Scan:
    watermark = table.watermark
    assert watermark is not None
    names = {watermark.column, *(() if watermark.expression is None else columns_of(watermark.expression))}
    wanted = tuple((field.name, Column(field.name, field.type)) for field in table.schema.fields if field.name in names)
    (scan,) = scans_of(prune_columns(Project(Scan(table, table.schema.names), wanted)))
    return scan


class _Note(msgspec.Struct, frozen=True):
    """How a table stood after a micro-batch: partitions by when they first had new rows, and event time."""

    batch_id: int
    pending: dict[str, int]
    times_before: bytes = b""
    times: bytes = b""


@dataclass
class _EventTime:
    """Event time of what one output reads."""

    inputs: tuple[int, ...]
    idle_us: Mapping[int, int]
    before: bytes = b""
    reached_us: int = START_OF_TIME_US

    def __post_init__(self) -> None:
        self.restore(b"")

    def restore(self, snapshot: bytes) -> None:
        self.state = OperatorState()
        self.clocks = Clocks(self.inputs, self.idle_us, self.state)
        self.state.apply(snapshot)

    def advance(self, seen: Mapping[int, Seen], now_us: int) -> None:
        """Take what a micro-batch has seen."""
        self.before = self.state.snapshot()
        self.reached_us = self.clocks.advance(seen, now_us)

    def pass_by(self, now_us: int) -> None:
        """Queues that are silent for long hold nothing up."""
        self.reached_us = self.clocks.advance({}, now_us)

    @property
    def watermark_ms(self) -> int | None:
        return None if self.reached_us <= START_OF_TIME_US else self.reached_us // 1000


class _Table:
    """The partitions of one output."""

    def __init__(self, sink: FileSink, file: Path, event_time: _EventTime) -> None:
        self._sink = sink
        self._file = file
        self._event_time = event_time
        self._note = _Note(-1, {})
        if file.exists():
            self._note = msgspec.json.decode(file.read_bytes(), type=_Note)
            event_time.restore(self._note.times)
            event_time.before = self._note.times_before
        self._pending = dict(self._note.pending)

    def after(self, batch_id: int, seen: Mapping[int, Seen], now_ms: int) -> None:
        """A micro-batch was written."""
        for directory in self._sink.touched:
            self._pending.setdefault(directory, now_ms)
        if batch_id == self._note.batch_id:
            self._event_time.restore(self._note.times_before)
        self._event_time.advance(seen, now_ms * 1000)
        self._tell(now_ms)
        self._keep(batch_id)

    def between(self, now_ms: int) -> None:
        """Time has passed without a micro-batch."""
        before = len(self._pending)
        if before:
            self._event_time.pass_by(now_ms * 1000)
            self._tell(now_ms)
        if len(self._pending) < before:
            self._keep(self._note.batch_id)

    def finish(self) -> None:
        """No rows come any more: all partitions are whole."""
        for directory in list(self._pending):
            self._mark(directory)
        self._keep(self._note.batch_id)

    def _tell(self, now_ms: int) -> None:
        policy = self._sink.policy
        assert policy is not None
        watermark_ms = self._event_time.watermark_ms
        for directory, since_ms in list(self._pending.items()):
            if policy.is_whole(directory, since_ms, now_ms, watermark_ms):
                self._mark(directory)

    def _mark(self, directory: str) -> None:
        policy = self._sink.policy
        assert policy is not None
        place = self._sink.layout.directory / directory
        place.mkdir(parents=True, exist_ok=True)
        (place / policy.mark).write_bytes(b"")
        del self._pending[directory]
        _log.info("The partition %s of %s is whole.", directory, self._sink.name)

    def _keep(self, batch_id: int) -> None:
        event_time = self._event_time
        self._note = _Note(batch_id, dict(self._pending), event_time.before, event_time.state.snapshot())
        # No more durable than Spark's own note that the micro-batch is done.
        write_file(self._file, msgspec.json.encode(self._note), durable=False)


class PartitionCommits:
    """Those of one pipeline, which also reads the event times of the `timed` tables.

    `numbers` are the sources by the names of their tables, `idle_ms` by number after how long a silent queue of one
    holds nothing up; `notes` is where state is kept.
    """

    def __init__(
        self,
        outputs: Sequence[Output],
        timed: Sequence[Scan],
        notes: Path,
        numbers: Mapping[str, int],
        *,
        idle_ms: Mapping[int, int],
        clock: Callable[[], float] = time.time,
    ) -> None:
        idle_us = {number: of_one * 1000 for number, of_one in idle_ms.items()}
        self.times = [EventTimesSink(scan.table.name) for scan in timed]
        self._clock = clock
        self._tables = []
        for number, output in enumerate(outputs):
            sink = output.sink
            if isinstance(sink, FileSink) and sink.policy is not None:
                inputs = tuple(sorted({numbers[table.name] for table in _timed_tables(output.node)}))
                event_time = _EventTime(inputs, idle_us)
                self._tables.append(_Table(sink, notes / f"{number}-partitions.json", event_time))

    @property
    def are_awaited(self) -> bool:
        """Whether there is a table whose partitions are told at all."""
        return bool(self._tables)

    def after(self, batch_id: int) -> None:
        """A micro-batch was written to all sinks. Raises JobError SINK_FAILED."""
        seen = {number: one for sink in self.times for number, one in sink.seen.items()}
        self._each(lambda table: table.after(batch_id, seen, self._now_ms()))

    def between(self) -> None:
        """Look again without a micro-batch. Raises JobError SINK_FAILED."""
        self._each(lambda table: table.between(self._now_ms()))

    def finish(self) -> None:
        """The last micro-batch was written. Raises JobError SINK_FAILED."""
        self._each(lambda table: table.finish())

    def _each(self, do: Callable[[_Table], None]) -> None:
        try:
            for table in self._tables:
                do(table)
        except OSError as error:
            raise JobError("SINK_FAILED", f"Cannot say that a partition is whole: {error}.") from None

    def _now_ms(self) -> int:
        return int(self._clock() * 1000)
