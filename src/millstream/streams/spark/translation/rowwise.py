"""Nodes that produce several rows from one, and literal rows."""

from __future__ import annotations

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from millstream.streams.plan.aggregates import Expand
from millstream.streams.plan.expressions import Call
from millstream.streams.plan.joins import Correlate, JoinKind
from millstream.streams.plan.nodes import Values
from millstream.streams.plan.types import TypeKind
from millstream.streams.spark.columns.rows import EventClock, Rows, expand
from millstream.streams.spark.columns.types import spark_type
from millstream.streams.spark.operators.clocks import END_TICK_US
from millstream.streams.spark.translation.expressions import column_of

__all__ = ["VALUES_NUMBER", "correlated_rows", "expanded_rows", "value_rows"]

VALUES_NUMBER = 999
"""The clock of all rows that stand in the script; sources are numbered from 0, operators from 1,000."""

_ELEMENT, _PLACE = "element", "place"
_WITH_ORDINALITY = "UNNEST_WITH_ORDINALITY"


_END = -1
"""The place of the row that is none and ends event time."""


def expanded_rows(node: Expand, rows: Rows) -> Rows:
    """Each row once per projection."""
    types = [spark_type(field.type) for field in node.schema.fields]
    copies = F.array(
        *(
            F.struct(
                *(
                    column_of(value, rows.columns).cast(of).alias(f"v{place}")
                    for place, (value, of) in enumerate(zip(values, types, strict=True))
                ),
                # Spark has no struct without fields.
                F.lit(number).alias(_PLACE),
            )
            for number, values in enumerate(node.projections)
        )
    )
    names = list(enumerate(node.names))
    found = expand(rows, copies, lambda one: {name: one[f"v{place}"] for place, name in names})
    return found.with_columns({name: found.columns[name] for name in node.names})


def correlated_rows(node: Correlate, rows: Rows) -> Rows:
    """Each row with every element of an array. An element that is NULL is a row of NULLs."""
    # In a struct, an element that is NULL is not taken for none.
    elements = F.transform(
        _array(node.function, rows), lambda one, place: F.struct(one.alias(_ELEMENT), (place + 1).alias(_PLACE))
    )
    inside = _inside(node.function)

    def columns(one: SparkColumn) -> dict[str, SparkColumn]:
        values = [one[_ELEMENT]] if inside is None else [one[_ELEMENT][name] for name in inside]
        if node.function.function == _WITH_ORDINALITY:
            values.append(one[_PLACE].cast("int"))
        return {field.name: value for field, value in zip(node.names, values, strict=True)}

    found = expand(rows, elements, columns, outer=node.kind is JoinKind.LEFT)
    return found.with_columns({name: found.columns[name] for name in node.schema.names})


def _inside(function: Call) -> list[str] | None:
    """The fields of the array's elements; None where an element is one value."""
    element = function.type.elements[0]
    fields = [field.name for field in element.fields]
    if function.function != _WITH_ORDINALITY:
        return fields if element.kind is TypeKind.ROW else None
    argument = function.arguments[0].type
    is_row = argument.kind is TypeKind.MAP or argument.elements[0].kind is TypeKind.ROW
    return fields[:-1] if is_row else None


def _array(function: Call, rows: Rows) -> SparkColumn:
    """The array that the function returns; of a map its entries, under the names of the plan."""
    if function.function not in ("UNNEST", _WITH_ORDINALITY):
        return column_of(function, rows.columns)
    (argument,) = function.arguments
    collection = column_of(argument, rows.columns)
    if argument.type.kind is not TypeKind.MAP:
        return collection
    key, value = (field.name for field in function.type.elements[0].fields[:2])
    return F.transform(F.map_entries(collection), lambda of: F.struct(of["key"].alias(key), of["value"].alias(value)))


def value_rows(node: Values, frame: DataFrame, *, clocked: bool) -> Rows:
    """The rows of `node` over a data frame of one row. Behind them event time is over."""
    fields = node.schema.fields
    types = [spark_type(field.type) for field in fields]

    def struct(number: int, values: tuple[SparkColumn, ...]) -> SparkColumn:
        cast = (value.cast(of).alias(f"v{place}") for place, (value, of) in enumerate(zip(values, types, strict=True)))
        return F.struct(F.lit(number).alias(_PLACE), *cast)

    copies = [struct(number, tuple(column_of(value, {}) for value in row)) for number, row in enumerate(node.rows)]
    copies.append(struct(_END, tuple(F.lit(None) for _ in fields)))
    each = frame.select(F.explode(F.array(*copies)).alias(_ELEMENT))
    element = F.col(_ELEMENT)
    ends = element[_PLACE] == _END
    columns = {field.name: element[f"v{place}"] for place, field in enumerate(fields)}
    nothing = F.lit(None)
    clock = EventClock(
        F.lit(VALUES_NUMBER),
        nothing.cast("string"),
        nothing.cast("bigint"),
        F.when(ends, F.lit(END_TICK_US)),
        frozenset({VALUES_NUMBER}),
    )
    return Rows(each, columns, ~ends, clock=clock if clocked else None)
