"""Calls of users' functions where nothing runs them apart: each by itself, NULL where it raises."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - Spark's customary name
from pyspark.sql.pandas.functions import arrow_udf

from millstream.streams.errors import JobError
from millstream.streams.functions.user_functions.user import UserFunctionProblem, root_of, user_callable
from millstream.streams.plan.expressions import USER_PREFIX, Call
from millstream.streams.spark.columns.types import spark_type
from millstream.streams.spark.functions.user_batch import BatchCall

__all__ = ["batch_call", "user_call"]


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
