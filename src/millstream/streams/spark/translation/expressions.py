"""Translates plan expressions to Spark columns."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping

from pyspark.sql import Column as SparkColumn
from pyspark.sql import functions as F

from millstream.streams.errors import JobError
from millstream.streams.plan.aggregates import AggregateCall
from millstream.streams.plan.expressions import Call, Case, Cast, Column, Expression, Literal
from millstream.streams.plan.types import DataType, TypeKind
from millstream.streams.spark.columns.casts import cast
from millstream.streams.spark.columns.types import spark_type
from millstream.streams.spark.functions import builder_of

__all__ = ["AGGREGATES", "aggregate", "column_of"]


def column_of(expression: Expression, inputs: Mapping[str, SparkColumn]) -> SparkColumn:
    """The Spark column of `expression`; `inputs` are the columns that it may name."""
    match expression:
        case Column(name=name):
            return inputs[name]
        case Literal():
            return _literal(expression)
        case Call(function=function, arguments=arguments):
            build = builder_of(function)
            if build is None:
                raise JobError("JOB_FAILED", f"The function {function} has no translation.")
            return _as_declared(
                build(expression, [column_of(argument, inputs) for argument in arguments]), expression.type
            )
        case Case(branches=branches, otherwise=otherwise, type=data_type):
            return _case(branches, otherwise, data_type, inputs)
        case Cast(operand=operand, type=data_type):
            return cast(column_of(operand, inputs), operand.type, data_type)


def _literal(literal: Literal) -> SparkColumn:
    value, kind = literal.value, literal.type.kind
    if value is None:
        return F.lit(None).cast(spark_type(literal.type))
    if isinstance(value, datetime.datetime):
        # A time without a zone is one of UTC; Python would take it for the machine's.
        value = value.replace(tzinfo=datetime.UTC) if value.tzinfo is None else value
    if isinstance(value, datetime.datetime | datetime.timedelta | str | bytes) or kind is TypeKind.BOOLEAN:
        return F.lit(value)
    return F.lit(value).cast(spark_type(literal.type))


def _as_declared(value: SparkColumn, data_type: DataType) -> SparkColumn:
    """`value` in the type that the plan declares: Spark's own result types of arithmetic are often wider."""
    return value.cast(spark_type(data_type)) if data_type.is_number else value


def _case(
    branches: tuple[tuple[Expression, Expression], ...],
    otherwise: Expression | None,
    data_type: DataType,
    inputs: Mapping[str, SparkColumn],
) -> SparkColumn:
    def result(value: Expression) -> SparkColumn:
        return cast(column_of(value, inputs), value.type, data_type)

    (condition, value), *others = branches
    chosen = F.when(column_of(condition, inputs), result(value))
    for condition, value in others:
        chosen = chosen.when(column_of(condition, inputs), result(value))
    return chosen if otherwise is None else chosen.otherwise(result(otherwise))


def aggregate(call: AggregateCall, inputs: Mapping[str, SparkColumn]) -> SparkColumn:
    """The Spark aggregate of `call`; SUM and AVG of integers stay integers."""
    value = F.lit(1) if call.argument is None else column_of(call.argument, inputs)
    if call.filter is not None:
        value = F.when(column_of(call.filter, inputs), value)
    build = AGGREGATES.get(call.function)
    if build is None or (call.distinct and call.function not in ("MIN", "MAX")):
        raise JobError("JOB_FAILED", f"The aggregate {call} has no translation.")
    integers = call.argument is not None and call.argument.type.is_integer
    if call.function == "AVG" and integers:
        return F.call_function("div", F.sum(value), F.count(value)).cast(spark_type(call.type))
    return _as_declared(build(value), call.type)


AGGREGATES: dict[str, Callable[[SparkColumn], SparkColumn]] = {
    "COUNT": F.count,
    "SUM": F.sum,
    "AVG": F.avg,
    "MIN": F.min,
    "MAX": F.max,
    "SUM0": lambda value: F.coalesce(F.sum(value), F.lit(0)),
    "BIT_AND": F.bit_and,
    "BIT_OR": F.bit_or,
    "BIT_XOR": F.bit_xor,
}
"""What builds an aggregate over a column, by name."""
