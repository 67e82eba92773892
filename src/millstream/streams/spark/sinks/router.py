"""The last step of a micro-batch: each row goes to the sinks whose struct it fills, in one pass over the rows."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql import DataFrame

from millstream.streams.spark.hidden import KIND_COLUMN
from millstream.streams.spark.sinks.sink import Attempt, Sink, SinkTask, SinkWriter, Written

__all__ = ["Delivered", "deliver"]

_MESSAGES = "sink int, partition int, rows bigint, message binary, by string"


class Delivered(NamedTuple):
    """How many rows a sink got, in all and by each value of the column that they are counted by, if there is one."""

    rows: int
    by: dict[str, int]


def deliver(
    batch: DataFrame,
    sinks: Sequence[Sink],
    *,
    job_id: str,
    batch_id: int,
    notes: Path,
    told_by: Mapping[int, str] | None = None,
) -> list[Delivered]:
    """Write the envelopes of one micro-batch and commit each sink; the number of rows per sink.

    Nothing is committed where a task fails. A crash between two commits is mended by the replay of the batch. `notes`
    is the directory for what the sinks note. `told_by` names for sinks by number a column of texts to count rows by.
    """
    attempts = [Attempt(job_id, batch_id, number, notes) for number in range(len(sinks))]
    repeated = [sink.begin(attempt) for sink, attempt in zip(sinks, attempts, strict=True)]
    if any(repeated):
        batch = batch.repartition(1)
    writers = _Writers(tuple(sinks), job_id, batch_id, dict(told_by or {}))
    messages = batch.mapInArrow(writers, _MESSAGES).collect()
    counts = []
    for number, sink in enumerate(sinks):
        written = [
            Written(SinkTask(job_id, batch_id, row.partition), row.rows, bytes(row.message))
            for row in sorted(messages, key=lambda row: row.partition)
            if row.sink == number
        ]
        sink.commit(batch_id, written)
        by: Counter[str] = Counter()
        for row in messages:
            by.update(json.loads(row.by) if row.sink == number else {})
        counts.append(Delivered(sum(part.rows for part in written), dict(by)))
    return counts


class _Writers:
    """The function of the write stage: consumes envelopes, yields one message per sink that got rows."""

    def __init__(self, sinks: tuple[Sink, ...], job_id: str, batch_id: int, told_by: dict[int, str]) -> None:
        self._sinks = sinks
        self._job_id = job_id
        self._batch_id = batch_id
        self._told_by = told_by

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        task = SinkTask(self._job_id, self._batch_id, context.partitionId() if context is not None else 0)
        writers: dict[int, SinkWriter] = {}
        counts: dict[int, int] = {}
        by: defaultdict[int, Counter[str]] = defaultdict(Counter)
        for batch in batches:
            for number, column in enumerate(batch.columns):
                rows = _rows_of(column)
                if rows.num_rows == 0:
                    continue
                if number not in writers:
                    writers[number] = self._sinks[number].writer(task)
                    counts[number] = 0
                kinds = None
                if rows.schema.names[-1] == KIND_COLUMN:
                    kinds = rows.column(rows.num_columns - 1)
                    rows = rows.select(rows.schema.names[:-1])
                writers[number].write(rows, kinds)
                counts[number] += rows.num_rows
                if number in self._told_by:
                    by[number].update(_counts_of(rows.column(self._told_by[number])))
        messages = {number: writer.finish() for number, writer in writers.items()}
        if messages:
            yield pa.RecordBatch.from_arrays(
                [
                    pa.array(list(messages), pa.int32()),
                    pa.array([task.partition] * len(messages), pa.int32()),
                    pa.array([counts[number] for number in messages], pa.int64()),
                    pa.array(list(messages.values()), pa.binary()),
                    pa.array([json.dumps(by[number]) for number in messages], pa.string()),
                ],
                names=["sink", "partition", "rows", "message", "by"],
            )


def _counts_of(column: pa.Array) -> dict[str, int]:
    counted = pc.value_counts(column)
    return dict(zip(counted.field("values").to_pylist(), counted.field("counts").to_pylist(), strict=True))


def _rows_of(column: pa.Array) -> pa.RecordBatch:
    """The structs that are there, alone or in lists, as rows."""
    if pa.types.is_list(column.type):
        column = column.flatten()
    if column.null_count == len(column):
        return pa.RecordBatch.from_arrays([], names=[])
    present = column if column.null_count == 0 else column.filter(pc.is_valid(column))
    names = [column.type.field(position).name for position in range(column.type.num_fields)]
    return pa.RecordBatch.from_arrays(present.flatten(), names=names)
