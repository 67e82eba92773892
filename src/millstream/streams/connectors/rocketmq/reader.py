"""Readers of a topic: micro-batches by offset, and one batch of a fixed range, with equal rows."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from millstream.streams.errors import JobError
from millstream.streams.rules.conditions import OF_TWO_FIELDS, predicates_of
from millstream.streams.rules.event_rows import ArrowEvents
from millstream.streams.rules.reference import FIELD_SEPARATOR
from millstream.streams.rules.rule import RuleSet
from millstream.streams.rules.stage.stage import RuleStage
from millstream.streams.spark.columns.types import arrow_schema
from millstream.streams.spark.source.cold_log import ColdLog, detour_spool
from millstream.streams.spark.source.cold_pieces import ColdSpan, pieces_of
from millstream.streams.spark.source.cold_times import ColdTimes
from millstream.streams.spark.source.dead_letters import MalformedWriter
from millstream.streams.spark.source.formats.decoder import Malformed
from millstream.streams.spark.source.messages import Messages, RecordMessages, TableMessages
from millstream.streams.spark.source.position import Position, QueueSpan, Slice, divide, next_cut
from millstream.streams.spark.source.reading import Alarm
from millstream.streams.spark.source.rows import (
    END_OF_TIME_MS,
    WAKE_TIME_MS,
    MessageRows,
    RowBuilder,
    tick_between,
    tick_row,
)
from millstream.streams.spark.source.spec import SourceSpec, WantedRows
from millstream.streams.spark.source.topic_log import TopicLog, open_log
from millstream.streams.spark.source.topic_partition import TopicPartition

__all__ = [
    "DecodedSlices",
    "TopicBatchReader",
    "TopicSpec",
    "TopicStreamReader",
    "WantedRowBuilder",
    "read_partition",
    "row_builder",
]


_SUFFIX = ".arrow"


class DecodedSlices:
    """A directory of decoded slices, for the schema of one source."""

    def __init__(self, directory: str, schema: pa.Schema) -> None:
        self._directory = Path(directory)
        self._schema = schema

    def find(self, part: Slice) -> Iterator[pa.RecordBatch] | None:
        """The batches of a slice that another pass has read; None if none has."""
        try:
            source = pa.memory_map(str(self._path(part)))
        except OSError:
            return None
        reader = pa.ipc.open_file(source)
        return (reader.get_batch(number) for number in range(reader.num_record_batches))

    def keep(self, part: Slice, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """`batches` as they come; all of them are kept once the last was taken."""
        path = self._path(part)
        unfinished = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
            writer: pa.ipc.RecordBatchFileWriter | None = pa.ipc.new_file(str(unfinished), self._schema)
        except OSError:
            writer = None
        for batch in batches:
            writer = _write_batch(writer, batch)
            yield batch
        if writer is not None:
            try:
                writer.close()
                unfinished.replace(path)
            except OSError:
                unfinished.unlink(missing_ok=True)

    def _path(self, part: Slice) -> Path:
        return self._directory / f"{part.queue.replace('/', '_')}-{part.start}-{part.end}{_SUFFIX}"


def _write_batch(
    writer: pa.ipc.RecordBatchFileWriter | None, batch: pa.RecordBatch
) -> pa.ipc.RecordBatchFileWriter | None:
    if writer is None:
        return None
    try:
        writer.write_batch(batch)
    except OSError:
        return None
    return writer


STAGES_KEPT: Final = 4
"""Stages that a worker process keeps for the sources that it reads in turn."""

ALLOWANCE_MS: Final = 600_000
"""How long a function may take over a batch; only functions of ours are asked, and a job that lost them would fail."""


def row_builder(spec: SourceSpec) -> MessageRows:
    """What makes the rows that the spec asks for."""
    return RowBuilder(spec) if spec.wanted is None else WantedRowBuilder(spec, spec.wanted)


class WantedRowBuilder:
    """Makes record batches of exactly `schema`, in which rows tell what wants them."""

    def __init__(self, spec: SourceSpec, wanted: WantedRows) -> None:
        self.schema: pa.Schema = arrow_schema(spec.schema())
        self._drops = wanted.drops
        self._stage = _stage(wanted.file)
        self._fields = _fields(self._stage.rule_set)
        # All that is judged, which may be more than what is given on.
        self._inner = RowBuilder(replace(spec, columns=(*spec.columns, *wanted.columns), wanted=None))

    def rows(self, messages: Messages, queue: str = "") -> tuple[pa.RecordBatch, tuple[Malformed, ...]]:
        """The rows of `messages` of one queue in their order, and those that are none (by their place)."""
        batch, malformed = self._inner.rows(messages, queue)
        numbers = self._numbers(batch)
        names = self.schema.names
        arrays = [numbers if name == names[-2] else batch.column(batch.schema.get_field_index(name)) for name in names]
        matched = pa.RecordBatch.from_arrays(arrays, schema=self.schema)
        if self._drops:
            matched = matched.filter(pc.greater(pc.list_value_length(numbers), 0))
        return matched, malformed

    def tick(self, time_ms: int) -> pa.RecordBatch:
        """One row that is no data: it moves event time to `time_ms`."""
        return tick_row(self.schema, time_ms)

    def _numbers(self, batch: pa.RecordBatch) -> pa.ListArray:
        """For each row the numbers of the conditions that hold."""
        hits = self._stage.evaluate(ArrowEvents(_judged_columns(batch, self._fields), {}))
        quarantined = self._stage.quarantined
        if quarantined:
            raise JobError("JOB_FAILED", f"A condition could not be judged: {quarantined[0].reason}.")
        ends = np.searchsorted(hits.rows, np.arange(batch.num_rows + 1, dtype=hits.rows.dtype))
        wanted = self.schema.field(len(self.schema) - 2).type
        return pa.ListArray.from_arrays(pa.array(ends.astype(np.int32)), pa.array(hits.rules, pa.int32()), type=wanted)


@lru_cache(maxsize=STAGES_KEPT)
def _stage(file: str) -> RuleStage:
    return RuleStage(RuleSet.decode(Path(file).read_bytes()), allowance_ms=ALLOWANCE_MS)


def _fields(rule_set: RuleSet) -> tuple[str, ...]:
    """The fields that the rules name."""
    atoms = [predicate for rule in rule_set.rules for predicate in predicates_of(rule.condition)]
    others = [str(predicate.operands[0]) for predicate in atoms if predicate.op in OF_TWO_FIELDS]
    return tuple(dict.fromkeys([*(predicate.field for predicate in atoms), *others]))


def _judged_columns(batch: pa.RecordBatch, fields: Sequence[str]) -> pa.RecordBatch:
    """The fields as columns; of those that only an IS NULL can ask about, nothing but whether they are there."""
    arrays = []
    for field in fields:
        name, *inner = field.split(FIELD_SEPARATOR)
        column = batch.column(batch.schema.get_field_index(name))
        for one in inner:
            column = pc.struct_field(column, one)
        arrays.append(column if _is_plain(column.type) else _presence(column))
    return pa.RecordBatch.from_arrays(arrays, names=list(fields))


def _is_plain(kind: pa.DataType) -> bool:
    tests = (pa.types.is_string, pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean)
    return any(test(kind) for test in tests)


def _presence(column: pa.Array) -> pa.Array:
    return pc.if_else(column.is_valid(), pa.scalar(1, pa.int8()), pa.scalar(None, pa.int8()))


_ROWS_PER_RECORD_BATCH = 5_000


@dataclass(frozen=True, slots=True)
class TopicSpec(SourceSpec):
    """One read of the rows of a topic."""

    def stream_reader(self) -> DataSourceStreamReader:
        """A reader of micro-batches."""
        return TopicStreamReader(self)

    def batch_reader(self) -> DataSourceReader:
        """A reader of the range between `start` and `end`."""
        return TopicBatchReader(self)


class TopicStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Micro-batches of one topic. Spark calls the planning methods in one process that lives as long as the query."""

    def __init__(self, spec: SourceSpec) -> None:
        self._spec = spec
        self._log: TopicLog | None = None
        self._bulk: bool | None = None
        self._target: dict[str, QueueSpan] | None = None
        self._latest: dict[str, QueueSpan] = {}
        self._alarm = Alarm(spec.wake_after_ms, again=spec.wake_again)

    def __getstate__(self) -> dict[str, Any]:
        # Workers get a copy; a connection belongs to the process that made it.
        fresh: dict[str, Any] = {"_log": None, "_bulk": None, "_target": None, "_latest": {}}
        return {"_spec": self._spec, "_alarm": self._alarm, **fresh}

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """The positions that were fixed when the job's checkpoint was made."""
        return self._spec.start.to_json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """At most `max_rows`, where the spec sets it."""
        return ReadMaxRows(self._spec.max_rows) if self._spec.max_rows else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Fix the end of a bounded run: what the queues hold now."""
        self._target = self._cluster().spans(self._spec.topic)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """The end of the next micro-batch; `start` itself where there is nothing to read."""
        spec, log = self._spec, self._cluster()
        begin = Position.from_json(start).going_on()
        self._latest = log.spans(spec.topic)
        spans = self._latest if self._target is None else self._target
        max_rows = limit.max_rows if isinstance(limit, ReadMaxRows) else 0

        def cold_spans(queue: str) -> Sequence[ColdSpan]:
            whole = Slice(queue, begin.offset(queue), spans[queue].max_offset)
            return log.cold_spans(spec.topic, whole, bulk=True) if spec.cold == "direct" else ()

        times = ColdTimes(log, spec.topic, cold_spans)
        end = next_cut(begin, spans, max_rows, times.offset_at, lambda: _first_store_ms(times, begin, spans))
        if end.rows_since(begin):
            self._alarm.rest()
            return replace(end, name=begin.name, wakes=begin.wakes).to_json()
        if self._target is not None and spec.final_tick:
            return replace(begin, ended=True).to_json()
        if self._target is None and self._alarm.rings():
            return replace(begin, wakes=begin.wakes + 1).to_json()
        return begin.to_json() if Position.from_json(start).ended else start

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802 - Spark's name
        """The ends of the queues as last seen, from which the progress tells how far behind a job is."""
        spans = self._latest
        queues = {queue: span.max_offset for queue, span in spans.items()}
        return Position(queues, name=self._spec.start.name).to_json() if spans else None

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The tasks of a micro-batch."""
        begin, until = Position.from_json(start), Position.from_json(end)
        if self._bulk is None:
            self._bulk = self._cluster().takes_bulk(self._spec.topic)
        groups = divide(begin, until, self._spec.parallelism)
        tasks = _plan_tasks(self._spec, self._cluster(), groups, bulk=self._bulk)
        tick_ms = tick_between(begin, until)
        if tick_ms is not None:
            tasks.append(TopicPartition((), tick_ms))
        elif until.wakes > begin.wakes and not tasks:
            tasks.append(TopicPartition((), WAKE_TIME_MS))
        return tasks

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task; runs in a worker."""
        return read_partition(self._spec, partition)

    def stop(self) -> None:
        """Close the connection; Spark calls this when the query ends."""
        if self._log is not None:
            self._log.close()
            self._log = None

    def _cluster(self) -> TopicLog:
        if self._log is None:
            self._log = _open_log(self._spec)
        return self._log


class TopicBatchReader(DataSourceReader):
    """The rows between the spec's start and end, once."""

    def __init__(self, spec: SourceSpec) -> None:
        self._spec = spec

    def partitions(self) -> Sequence[InputPartition]:
        """The tasks, cut as those of a micro-batch over the same range; at least one, which may be empty."""
        spec = self._spec
        groups = divide(spec.start, spec.end or spec.start, spec.parallelism)
        last = TopicPartition((), END_OF_TIME_MS if spec.final_tick else None)
        if not groups:
            return [last]
        log = _open_log(spec)
        try:
            tasks = _plan_tasks(spec, log, groups, bulk=log.takes_bulk(spec.topic))
        finally:
            log.close()
        return [*tasks, last] if spec.final_tick else tasks

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task; runs in a worker."""
        return read_partition(self._spec, partition)


def _open_log(spec: SourceSpec) -> TopicLog:
    """A connection to the cluster of a source, which reads where the source wants to read."""
    return open_log(spec.nameserver, timeout_s=spec.timeout_s, access=spec.access, read_from=spec.read_from)


def _plan_tasks(
    spec: SourceSpec, log: TopicLog, groups: Sequence[tuple[Slice, ...]], *, bulk: bool
) -> list[TopicPartition]:
    """A task for each group of slices, with the pieces that it reads from an object store itself."""
    if spec.cold != "direct":
        return [TopicPartition(slices, bulk=bulk) for slices in groups]
    wholes: dict[str, Slice] = {}
    for part in (part for slices in groups for part in slices):
        known = wholes.setdefault(part.queue, part)
        wholes[part.queue] = Slice(part.queue, min(known.start, part.start), max(known.end, part.end))
    spans = {queue: log.cold_spans(spec.topic, whole, bulk=bulk) for queue, whole in wholes.items()}
    return [
        TopicPartition(slices, bulk=bulk, cold=cold)
        for slices, cold in zip(groups, pieces_of(groups, spans), strict=True)
    ]


def read_partition(
    spec: SourceSpec,
    partition: InputPartition,
    builder: MessageRows | None = None,
    most_messages: int = _ROWS_PER_RECORD_BATCH,
) -> Iterator[pa.RecordBatch]:
    """The record batches of one task, made by `builder` (None: as the spec says), each of about `most_messages`."""
    if not isinstance(partition, TopicPartition):
        raise TypeError(f"{partition!r} is no partition of a topic")
    builder = builder or row_builder(spec)
    if partition.slices:
        log = _open_log(spec)
        try:
            rows = ColdLog(log, spec.topic, spec.tag, partition.cold)
            for part in partition.slices:
                yield from _shared_slice(spec, _messages(rows, part, most_messages, bulk=partition.bulk), builder, part)
                if rows.detours:
                    detour_spool(Path(spec.spool)).put(f"{part.queue}-{part.start}-{part.end}", rows.detours)
        finally:
            log.close()
    if partition.tick_ms is not None:
        yield builder.tick(partition.tick_ms)


def _messages(log: ColdLog, part: Slice, most_messages: int, *, bulk: bool) -> Iterator[Messages]:
    """The messages of a slice, thousands at a time: a record batch of a few rows costs as much as a large one."""
    if not bulk:
        return map(RecordMessages, _gather_pulls(log.read(part), most_messages))
    queue_id = int(part.queue.rpartition("/")[2])
    return (
        TableMessages(rows, queue_id) for table in log.read_bulk(part) for rows in _in_equal_parts(table, most_messages)
    )


def _in_equal_parts(table: pa.Table, most_rows: int) -> Iterator[pa.Table]:
    parts = -(-table.num_rows // most_rows)
    size = -(-table.num_rows // parts)
    return (table.slice(start, size) for start in range(0, table.num_rows, size))


def _shared_slice(
    spec: SourceSpec, messages: Iterator[Messages], builder: MessageRows, part: Slice
) -> Iterator[pa.RecordBatch]:
    if not spec.decoded:
        return _decode_messages(spec, messages, builder, part)
    slices = DecodedSlices(spec.decoded, builder.schema)
    found = slices.find(part)
    return found if found is not None else slices.keep(part, _decode_messages(spec, messages, builder, part))


def _decode_messages(
    spec: SourceSpec, messages: Iterator[Messages], builder: MessageRows, part: Slice
) -> Iterator[pa.RecordBatch]:
    spool = MalformedWriter(spec.spool, part, keep_bodies=spec.keep_malformed)
    for several in messages:
        batch, malformed = builder.rows(several, part.queue)
        for refused in malformed:
            spool.add(several.queue_offset(refused.position), refused.reason, several.body(refused.position))
        if batch.num_rows:
            yield batch
    spool.finish()


def _gather_pulls(pulls: Iterator[Sequence[memoryview]], most_messages: int) -> Iterator[list[memoryview]]:
    """Answers of several pulls put together."""
    gathered: list[memoryview] = []
    for records in pulls:
        gathered.extend(records)
        if len(gathered) >= most_messages:
            yield gathered
            gathered = []
    if gathered:
        yield gathered


def _first_store_ms(times: ColdTimes, begin: Position, spans: dict[str, QueueSpan]) -> int:
    """The store time of the oldest row from `begin` on; 0 if none is there any more."""
    offsets = {queue: max(begin.offset(queue), span.min_offset) for queue, span in spans.items()}
    found = (times.stored_ms(queue, offset) for queue, offset in offsets.items() if offset < spans[queue].max_offset)
    return min((time_ms for time_ms in found if time_ms is not None), default=0)
