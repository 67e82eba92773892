"""Calls of user functions in Python workers: all calls of a node for one batch, and failed calls."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.pandas.functions import arrow_udf

from millstream.streams.errors import JobError
from millstream.streams.functions.user_functions.calling import (
    CAUGHT,
    Calling,
    CallTookTooLong,
    CallWatchdog,
    Failure,
    Way,
    await_calls,
    call_by_row,
    calling_of,
    watch_calls,
)
from millstream.streams.functions.user_functions.failed_calls import FailedCall, UserFunctionFailed, failed_call
from millstream.streams.functions.user_functions.user import UserFunctionProblem, root_of, user_callable, user_marked
from millstream.streams.functions.user_functions.user_values import to_arrow_value
from millstream.streams.plan.expressions import USER_PREFIX, Call
from millstream.streams.plan.types import DataType, Schema, TypeKind
from millstream.streams.spark.columns.arrow_types import arrow_type
from millstream.streams.spark.columns.types import spark_type
from millstream.streams.spark.runtime.micro_batch import micro_batch
from millstream.streams.spark.sinks.json_rows import encode_rows, python_values
from millstream.streams.state.spool import Spool
from millstream.streams.state.worker_cache import WorkerCache

__all__ = [
    "FAILED",
    "BatchCall",
    "Failed",
    "PlacedCall",
    "SpooledCall",
    "UserStage",
    "batch_call",
    "call_spool",
    "user_call",
]


class SpooledCall(msgspec.Struct, frozen=True):
    """A failed call of a user's function."""

    stage: str
    """The stage of the query that made the call."""

    call: FailedCall
    """The function, its arguments and why it failed."""

    row: bytes = b""
    """The row that the call was made for as JSON; blank where that goes nowhere."""

    ends: bool = False
    """Whether the job ends, whatever its settings say of calls."""


def call_spool(directory: str) -> Spool[SpooledCall]:
    """The failed calls; a file for each piece of work of a micro-batch, such as a batch of a stage's task."""
    return Spool(Path(directory), ".calls", SpooledCall)


Failed = tuple[int, FailedCall]
"""The place of a row in its batch, and what is told of its call."""

_WHOLE = (TypeKind.ARRAY, TypeKind.MAP, TypeKind.ROW)
_CHECKED_BY_ARROW = (
    TypeKind.TINYINT,
    TypeKind.SMALLINT,
    TypeKind.INT,
    TypeKind.BIGINT,
    TypeKind.DOUBLE,
    TypeKind.STRING,
)
"""Types for which Arrow takes a list of Python values as it is, and raises for values of others."""


class WrongCount(ValueError):
    """A column of another length than those that it was made of."""


@dataclass(frozen=True, slots=True)
class BatchCall:
    """A call as it travels to the workers. `root` is the directory that its module is found in."""

    path: str
    root: str
    result: DataType
    arguments: tuple[DataType, ...]

    def compute(
        self, arrays: Sequence[pa.Array], count: int, timeout_ms: int | None = None
    ) -> tuple[pa.Array, list[Failed]]:
        """The values of `count` rows, NULL where a call failed, and what is told of those that did."""
        calling = calling_of(user_callable(self.path, self.root), user_marked(self.path, self.root))
        if calling.way in (Way.ARROW, Way.NUMPY):
            with watch_calls(calling.said.timeout_ms or timeout_ms) as watch:
                return self._by_column(calling, arrays, count, watch)
        given = [_python_values(array, data_type) for array, data_type in zip(arrays, self.arguments, strict=True)]
        rows = list(zip(*given, strict=True)) if given else [()] * count
        if calling.way is Way.ASYNC:
            values, failures = await_calls(calling, rows, timeout_ms)
        else:
            by = self._table(calling.function) if self.result.kind is TypeKind.ARRAY else calling.function
            values, failures = call_by_row(by, rows, calling.said.timeout_ms or timeout_ms)
        column, wrong = self._column(values)
        return column, [(place, failed_call(self.path, rows[place], error)) for place, error in (*failures, *wrong)]

    def _table(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """A generator runs where it is read, so it is read where its call is watched."""

        def list_results(*arguments: Any) -> Any:
            found = function(*arguments)
            return found if found is None or isinstance(found, str | bytes | list | dict) else _list_values(found)

        return list_results

    def _column(self, values: list[Any]) -> tuple[pa.Array, list[Failure]]:
        """The values as an array; those of another type are NULL."""
        of = arrow_type(self.result)
        if self.result.kind in _CHECKED_BY_ARROW:
            try:
                return pa.array(values, of), []
            except (pa.ArrowException, TypeError, ValueError, OverflowError):
                pass
        failures: list[Failure] = []
        for place, value in enumerate(values):
            try:
                values[place] = to_arrow_value(value, self.result)
            except Exception as error:  # noqa: BLE001 - a user's object may raise anything
                failures.append((place, error))
                values[place] = None
        return pa.array(values, of), failures

    def _by_column(
        self, calling: Calling, arrays: Sequence[pa.Array], count: int, watch: CallWatchdog
    ) -> tuple[pa.Array, list[Failed]]:
        """A batch that raises is cut in halves until the rows are alone that do; one that takes too long is not."""
        if not count:
            return pa.nulls(0, arrow_type(self.result)), []
        try:
            watch.begin()
            column = self._whole(calling, arrays, count)
            watch.end()
            return column, []
        except CAUGHT as error:
            watch.end()
            if count == 1 or isinstance(error, WrongCount | CallTookTooLong):
                row = [array[:1].to_pylist()[0] for array in arrays]
                failure = failed_call(self.path, row, error)
                return pa.nulls(count, arrow_type(self.result)), [(place, failure) for place in range(count)]
        half = count // 2
        first, failed = self._by_column(calling, [array[:half] for array in arrays], half, watch)
        second, more = self._by_column(calling, [array[half:] for array in arrays], count - half, watch)
        return pa.concat_arrays([first, second]), [*failed, *((half + place, failure) for place, failure in more)]

    def _whole(self, calling: Calling, arrays: Sequence[pa.Array], count: int) -> pa.Array:
        if calling.way is Way.NUMPY:
            found = calling.function(*(array.to_numpy(zero_copy_only=False) for array in arrays))
        else:
            found = calling.function(*arrays)
        of = arrow_type(self.result)
        if isinstance(found, pa.ChunkedArray):
            found = found.combine_chunks()
        if isinstance(found, pa.Array):
            column = found if found.type == of else found.cast(of)
        else:
            column = pa.array(found.tolist() if isinstance(found, np.ndarray) else found, of, from_pandas=True)
        if len(column) != count:
            raise WrongCount(f"{count} values expected, got {len(column)}")
        return column


def _list_values(found: Any) -> Any:
    try:
        return list(found)
    except TypeError:
        # What cannot be listed is of a wrong type, which is told later with what was expected.
        if hasattr(found, "__iter__"):
            raise
        return found


def _python_values(array: pa.Array, data_type: DataType) -> list[Any]:
    """Python values of the arguments; a TIMESTAMP has no zone, a MAP is a dict."""
    values = python_values(array)
    if data_type.kind is TypeKind.TIMESTAMP:
        return [None if value is None else value.replace(tzinfo=None) for value in values]
    if data_type.kind is TypeKind.MAP:
        return [None if value is None else dict(value) for value in values]
    return values


def user_call(call: Call, columns: Sequence[Column]) -> Column:
    """The column of a call of a user's function. Raises JobError for one that cannot be loaded."""
    work = batch_call(call)

    def compute(*arrays: pa.Array) -> pa.Array:
        # A call without arguments has one array all the same: it tells how many rows there are.
        return work.compute(arrays[: len(work.arguments)], len(arrays[0]))[0]

    wrap: Callable[..., Callable[..., Column]] = arrow_udf
    return wrap(compute, spark_type(call.type))(*(columns or [F.lit(0)]))


def batch_call(call: Call) -> BatchCall:
    """The call as it travels to the workers. Raises JobError for a function that cannot be loaded."""
    path = call.function.removeprefix(USER_PREFIX)
    try:
        user_callable(path)
    except UserFunctionProblem as problem:
        raise JobError("JOB_FAILED", problem.message, remedy=problem.remedy) from None
    return BatchCall(path, root_of(path), call.type, tuple(argument.type for argument in call.arguments))


FAILED = "failed"
"""The field that says whether a call of the row has failed."""

MAX_STAGES: Final = 4096
"""Stages whose batches a worker counts: far more than one task has, which must find its own again."""

_Task = tuple[int, int]

_batches: Final = WorkerCache[str, tuple[_Task, int]](MAX_STAGES)
"""How many batches the task under way has brought to each stage."""


@dataclass(frozen=True, slots=True)
class PlacedCall:
    """A call over places of the stage's arrays. `asked` is the place of what says whether a row asks; None: all do."""

    call: BatchCall
    places: tuple[int, ...]
    asked: int | None


@dataclass(frozen=True, slots=True)
class UserStage:
    """The function of a stage: a struct of the value of each call, `c0`, `c1` and so on, and `FAILED`.

    `on_error` is null, fail or dead-letter. `letter` is the row behind the calls' arrays that goes to the dead letters;
    it starts at the place `letter_place`.
    """

    name: str
    calls: tuple[PlacedCall, ...]
    spool: Spool[SpooledCall]
    on_error: str
    timeout_ms: int | None = None
    letter: Schema | None = None
    letter_place: int = 0

    def __call__(self, *arrays: pa.Array) -> pa.Array:
        count = len(arrays[0])
        columns: list[pa.Array] = []
        failed: dict[int, FailedCall] = {}
        for placed in self.calls:
            column, failures = self._call(placed, arrays, count)
            columns.append(column)
            for place, call in failures:
                failed.setdefault(place, call)
        if failed:
            self._tell(failed, arrays)
        has_failed = [place in failed for place in range(count)] if failed else [False] * count
        names = [*(f"c{number}" for number in range(len(columns))), FAILED]
        return pa.StructArray.from_arrays([*columns, pa.array(has_failed, pa.bool_())], names)

    def _call(
        self, placed: PlacedCall, arrays: Sequence[pa.Array], count: int
    ) -> tuple[pa.Array, Sequence[tuple[int, FailedCall]]]:
        """The values of one call, NULL where it is not asked, and what failed."""
        given = [arrays[place] for place in placed.places]
        if placed.asked is None:
            return placed.call.compute(given, count, self.timeout_ms)
        applies = pc.fill_null(arrays[placed.asked], False)
        rows = pc.indices_nonzero(applies)
        if len(rows) == count:
            return placed.call.compute(given, count, self.timeout_ms)
        column, failures = placed.call.compute([one.take(rows) for one in given], len(rows), self.timeout_ms)
        places = rows.to_pylist()
        number_of = dict(zip(places, range(len(places)), strict=True))
        whole = column.take(pa.array([number_of.get(place) for place in range(count)], pa.int64()))
        return whole, [(places[place], call) for place, call in failures]

    def _tell(self, failed: dict[int, FailedCall], arrays: Sequence[pa.Array]) -> None:
        """Leave the failures to the driver. Raises UserFunctionFailed where they end the job."""
        rows: list[bytes] = [b""] * len(failed)
        if self.letter is not None:
            behind = arrays[self.letter_place : self.letter_place + len(self.letter.fields)]
            batch = pa.RecordBatch.from_arrays(list(behind), names=list(self.letter.names))
            rows = encode_rows(batch.take(pa.array(list(failed))), self.letter)
        calls = [SpooledCall(self.name, call, row) for call, row in zip(failed.values(), rows, strict=True)]
        self.spool.put(self._piece(), calls)
        if self.on_error == "fail":
            raise UserFunctionFailed(calls[0].call)

    def _piece(self) -> str:
        """The piece of work: the same for the same rows of a micro-batch that is repeated."""
        context = TaskContext.get()
        partition = 0 if context is None else context.partitionId()
        task = (micro_batch(), 0 if context is None else context.taskAttemptId())
        before = _batches.get(self.name)
        number = before[1] + 1 if before is not None and before[0] == task else 0
        _batches.put(self.name, (task, number))
        return f"{self.name}-{task[0]}-{partition}-{number}"
