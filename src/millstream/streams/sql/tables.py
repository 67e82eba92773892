"""Binding of CREATE TABLE: columns, watermark, key and options."""

from __future__ import annotations

from millstream.streams.errors import SqlError
from millstream.streams.plan.tables import ComputedColumn, MetadataColumn, PhysicalColumn, Table, Watermark
from millstream.streams.plan.types import DataType, Field, Schema, TypeKind
from millstream.streams.sql.connectors import Connector, OptionProblem, check_options
from millstream.streams.sql.scalars import Scope, bind_term, nearest
from millstream.streams.sql.script import Script
from millstream.streams.sql.syntax import (
    ColumnDefinition,
    CreateTable,
    IntervalTerm,
    NameTerm,
    Operation,
    WatermarkDefinition,
)

__all__ = ["bind_table"]

_UNSUPPORTED_PHYSICAL = (TypeKind.TIME,)


def bind_table(statement: CreateTable, script: Script) -> Table:
    """The table of a CREATE TABLE. Raises SqlError."""
    connector = _connector(statement, script)
    columns: list[PhysicalColumn | MetadataColumn | ComputedColumn] = []
    seen: set[str] = set()
    for definition in statement.columns:
        if definition.name in seen:
            raise script.error("SQL_SYNTAX", f'Two columns are called "{definition.name}".', definition.span)
        seen.add(definition.name)
        if definition.type is not None:
            columns.append(_stored_column(definition, definition.type, connector, script))
    base = Schema(tuple(Field(column.name, column.type) for column in columns))
    by_name = {column.name: column for column in columns}
    ordered: list[PhysicalColumn | MetadataColumn | ComputedColumn] = []
    for definition in statement.columns:
        if definition.expression is None:
            ordered.append(by_name[definition.name])
        else:
            scope = Scope(script, base, place="a computed column")
            ordered.append(ComputedColumn(definition.name, bind_term(definition.expression, scope)))
    if not any(isinstance(column, PhysicalColumn | MetadataColumn) for column in ordered):
        raise script.error("SQL_SYNTAX", "A table needs at least one column that is stored.", statement.span)
    schema = Schema(tuple(Field(column.name, column.type) for column in ordered))
    watermark = None if statement.watermark is None else _watermark(statement.watermark, schema, script)
    for key in statement.primary_key:
        _find(key, schema, script)
    options = {key: value for key, value, _ in statement.options}
    primary_key = tuple(key.parts[0] for key in statement.primary_key)
    return Table(statement.name, tuple(ordered), options, watermark, primary_key)


def _connector(statement: CreateTable, script: Script) -> Connector:
    places = {key: span for key, _, span in statement.options}
    if len(places) != len(statement.options):
        raise script.error("SQL_OPTION", "An option is given twice.", statement.options[-1][2])
    try:
        connector = check_options({key: value for key, value, _ in statement.options})
    except OptionProblem as problem:
        span = places.get(problem.key, statement.span)
        raise script.error("SQL_OPTION", problem.message, span, remedy=problem.remedy) from None
    if statement.watermark is not None and not connector.reads:
        message = f"A table with the connector '{connector.name}' is only written, so it has no WATERMARK."
        raise script.error("SQL_OPTION", message, statement.watermark.column.span)
    return connector


def _stored_column(
    definition: ColumnDefinition, data_type: DataType, connector: Connector, script: Script
) -> PhysicalColumn | MetadataColumn:
    if data_type.kind in _UNSUPPORTED_PHYSICAL:
        raise script.error("SQL_UNSUPPORTED", f"Columns of type {data_type} are not supported.", definition.span)
    if definition.metadata_key is None:
        return PhysicalColumn(definition.name, data_type)
    key = definition.metadata_key
    known = connector.metadata.get(key)
    if known is None:
        listed = f"Keys: {', '.join(connector.metadata)}." if connector.metadata else "It has none."
        message = f"The connector '{connector.name}' has no metadata '{key}'."
        raise script.error(
            "SQL_OPTION", message, definition.span, remedy=nearest(key, list(connector.metadata)) or listed
        )
    fits = (
        known.kind is data_type.kind
        or (known.is_integer and data_type.is_integer)
        or (known.is_timestamp and data_type.is_timestamp)
    )
    if not fits:
        raise script.error("SQL_TYPE", f"The metadata '{key}' is {known}, not {data_type}.", definition.span)
    if not definition.virtual and connector.name == "rocketmq":
        message = f"The metadata '{key}' can only be read."
        raise script.error("SQL_UNSUPPORTED", message, definition.span, remedy="Add VIRTUAL.")
    return MetadataColumn(definition.name, data_type, key, definition.virtual)


def _find(name: NameTerm, schema: Schema, script: Script) -> Field:
    field = schema.find(name.parts[0])
    if field is None:
        raise _unknown(name, schema, script)
    return field


def _unknown(name: NameTerm, schema: Schema, script: Script) -> SqlError:
    hint = nearest(name.parts[0], schema.names)
    message = f'The table has no column "{name.parts[0]}".'
    return script.error("SQL_UNKNOWN_COLUMN", message, name.span, remedy=hint or None)


def _watermark(definition: WatermarkDefinition, schema: Schema, script: Script) -> Watermark:
    field = _find(definition.column, schema, script)
    if not field.type.is_timestamp:
        message = f'A watermark needs a TIMESTAMP, but "{field.name}" is {field.type}.'
        raise script.error("SQL_TYPE", message, definition.column.span, remedy="Compute one with TO_TIMESTAMP.")
    match definition.expression:
        case NameTerm(parts=(name,)) if name == field.name:
            return Watermark(field.name, 0)
        case Operation(operator="-", operands=(NameTerm(parts=(name,)), IntervalTerm(duration=delay))) if (
            name == field.name and delay is not None and delay.total_seconds() >= 0
        ):
            return Watermark(field.name, round(delay.total_seconds() * 1000))
    bind_term(definition.expression, Scope(script, schema, place="a watermark"))
    message = f'Only "{field.name} - INTERVAL ..." and "{field.name}" are supported as a watermark.'
    raise script.error("SQL_UNSUPPORTED", message, definition.expression.span, remedy="Use a computed column for more.")
