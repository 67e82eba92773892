"""Lookup joins in Spark: a stage of Python workers that asks the table, between the columns below and above it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - Spark's customary name
from pyspark.sql import types as spark

from millstream.streams.errors import JobError
from millstream.streams.operators.evaluate import evaluator
from millstream.streams.plan.expressions import Expression, columns_of
from millstream.streams.plan.joins import JoinKind, LookupJoin
from millstream.streams.plan.tables import ComputedColumn, Table
from millstream.streams.plan.types import Schema
from millstream.streams.spark.copies import KEEP_COLUMN, settled
from millstream.streams.spark.expressions import column_of
from millstream.streams.spark.lookups.lookup_table import LookupSpec
from millstream.streams.spark.lookups.stage import LookupStage, LookupStep
from millstream.streams.spark.rows import Rows
from millstream.streams.spark.types import arrow_schema, spark_type
from millstream.streams.sql.options import milliseconds
from millstream.streams.sql.variables import with_environment

__all__ = ["looked_up"]

_FOUND = "__found"


def looked_up(node: LookupJoin, rows: Rows, job_id: str) -> Rows:
    """The rows of `node` over those of its input. Raises JobError JOB_FAILED for a table that cannot be looked up."""
    names = node.input.schema.names
    below = settled(rows, names, names)
    spec = _spec(node)
    hidden = {name: f"__found_{name}" for name in spec.schema.names}
    schema = spark.StructType([spark.StructField(of.name, of.dataType) for of in below.rows.frame.schema.fields])
    schema = schema.add(_FOUND, spark.BooleanType())
    for field in spec.fields:
        schema = schema.add(hidden[field.name], spark_type(field.type))
    step = _step(node, spec, schema, job_id)
    copied = below.over(below.rows.frame.mapInArrow(LookupStage(step), schema), [rows])
    stored = {name: F.col(of) for name, of in hidden.items()}
    columns = {**copied.columns, **{name: _column(node.table, of, stored) for name, of in node.columns}}
    found = copied.with_columns(columns)
    if node.kind is not JoinKind.INNER:
        return found
    found = found.where(F.col(_FOUND))
    return found if node.condition is None else found.where(column_of(node.condition, columns))


def _spec(node: LookupJoin) -> LookupSpec:
    """What is read of the table: the keys, the columns of the output, and what computed ones are made of."""
    table = node.table
    computed = {column.name: column for column in table.columns if isinstance(column, ComputedColumn)}
    names: dict[str, None] = {}
    for name in (*(key for _, key in node.keys), *(of for _, of in node.columns)):
        for read in columns_of(computed[name].expression) if name in computed else (name,):
            names[read] = None
    stored = {column.name: column.type for column in table.physical}
    for name in names:
        if name not in stored:
            words = f"The column {name} of {table.name} is not stored and cannot be looked up."
            raise JobError("JOB_FAILED", words)
    keys = [key for _, key in node.keys]
    if len(set(keys)) < len(keys):
        words = f"{table.name} cannot be looked up by one column that is equal to several."
        raise JobError("JOB_FAILED", words, remedy="Compare the columns with each other in WHERE.")
    for key in keys:
        if key in computed or stored[key].elements or stored[key].fields:
            words = f"{table.name} cannot be looked up by {key}: a key is a stored column of a plain type."
            raise JobError("JOB_FAILED", words)
    options = with_environment(table.options, f"The table {table.name} cannot be looked up")
    return replace(LookupSpec.of(table, options, tuple(names), keys), hints=_hints(node))


def _hints(node: LookupJoin) -> tuple[tuple[str, str], ...]:
    """The hints, of which those that are read here are legal."""
    for name, is_legal in (
        ("fixed-delay", _is_duration),
        ("max-attempts", str.isdecimal),
    ):
        value = dict(node.hints).get(name)
        if value is not None and not is_legal(value):
            raise JobError("JOB_FAILED", f"'{name}' of a LOOKUP hint cannot be '{value}'.")
    return node.hints


def _is_duration(text: str) -> bool:
    try:
        milliseconds(text)
    except ValueError:
        return False
    return True


def _step(node: LookupJoin, spec: LookupSpec, schema: spark.StructType, job_id: str) -> LookupStep:
    condition = None if node.kind is JoinKind.INNER else node.condition
    mine: tuple[str, ...] = ()
    if condition is not None:
        known = set(node.input.schema.names)
        mine = tuple(dict.fromkeys(name for name in columns_of(condition) if name in known))
        _check(condition, node, mine, spec.schema)
    of_key = {key: name for name, key in node.keys}
    output = {of: name for name, of in node.columns}
    return LookupStep(
        job_id,
        spec,
        tuple(schema.names.index(of_key[key]) for key in spec.keys),
        schema.names.index(KEEP_COLUMN),
        mine,
        tuple(schema.names.index(name) for name in mine),
        tuple(output.get(name, f"__found_{name}") for name in spec.schema.names),
        condition,
        arrow_schema(schema),
    )


def _check(condition: Expression, node: LookupJoin, mine: tuple[str, ...], found: Schema) -> None:
    """A LEFT join's condition is evaluated row by row, over stored columns."""
    output = {name for name, of in node.columns if found.find(of) is not None}
    for name in columns_of(condition):
        if name not in output and name not in mine:
            words = f"The condition of a LEFT lookup join reads {name}, which {node.table.name} does not store."
            raise JobError("JOB_FAILED", words)
    evaluator(condition, {name: place for place, name in enumerate((*mine, *output))})


def _column(table: Table, name: str, stored: Mapping[str, Column]) -> Column:
    computed = next((of for of in table.columns if of.name == name and isinstance(of, ComputedColumn)), None)
    if computed is None:
        return stored[name]
    return F.when(F.col(_FOUND), column_of(computed.expression, stored))
