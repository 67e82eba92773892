"""Arrays, maps and rows. Array positions start at 1; missing elements are NULL."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pyspark.sql import Column
from pyspark.sql import functions as F

from millstream.streams.plan.expressions import Call, Expression, Literal
from millstream.streams.plan.types import DataType, TypeKind
from millstream.streams.spark.columns.casts import cast
from millstream.streams.spark.columns.types import spark_type
from millstream.streams.spark.functions.builder import Builder, null_unless_all
from millstream.streams.spark.functions.documents import variant_item

__all__ = ["COLLECTIONS"]


_LAST_PLACE = 2**31 - 1


def _array(call: Call, columns: Sequence[Column]) -> Column:
    return F.array(*columns) if columns else F.array().cast(spark_type(call.type))


def _map(call: Call, columns: Sequence[Column]) -> Column:
    key, value = call.type.elements
    arguments = call.arguments
    keys = [_as(column, argument, key) for column, argument in zip(columns[::2], arguments[::2], strict=True)]
    values = [_as(column, argument, value) for column, argument in zip(columns[1::2], arguments[1::2], strict=True)]
    entries = [F.struct(k.alias("key"), v.alias("value")) for k, v in zip(keys, values, strict=True)]
    return _of_entries(F.array(*entries)) if entries else F.create_map().cast(spark_type(call.type))


def _as(column: Column, argument: Expression, wanted: DataType) -> Column:
    return cast(column, argument.type, wanted)


def _of_entries(entries: Column) -> Column:
    """The map of entries; Spark ends the query at a key that is NULL."""
    return F.map_from_entries(F.filter(entries, lambda entry: entry["key"].isNotNull()))


def _row(call: Call, columns: Sequence[Column]) -> Column:
    names = (field.name for field in call.type.fields)
    return F.struct(*(column.alias(name) for name, column in zip(names, columns, strict=True)))


def _field(call: Call, columns: Sequence[Column]) -> Column:
    name = call.arguments[1]
    if not isinstance(name, Literal):
        raise ValueError(f"{call} reads a field without naming it")
    return columns[0].getField(str(name.value))


def _item(call: Call, columns: Sequence[Column]) -> Column:
    collection, key = columns
    kind = call.arguments[0].type
    if kind.kind is TypeKind.VARIANT:
        return variant_item(call, columns)
    if kind.kind is TypeKind.MAP:
        return F.try_element_at(collection, _as(key, call.arguments[1], kind.elements[0]))
    return F.when(key.between(1, _LAST_PLACE), F.try_element_at(collection, key.cast("int")))


def _cardinality(_call: Call, columns: Sequence[Column]) -> Column:
    return F.when(columns[0].isNotNull(), F.size(columns[0]))


def _element(_call: Call, columns: Sequence[Column]) -> Column:
    return F.when(F.size(columns[0]) == 1, F.try_element_at(columns[0], F.lit(1)))


def _contains(_call: Call, columns: Sequence[Column]) -> Column:
    array, wanted = columns
    return F.exists(array, lambda element: element.eqNullSafe(wanted))


def _position(_call: Call, columns: Sequence[Column]) -> Column:
    return null_unless_all(columns, F.array_position(*columns))


def _remove(_call: Call, columns: Sequence[Column]) -> Column:
    array, unwanted = columns
    return F.filter(array, lambda element: ~element.eqNullSafe(unwanted))


def _append(_call: Call, columns: Sequence[Column]) -> Column:
    return F.concat(columns[0], F.array(columns[1]))


def _prepend(_call: Call, columns: Sequence[Column]) -> Column:
    return F.concat(F.array(columns[1]), columns[0])


def _join_texts(call: Call, columns: Sequence[Column]) -> Column:
    element = call.arguments[0].type.elements[0]
    texts = F.transform(columns[0], lambda value: cast(value, element, call.type))
    if len(columns) == 2:
        texts = F.filter(texts, lambda text: text.isNotNull())
    else:
        texts = F.transform(texts, lambda text: F.coalesce(text, columns[2]))
    return null_unless_all(columns, F.call_function("array_join", texts, columns[1]))


def _slice(_call: Call, columns: Sequence[Column]) -> Column:
    array, size = columns[0], F.size(columns[0])
    start = _place(columns[1], size)
    end = _place(columns[2], size) if len(columns) > 2 else size
    first, last = F.greatest(start, F.lit(1)), F.least(end, size)
    within = (start <= size) & (end >= 1) & (first <= last)
    length = (last - first + 1).cast("int")
    part = F.slice(array, F.when(within, first.cast("int")).otherwise(1), F.when(within, length).otherwise(0))
    return null_unless_all(columns, part)


def _place(given: Column, size: Column) -> Column:
    """A place from 1 on: 0 is 1, and -1 is the last one."""
    return F.when(given < 0, size + given + 1).when(given == 0, F.lit(1)).otherwise(given)


def _sort_array(_call: Call, columns: Sequence[Column]) -> Column:
    array = columns[0]
    ascending = F.sort_array(array, asc=True)
    descending = F.sort_array(array, asc=False)
    if len(columns) == 1:
        return ascending
    chosen = F.when(columns[1], ascending).when(~columns[1], descending)
    if len(columns) == 2:
        return chosen
    nulls = F.filter(array, lambda element: element.isNull())
    values = F.filter(chosen, lambda element: element.isNotNull())
    moved = F.when(columns[2], F.concat(nulls, values)).when(~columns[2], F.concat(values, nulls))
    return moved


MAX_SERIES = 10_000
"""Numbers that GENERATE_SERIES makes of a row at most; a longer series is NULL."""


def _series(_call: Call, columns: Sequence[Column]) -> Column:
    first, end = (column.cast("bigint") for column in columns[:2])
    step = columns[2].cast("bigint") if len(columns) > 2 else F.lit(1).cast("bigint")
    # In steps that Spark takes: it ends the query at one of 0 or in the wrong direction.
    whole = F.when(step == 0, F.lit(1)).otherwise(step)
    last = end - F.signum(whole).cast("bigint")
    runs = (step > 0) & (first <= last) | (step < 0) & (first >= last)
    size = F.abs(last - first) / F.abs(whole)
    made = F.sequence(first, F.when(runs, last).otherwise(first), F.when(runs, whole).otherwise(F.lit(1)))
    empty = F.array().cast("array<bigint>")
    return F.when((step != 0) & (size < MAX_SERIES), F.when(runs, made).otherwise(empty))


def _from_arrays(_call: Call, columns: Sequence[Column]) -> Column:
    keys, values = columns
    pairs = F.zip_with(keys, values, lambda key, value: F.struct(key.alias("key"), value.alias("value")))
    return F.when(F.size(keys) == F.size(values), _of_entries(pairs))


def _plain(function: Callable[..., Column]) -> Builder:
    return lambda _call, columns: function(*columns)


COLLECTIONS: dict[str, Builder] = {
    "ARRAY": _array,
    "MAP": _map,
    "ROW": _row,
    "FIELD": _field,
    "ITEM": _item,
    "CARDINALITY": _cardinality,
    "ELEMENT": _element,
    "ARRAY_APPEND": _append,
    "ARRAY_PREPEND": _prepend,
    "ARRAY_CONCAT": _plain(F.concat),
    "ARRAY_CONTAINS": _contains,
    "ARRAY_DISTINCT": _plain(F.array_distinct),
    "ARRAY_EXCEPT": _plain(F.array_except),
    "ARRAY_INTERSECT": _plain(F.array_intersect),
    "ARRAY_UNION": _plain(F.array_union),
    "ARRAY_JOIN": _join_texts,
    "ARRAY_MAX": _plain(F.array_max),
    "ARRAY_MIN": _plain(F.array_min),
    "ARRAY_POSITION": _position,
    "ARRAY_REMOVE": _remove,
    "ARRAY_REVERSE": _plain(F.reverse),
    "ARRAY_SLICE": _slice,
    "ARRAY_SORT": _sort_array,
    "GENERATE_SERIES": _series,
    "MAP_KEYS": _plain(F.map_keys),
    "MAP_VALUES": _plain(F.map_values),
    "MAP_ENTRIES": _plain(F.map_entries),
    "MAP_FROM_ARRAYS": _from_arrays,
    "MAP_UNION": _plain(F.map_concat),
}
