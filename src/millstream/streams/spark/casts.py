"""CAST between Flink's types on Spark: a value that does not fit is NULL, for CAST and TRY_CAST alike.

Flink's CAST ends the job at a bad value; here a bad row never stops the others.
"""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - Spark's customary name

from millstream.streams.plan.types import DataType, TypeKind
from millstream.streams.spark.types import spark_type

__all__ = ["cast"]

_MILLISECONDS_OF_DAY = 86_400_000
_DEFAULT_FRACTION = {TypeKind.TIMESTAMP: 6, TypeKind.TIMESTAMP_LTZ: 6}
_MICROSECOND_DIGITS = 6


def cast(value: Column, source: DataType, target: DataType) -> Column:
    """`value` of type `source` as `target`."""
    if source.kind is not TypeKind.STRING and source == target.as_nullable(source.nullable):
        return value
    if target.kind is TypeKind.STRING:
        text = _text(value, source)
        return text if target.precision is None else F.substring(text, 1, target.precision)
    if target.kind is TypeKind.TIME:
        return _time(value, source)
    if source.kind is TypeKind.TIME and target.is_timestamp:
        return F.timestamp_millis(value.cast("bigint"))
    converted = value.try_cast(spark_type(target)) if source.kind is TypeKind.STRING else value.cast(spark_type(target))
    return _to_precision(converted, target.precision) if target.is_timestamp else converted


def _text(value: Column, source: DataType) -> Column:
    match source.kind:
        case TypeKind.BOOLEAN:
            return F.when(value, F.lit("TRUE")).when(~value, F.lit("FALSE"))
        case TypeKind.TIMESTAMP | TypeKind.TIMESTAMP_LTZ:
            return F.date_format(value, _timestamp_format(source))
        case TypeKind.TIME:
            pattern = "HH:mm:ss" if not source.precision else f"HH:mm:ss.{'S' * source.precision}"
            return F.date_format(F.timestamp_millis(value.cast("bigint")), pattern)
        case _:
            return value.cast("string")


def _timestamp_format(source: DataType) -> str:
    digits = _DEFAULT_FRACTION[source.kind] if source.precision is None else min(source.precision, _MICROSECOND_DIGITS)
    return "yyyy-MM-dd HH:mm:ss" + (f".{'S' * digits}" if digits else "")


def _time(value: Column, source: DataType) -> Column:
    """Milliseconds of the day."""
    if source.kind is TypeKind.STRING:
        value = F.concat(F.lit("1970-01-01 "), value).try_cast("timestamp")
    return F.pmod(F.unix_millis(value), F.lit(_MILLISECONDS_OF_DAY)).cast("int")


def _to_precision(time: Column, precision: int | None) -> Column:
    if precision is None or precision >= _MICROSECOND_DIGITS:
        return time
    step = 10 ** (_MICROSECOND_DIGITS - precision)
    micros = F.unix_micros(time)
    return F.timestamp_micros(micros - F.pmod(micros, F.lit(step)))
