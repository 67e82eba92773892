"""CAST between Flink's types on Spark: an invalid value is NULL, for CAST and TRY_CAST alike.

Flink's CAST ends the job at a bad value; here a bad row never stops the others (`jobs/bad_casts.py` tells what a job
may ask for instead). Whole numbers wrap when they become narrower, as in Flink.
"""

from __future__ import annotations

import datetime
from functools import reduce

from pyspark.sql import Column
from pyspark.sql import functions as F

from millstream.streams.plan.types import DataType, TypeKind
from millstream.streams.spark.columns.calendar import part_of, part_of_months
from millstream.streams.spark.columns.types import spark_type

__all__ = ["cast"]

_MILLISECONDS_OF_DAY = 86_400_000
_DEFAULT_FRACTION = {TypeKind.TIMESTAMP: 6, TypeKind.TIMESTAMP_LTZ: 6}
_MICROSECOND_DIGITS = 6
_NESTED = (TypeKind.ARRAY, TypeKind.MAP, TypeKind.ROW)


def cast(value: Column, source: DataType, target: DataType) -> Column:
    """`value` of type `source` as `target`."""
    lengths = (TypeKind.STRING, TypeKind.BYTES)
    if source.kind not in lengths and source == target.as_nullable(source.nullable):
        return value
    if source.kind is TypeKind.NULL:
        return value.cast(spark_type(target))
    if source.kind is TypeKind.VARIANT and target.kind is not TypeKind.STRING:
        return _of_variant(value, target)
    if target.kind in lengths:
        return _at_length(_text(value, source) if target.kind is TypeKind.STRING else value.cast("binary"), target)
    if target.kind is TypeKind.TIME:
        return _time(value, source)
    if source.kind is TypeKind.TIME and target.is_timestamp:
        return F.timestamp_millis(value.cast("bigint"))
    if target.kind in _NESTED:
        return _cast_nested(value, source, target)
    if target.kind is TypeKind.INTERVAL_YEAR and source.kind is TypeKind.STRING:
        interval = value.try_cast("interval year to month")
        return (F.extract(F.lit("YEAR"), interval) * F.lit(12) + F.extract(F.lit("MONTH"), interval)).cast("int")
    converted = value.cast(spark_type(target))
    return _to_precision(converted, target.precision) if target.is_timestamp else converted


def _at_length(value: Column, target: DataType) -> Column:
    """CHAR and BINARY are filled with spaces and zeros; what is longer is cut."""
    if target.precision is None:
        return value
    if target.fixed:
        return F.rpad(value, target.precision, F.lit(" " if target.kind is TypeKind.STRING else b"\0"))
    return F.substring(value, 1, target.precision)


def _of_variant(value: Column, target: DataType) -> Column:
    """A number, or a truth, that `target` holds as it is; else NULL. Only FLOAT and DOUBLE may come near it."""
    if target.kind is TypeKind.BOOLEAN:
        return F.when(value == "true", F.lit(True)).when(value == "false", F.lit(False))
    number = F.when(value.rlike("^[-0-9]"), value)
    found = number.try_cast(spark_type(target))
    if target.kind in (TypeKind.FLOAT, TypeKind.DOUBLE):
        return found
    # Whole numbers may be written as 1000.0 or 1.0E10.
    whole = number.try_cast("decimal(38, 0)").try_cast(spark_type(target))
    return F.when(F.coalesce(found, whole).try_cast("double") == number.try_cast("double"), F.coalesce(found, whole))


def _cast_nested(value: Column, source: DataType, target: DataType) -> Column:
    """Part by part: Spark's own cast of a whole would write and read the parts in its way."""
    match target.kind:
        case TypeKind.ARRAY:
            (have,), (wanted,) = source.elements, target.elements
            return F.transform(value, lambda element: cast(element, have, wanted))
        case TypeKind.MAP:
            pairs = list(zip(source.elements, target.elements, strict=True))
            entries = F.transform(
                F.map_entries(value),
                lambda entry: F.struct(
                    cast(entry["key"], *pairs[0]).alias("key"), cast(entry["value"], *pairs[1]).alias("value")
                ),
            )
            return F.map_from_entries(F.filter(entries, lambda entry: entry["key"].isNotNull()))
        case _:
            fields = zip(source.fields, target.fields, strict=True)
            parts = (cast(value.getField(have.name), have.type, to.type).alias(to.name) for have, to in fields)
            return F.when(value.isNotNull(), F.struct(*parts))


def _text(value: Column, source: DataType) -> Column:
    match source.kind:
        case TypeKind.BOOLEAN:
            return F.when(value, F.lit("TRUE")).when(~value, F.lit("FALSE"))
        case TypeKind.TIMESTAMP | TypeKind.TIMESTAMP_LTZ:
            return F.date_format(value, _timestamp_format(source))
        case TypeKind.TIME:
            pattern = "HH:mm:ss" if not source.precision else f"HH:mm:ss.{'S' * source.precision}"
            return F.date_format(F.timestamp_millis(value.cast("bigint")), pattern)
        case TypeKind.BYTES:
            # Bytes that are no UTF-8 would end the query where a Python worker reads them.
            return F.make_valid_utf8(value.cast("string"))
        case TypeKind.ARRAY | TypeKind.MAP | TypeKind.ROW:
            return _nested_text(value, source)
        case TypeKind.INTERVAL_DAY | TypeKind.INTERVAL_YEAR:
            return _interval_text(value, source)
        case TypeKind.VARIANT:
            text = F.try_variant_get(F.try_parse_json(value), "$", "string")
            return F.when(value.isin("true", "false"), F.upper(value)).otherwise(text)
        case _:
            return value.cast("string")


def _interval_text(value: Column, source: DataType) -> Column:
    """`+1 02:03:04.500` and `+1-02`, as Flink writes them."""
    size = F.abs(value)
    if source.kind is TypeKind.INTERVAL_YEAR:
        parts = [part_of_months(size, unit) for unit in ("YEAR", "MONTH")]
        pattern = "%s%d-%02d"
        negative = value < F.lit(0)
    else:
        parts = [part_of(size, unit) for unit in ("DAY", "HOUR", "MINUTE", "SECOND", "MILLISECOND")]
        pattern = "%s%d %02d:%02d:%02d.%03d"
        negative = value < F.lit(datetime.timedelta(0))
    written = F.format_string(pattern, F.when(negative, F.lit("-")).otherwise(F.lit("+")), *parts)
    return F.when(value.isNotNull(), written)


def _nested_text(value: Column, source: DataType) -> Column:
    """`[1, 2]`, `{a=1, b=2}` and `(1, a)`, as Flink writes them."""
    match source.kind:
        case TypeKind.ARRAY:
            (element,) = source.elements
            texts = F.transform(value, lambda part: _part(part, element))
            return F.concat(F.lit("["), F.array_join(texts, ", "), F.lit("]"))
        case TypeKind.MAP:
            key, mapped = source.elements
            entries = F.transform(
                F.map_entries(value),
                lambda entry: F.concat(_part(entry["key"], key), F.lit("="), _part(entry["value"], mapped)),
            )
            return F.concat(F.lit("{"), F.array_join(entries, ", "), F.lit("}"))
        case _:
            parts = [_part(value.getField(field.name), field.type) for field in source.fields]
            listed = reduce(lambda left, right: F.concat(left, F.lit(", "), right), parts)
            return F.when(value.isNotNull(), F.concat(F.lit("("), listed, F.lit(")")))


def _part(value: Column, source: DataType) -> Column:
    return F.coalesce(_text(value, source), F.lit("NULL"))


def _timestamp_format(source: DataType) -> str:
    digits = _DEFAULT_FRACTION[source.kind] if source.precision is None else min(source.precision, _MICROSECOND_DIGITS)
    return "yyyy-MM-dd HH:mm:ss" + (f".{'S' * digits}" if digits else "")


def _time(value: Column, source: DataType) -> Column:
    """Milliseconds of the day."""
    if source.kind is TypeKind.TIME:
        return value
    if source.kind is TypeKind.STRING:
        value = F.concat(F.lit("1970-01-01 "), value).cast("timestamp")
    return F.pmod(F.unix_millis(value), F.lit(_MILLISECONDS_OF_DAY)).cast("int")


def _to_precision(time: Column, precision: int | None) -> Column:
    if precision is None or precision >= _MICROSECOND_DIGITS:
        return time
    step = 10 ** (_MICROSECOND_DIGITS - precision)
    micros = F.unix_micros(time)
    return F.timestamp_micros(micros - F.pmod(micros, F.lit(step)))
