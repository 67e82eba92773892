"""Calls of users' functions, in a Python worker. A call that raises gives NULL: no row ends the query."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - Spark's customary name
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.pandas.types import to_arrow_type

from millstream.streams.errors import JobError
from millstream.streams.functions.user import USER_PREFIX, UserFunctionProblem, root_of, user_callable
from millstream.streams.plan.expressions import Call
from millstream.streams.plan.types import DataType, TypeKind
from millstream.streams.spark.types import spark_type

__all__ = ["user_call"]


def user_call(call: Call, columns: Sequence[Column]) -> Column:
    """The column of a call of a user's function. Raises JobError for one that cannot be loaded."""
    path = call.function.removeprefix(USER_PREFIX)
    try:
        user_callable(path)
    except UserFunctionProblem as problem:
        raise JobError("JOB_FAILED", problem.message, remedy=problem.remedy) from None
    result = spark_type(call.type)
    work = _Work(path, root_of(path), call.type, tuple(argument.type for argument in call.arguments))
    wrap: Callable[..., Callable[..., Column]] = arrow_udf
    return wrap(work.compute(to_arrow_type(result, timezone="UTC")), result)(*(columns or [F.lit(0)]))


@dataclasses.dataclass(frozen=True)
class _Work:
    """What a worker needs to know of a call; it imports the module itself."""

    path: str
    root: str
    result: DataType
    arguments: tuple[DataType, ...]

    def compute(self, arrow_type: pa.DataType) -> Callable[..., pa.Array]:
        def compute(*arrays: pa.Array) -> pa.Array:
            function = user_callable(self.path, self.root)
            # A call without arguments has one array all the same: it tells how many rows there are.
            given = [_given(array, data_type) for array, data_type in zip(arrays, self.arguments, strict=False)]
            rows = zip(*given, strict=True) if given else [()] * len(arrays[0])
            return _array([self._value(function, row) for row in rows], arrow_type)

        return compute

    def _value(self, function: Callable[..., Any], row: tuple[Any, ...]) -> object:
        try:
            value: Any = function(*row)
            if value is None or self.result.kind is not TypeKind.ARRAY:
                return _taken(value, self.result)
            element = self.result.elements[0]
            return [_taken(part, element) for part in value]
        except Exception:  # noqa: BLE001 - a user's code may raise anything
            return None


def _given(array: pa.Array, data_type: DataType) -> list[Any]:
    """Python values of the arguments; a TIMESTAMP has no zone."""
    values: list[Any] = array.to_pylist()
    if data_type.kind is TypeKind.TIMESTAMP:
        return [None if value is None else value.replace(tzinfo=None) for value in values]
    return values


def _taken(value: Any, data_type: DataType) -> Any:
    """The value in the form that Arrow takes for the type."""
    match data_type.kind:
        case TypeKind.ROW if value is not None:
            names = [field.name for field in data_type.fields]
            named = dataclasses.is_dataclass(value) and not isinstance(value, type)
            parts = dataclasses.astuple(value) if named else value
            parts = parts if isinstance(parts, tuple | list) else (parts,)
            types = (field.type for field in data_type.fields)
            return dict(zip(names, map(_taken, parts, types), strict=True))
        case TypeKind.MAP if value is not None:
            return list(value.items())
        case TypeKind.TIMESTAMP | TypeKind.TIMESTAMP_LTZ if isinstance(value, datetime.datetime):
            return value.replace(tzinfo=datetime.UTC) if value.tzinfo is None else value
        case _:
            return value


def _array(values: list[Any], arrow_type: pa.DataType) -> pa.Array:
    try:
        return pa.array(values, arrow_type)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return pa.concat_arrays([_one(value, arrow_type) for value in values])


def _one(value: Any, arrow_type: pa.DataType) -> pa.Array:
    """An array of one value, NULL if it is not of the declared type."""
    try:
        return pa.array([value], arrow_type)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return pa.array([None], arrow_type)
