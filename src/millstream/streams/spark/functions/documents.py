"""JSON and VARIANT: parsed in a Python worker, written by Spark's encoder."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F

from millstream.streams.functions.text.json_text import (
    SearchEnd,
    checked_json,
    is_json,
    json_exists,
    json_query,
    json_tuple,
    json_value,
    json_value_state,
    quoted_json,
    unquoted_json,
)
from millstream.streams.plan.expressions import Call, Expression, Literal
from millstream.streams.plan.types import STRING, DataType, TypeKind
from millstream.streams.spark.columns.casts import cast
from millstream.streams.spark.columns.types import spark_type
from millstream.streams.spark.functions.builder import Builder, by_row, literal

__all__ = ["DOCUMENTS", "json_part", "parsed_json", "variant_item"]


_LAST_PLACE: Final = 2**31 - 1
_SPELLED: Final = r"^[^\"'?\\]+$"
"""Members that a path of Spark's can name."""


def parsed_json(_call: Call, columns: Sequence[Column]) -> Column:
    """The text as a VARIANT; NULL if it is no JSON, or has a member twice."""
    return F.to_json(F.try_parse_json(columns[0]))


def variant_item(call: Call, columns: Sequence[Column]) -> Column:
    """The element at a place of an array, or the member of an object; NULL where there is none."""
    value, key = columns
    if call.arguments[1].type.is_integer:
        path = F.concat(F.lit("$["), (key - 1).cast("string"), F.lit("]"))
        return F.when(key.between(1, _LAST_PLACE), _at(value, path))
    named = _at(value, F.concat(F.lit('$["'), key, F.lit('"]')))
    members = F.from_json(value, "map<string,variant>")
    found = F.to_json(F.try_element_at(members, key))
    if isinstance(call.arguments[1], Literal):
        # Spark reads a path that is a constant while it plans.
        text = str(call.arguments[1].value)
        return named if text and not set(text) & set("\"'?\\") else found
    return F.when(key.rlike(_SPELLED), named).when(key.isNotNull(), found)


def _at(value: Column, path: Column) -> Column:
    return F.to_json(F.try_variant_get(F.try_parse_json(value), path, "variant"))


_OWN_FORM = (TypeKind.VARIANT, TypeKind.TIMESTAMP, TypeKind.TIMESTAMP_LTZ, TypeKind.TIME)


def json_part(value: Column, data_type: DataType) -> Column:
    """The value with all its parts so that Spark's `to_json` writes them as Flink does.

    VARIANT, which is carried as a text, becomes Spark's; times become texts of ISO 8601 whose fraction ends with
    its last digit that is not 0 (as those of Java do; those of Spark have a fixed number), with Z for instants.
    """
    if not data_type.holds(*_OWN_FORM):
        return value
    match data_type.kind:
        case TypeKind.VARIANT:
            return F.try_parse_json(value)
        case TypeKind.TIMESTAMP:
            return _iso(value)
        case TypeKind.TIMESTAMP_LTZ:
            return F.concat(_iso(value), F.lit("Z"))
        case TypeKind.TIME:
            return cast(value, data_type, STRING)
        case TypeKind.ARRAY:
            return F.transform(value, lambda one: json_part(one, data_type.elements[0]))
        case TypeKind.MAP:
            return F.transform_values(value, lambda _key, one: json_part(one, data_type.elements[1]))
        case _:
            fields = (json_part(value.getField(of.name), of.type).alias(of.name) for of in data_type.fields)
            return F.when(value.isNotNull(), F.struct(*fields))


def _iso(time: Column) -> Column:
    # Sessions are in UTC; Spark's own text of a time drops zeros at its end.
    return F.translate(time.cast("string"), " ", "T")


_RAW = ("JSON_OBJECT", "JSON_ARRAY", "JSON")
"""Calls whose result is put into a JSON object or array as it is."""

_WRITING = {"ignoreNullFields": "false"}


def _json_value(call: Call, columns: Sequence[Column]) -> Column:
    searched = (*columns[:2], columns[2] if len(columns) > 2 else F.lit("STRING"))
    value = by_row(json_value, "string", *searched).try_cast(spark_type(call.type))
    if len(columns) < 4:
        return value
    state = by_row(json_value_state, "int", *searched)
    on_empty, on_error = (
        cast(column, argument.type, call.type) for column, argument in zip(columns[3:], call.arguments[3:], strict=True)
    )
    chosen = F.when(state == int(SearchEnd.EMPTY), on_empty).when(state == int(SearchEnd.ERROR), on_error)
    return chosen.when(state == int(SearchEnd.VALUE), value)


def _json_query(call: Call, columns: Sequence[Column]) -> Column:
    behind = columns[2:5] or (F.lit("WITHOUT"), F.lit("NULL"), F.lit("NULL"))
    found = by_row(json_query, "string", *columns[:2], *behind)
    # An object is no array of one element, as Spark would read it.
    is_array = F.startswith(found, F.lit("["))
    return F.when(is_array, F.from_json(found, "array<string>")) if call.type.elements else found


def _json_exists(_call: Call, columns: Sequence[Column]) -> Column:
    on_error = columns[2] if len(columns) > 2 else F.lit("FALSE")
    return by_row(json_exists, "boolean", columns[0], columns[1], on_error)


def _write_value(column: Column, value: Expression) -> Column:
    """The value as JSON text, `null` for NULL."""
    if isinstance(value, Call) and value.function in _RAW:
        return F.coalesce(column, F.lit("null"))
    if value.type.kind is TypeKind.NULL:
        return F.lit("null")
    if value.type.kind is TypeKind.VARIANT:
        return F.coalesce(column, F.lit("null"))
    text = F.to_json(F.array(json_part(column, value.type)), _WRITING)
    # An array of one element, without its brackets: Spark writes no values by themselves.
    return F.substring(text, F.lit(2), F.char_length(text) - 2)


def _json_string(call: Call, columns: Sequence[Column]) -> Column:
    return F.when(columns[0].isNotNull(), _write_value(columns[0], call.arguments[0]))


def _json_object(call: Call, columns: Sequence[Column]) -> Column:
    absent = literal(call, 0, str) == "ABSENT"
    parts = []
    for place in range(1, len(columns), 2):
        key, value = columns[place : place + 2]
        pair = F.concat(
            _write_value(key, call.arguments[place]), F.lit(":"), _write_value(value, call.arguments[place + 1])
        )
        there = key.isNotNull() & value.isNotNull() if absent else key.isNotNull()
        parts.append(F.when(there, pair))
    return F.concat(F.lit("{"), _list_parts(parts), F.lit("}"))


def _json_array(call: Call, columns: Sequence[Column]) -> Column:
    absent = literal(call, 0, str) == "ABSENT"
    parts = []
    for column, value in zip(columns[1:], call.arguments[1:], strict=True):
        text = _write_value(column, value)
        parts.append(F.when(column.isNotNull(), text) if absent else text)
    return F.concat(F.lit("["), _list_parts(parts), F.lit("]"))


def _list_parts(parts: list[Column]) -> Column:
    return F.concat_ws(",", *parts) if parts else F.lit("")


def _is_json(_call: Call, columns: Sequence[Column]) -> Column:
    return by_row(is_json, "boolean", *columns, nulls=True)


DOCUMENTS: dict[str, Builder] = {
    "JSON_VALUE": _json_value,
    "JSON_QUERY": _json_query,
    "JSON_TUPLE": lambda _call, columns: by_row(json_tuple, "array<string>", *columns),
    "JSON_EXISTS": _json_exists,
    "IS JSON": _is_json,
    "PARSE_JSON": parsed_json,
    "TRY_PARSE_JSON": parsed_json,
    "JSON_STRING": _json_string,
    "JSON_OBJECT": _json_object,
    "JSON_ARRAY": _json_array,
    "JSON": lambda _call, columns: by_row(checked_json, "string", columns[0]),
    "JSON_QUOTE": lambda _call, columns: by_row(quoted_json, "string", columns[0]),
    "JSON_UNQUOTE": lambda _call, columns: by_row(unquoted_json, "string", columns[0]),
}
