"""One user's function over the rows of an Arrow batch, in a Python worker."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

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
from millstream.streams.functions.user_functions.failed_calls import FailedCall, failed_call
from millstream.streams.functions.user_functions.user import user_callable, user_marked
from millstream.streams.functions.user_functions.user_values import to_arrow_value
from millstream.streams.plan.types import DataType, TypeKind
from millstream.streams.spark.columns.types import arrow_type
from millstream.streams.spark.sinks.values import python_values

__all__ = ["BatchCall", "Failed"]

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
                told = failed_call(self.path, row, error)
                return pa.nulls(count, arrow_type(self.result)), [(place, told) for place in range(count)]
        half = count // 2
        first, failed = self._by_column(calling, [array[:half] for array in arrays], half, watch)
        second, more = self._by_column(calling, [array[half:] for array in arrays], count - half, watch)
        return pa.concat_arrays([first, second]), [*failed, *((half + place, told) for place, told in more)]

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
