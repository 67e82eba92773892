"""Lookup joins in Spark: a stage of Python workers between the columns below and above it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as spark

from millstream.streams.connectors.options import milliseconds, with_environment
from millstream.streams.errors import JobError
from millstream.streams.operators.evaluate import evaluator
from millstream.streams.plan.expressions import Expression, columns_of, conjunction, conjuncts_of
from millstream.streams.plan.joins import JoinKind, LookupJoin
from millstream.streams.plan.tables import ComputedColumn, Table
from millstream.streams.plan.types import Schema
from millstream.streams.spark.columns.rows import KEEP_COLUMN, Rows, settle
from millstream.streams.spark.columns.types import arrow_schema, spark_type
from millstream.streams.spark.lookups.dimension_form import (
    dimension_load,
    given_columns,
    is_dimension,
    probe_places,
)
from millstream.streams.spark.lookups.dimension_stage import DimensionStage, DimensionStep
from millstream.streams.spark.lookups.job_tables import JobTables
from millstream.streams.spark.lookups.lookup_table import LookupSpec
from millstream.streams.spark.lookups.row_conditions import push_conditions
from millstream.streams.spark.lookups.stage import LookupStage, LookupStep
from millstream.streams.spark.translation.expressions import column_of

__all__ = ["looked_up"]

_FOUND = "__found"


def looked_up(node: LookupJoin, rows: Rows, job_id: str, tables: JobTables | None = None) -> Rows:
    """The rows of `node` over those of its input. Raises JobError JOB_FAILED for a table that cannot be looked up.

    `tables` are the job's dimension tables; without them each worker keeps what it looks up.
    """
    spec = _spec(node)
    if tables is not None:
        spec = tables.with_address(spec)
    if tables is not None and is_dimension(node, spec):
        return _found_in_dimension(node, rows, spec, tables)
    if node.search is not None:
        words = f"{node.table.name} cannot be looked up without a column that is equal to something."
        raise JobError("JOB_FAILED", words, remedy="Use it in a job that keeps a checkpoint.")
    names = node.input.schema.names
    below = settle(rows, names, names)
    hidden = {name: f"__found_{name}" for name in spec.schema.names}
    schema = spark.StructType([spark.StructField(of.name, of.dataType) for of in below.rows.frame.schema.fields])
    schema = schema.add(_FOUND, spark.BooleanType())
    for field in spec.fields:
        schema = schema.add(hidden[field.name], spark_type(field.type))
    step = _step(node, spec, schema, job_id)
    copied = below.over(below.rows.frame.mapInArrow(LookupStage(step), schema), [rows])
    return _above(node, copied, hidden, node.condition)


def _above(node: LookupJoin, copied: Rows, hidden: Mapping[str, str], condition: Expression | None) -> Rows:
    """The node's columns over those that the stage gave; an inner join drops the rows that found nothing that fits."""
    stored = {name: F.col(of) for name, of in hidden.items()}
    columns = {**copied.columns, **{name: _column(node.table, of, stored) for name, of in node.columns}}
    found = copied.with_columns(columns)
    if node.kind is not JoinKind.INNER:
        return found
    found = found.where(F.col(_FOUND))
    return found if condition is None else found.where(column_of(condition, columns))


def _found_in_dimension(node: LookupJoin, rows: Rows, spec: LookupSpec, tables: JobTables) -> Rows:
    physical = {column.name for column in node.table.physical}
    of_output = {name: of for name, of in node.columns if of in physical}
    filters, rest = push_conditions(conjuncts_of(node.condition), of_output)
    load = dimension_load(node, spec, filters)
    use = tables.use(load)
    names = node.input.schema.names
    below = settle(rows, names, names)
    given = given_columns(node, spec)
    hidden = {name: f"__found_{name}" for name in given}
    schema = spark.StructType([spark.StructField(of.name, of.dataType) for of in below.rows.frame.schema.fields])
    schema = schema.add(_FOUND, spark.BooleanType())
    types = {field.name: field.type for field in spec.fields}
    for name in given:
        schema = schema.add(hidden[name], spark_type(types[name]))
    condition = conjunction(rest)
    step = DimensionStep(
        use,
        probe_places(node, use.key, schema.names),
        schema.names.index(KEEP_COLUMN),
        given,
        arrow_schema(schema),
    )
    if node.kind is not JoinKind.INNER and condition is not None:
        step = _with_condition(step, node, condition, schema.names, spec.schema)
    copied = below.over(below.rows.frame.mapInArrow(DimensionStage(step), schema), [rows])
    return _above(node, copied, hidden, condition)


def _with_condition(
    step: DimensionStep, node: LookupJoin, condition: Expression, places: Sequence[str], found: Schema
) -> DimensionStep:
    known = set(node.input.schema.names)
    read = tuple(dict.fromkeys(columns_of(condition)))
    mine = tuple(name for name in read if name in known)
    _check(condition, node, mine, found)
    theirs = tuple(name for name in read if name not in known)
    of_output = dict(node.columns)
    return replace(
        step,
        condition=condition,
        names=mine,
        places=tuple(places.index(name) for name in mine),
        read=tuple(of_output[name] for name in theirs),
        found=theirs,
    )


def _spec(node: LookupJoin) -> LookupSpec:
    """What is read of the table: the keys, the columns of the output, and what computed ones are made of."""
    table = node.table
    computed = {column.name: column for column in table.columns if isinstance(column, ComputedColumn)}
    names: dict[str, None] = {}
    searched = () if node.search is None else node.search.columns
    for name in (*(key for _, key in node.keys), *searched, *(of for _, of in node.columns)):
        for read in columns_of(computed[name].expression) if name in computed else (name,):
            names[read] = None
    stored = {column.name: column.type for column in table.physical}
    if not names:
        # Some column tells how many rows there are.
        names[next(iter(stored))] = None
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
