"""The last step of a micro-batch: routes each row to the sinks whose struct it fills, in one pass."""

from __future__ import annotations

import base64
import json
import pickle
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext, cloudpickle
from pyspark.sql import DataFrame
from pyspark.sql.functions import col
from pyspark.sql.pandas.functions import pandas_udf
from pyspark.util import PythonEvalType

from millstream.streams.spark.columns.rows import KIND_COLUMN
from millstream.streams.spark.sinks.sink import Attempt, Sink, SinkTask, SinkWriter, Written

__all__ = ["Delivered", "WriteStage"]

_WRITING = "millstream.secret.writing"
"""The local property; Spark shows and logs nothing of one with that word in its name."""

_MESSAGES = "sink int, partition int, rows bigint, message binary, by string"


class Delivered(NamedTuple):
    """How many rows a sink got, in all and by each value of the column that they are counted by, if there is one."""

    rows: int
    by: dict[str, int]


class WriteStage:
    """What writes the micro-batches of one query to `sinks`, which may leave notes in the directory `notes`.

    Its function, and Spark's expression for that, are made once: rebuilt they were a tenth of a small micro-batch.
    What changes, the sinks as they are when a micro-batch begins, goes to the tasks beside it, and to no file: it may
    hold keys of access. `told_by` names for sinks by number a column of texts to count rows by. `before_writing` is
    called when all sinks have begun a micro-batch and no task has.
    """

    def __init__(
        self,
        sinks: Sequence[Sink],
        *,
        job_id: str,
        notes: Path,
        told_by: Mapping[int, str] | None = None,
        before_writing: Callable[[], None] = lambda: None,
    ) -> None:
        self._sinks = tuple(sinks)
        self._job_id = job_id
        self._notes = notes
        self._told_by = dict(told_by or {})
        self._before_writing = before_writing
        self._written: Any = None

    def deliver(self, batch: DataFrame, batch_id: int) -> list[Delivered]:
        """Write the envelopes of one micro-batch and commit each sink; what each sink got.

        Nothing is committed where a task fails. A crash between two commits is mended by the replay of the batch.
        """
        attempts = [Attempt(self._job_id, batch_id, number, self._notes) for number in range(len(self._sinks))]
        repeated = [sink.begin(attempt) for sink, attempt in zip(self._sinks, attempts, strict=True)]
        self._before_writing()
        writing = _Writing(self._sinks, self._job_id, batch_id, self._told_by)
        # What a sink knows of an earlier attempt may be large.
        frame = (
            batch.repartition(1).mapInArrow(_Write(writing), _MESSAGES)
            if any(repeated)
            else self._write(batch, writing)
        )
        messages = frame.collect()
        counts = []
        for number, sink in enumerate(self._sinks):
            written = [
                Written(SinkTask(self._job_id, batch_id, row.partition), row.rows, bytes(row.message))
                for row in sorted(messages, key=lambda row: row.partition)
                if row.sink == number
            ]
            sink.commit(batch_id, written)
            by: Counter[str] = Counter()
            for row in messages:
                by.update(json.loads(row.by) if row.sink == number else {})
            counts.append(Delivered(sum(part.rows for part in written), dict(by)))
        return counts

    def _write(self, batch: DataFrame, writing: _Writing) -> DataFrame:
        """As `batch.mapInArrow`, which would make the function's expression again."""
        if self._written is None:
            of_function: Any = pandas_udf
            write = of_function(_Write(None), _MESSAGES, PythonEvalType.SQL_MAP_ARROW_ITER_UDF)
            self._written = write(*[col(f"`{name}`") for name in batch.columns])
        packed: bytes = cloudpickle.dumps(writing)  # type: ignore[no-untyped-call]
        batch.sparkSession.sparkContext.setLocalProperty(_WRITING, base64.b64encode(packed).decode())
        java: Any = batch._jdf
        return DataFrame(java.mapInArrow(self._written._jc, False, None), batch.sparkSession)


class _Writing(NamedTuple):
    """What the tasks of a micro-batch must know."""

    sinks: tuple[Sink, ...]
    job_id: str
    batch_id: int
    told_by: dict[int, str]


class _Write:
    """The function of the stage: consumes envelopes, yields one message per sink that got rows.

    What it needs to know is `writing`, or in the local properties of Spark's task.
    """

    def __init__(self, writing: _Writing | None) -> None:
        self._writing = writing

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        writing = self._writing
        if writing is None:
            writing = pickle.loads(base64.b64decode(context.getLocalProperty(_WRITING) or ""))
        assert writing is not None
        task = SinkTask(writing.job_id, writing.batch_id, context.partitionId(), context.attemptNumber())
        writers: dict[int, SinkWriter] = {}
        counts: dict[int, int] = {}
        by: defaultdict[int, Counter[str]] = defaultdict(Counter)
        for batch in batches:
            for number, column in enumerate(batch.columns):
                rows = _rows_of(column)
                if rows.num_rows == 0:
                    continue
                if number not in writers:
                    writers[number] = writing.sinks[number].writer(task)
                    counts[number] = 0
                kinds = None
                if rows.schema.names[-1] == KIND_COLUMN:
                    kinds = rows.column(rows.num_columns - 1)
                    rows = rows.select(rows.schema.names[:-1])
                writers[number].write(rows, kinds)
                counts[number] += rows.num_rows
                if number in writing.told_by:
                    by[number].update(_counts_of(rows.column(writing.told_by[number])))
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
