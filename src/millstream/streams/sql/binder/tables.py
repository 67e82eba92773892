"""Binds CREATE TABLE: columns, watermark, keys and options."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass, replace

from millstream.streams.connectors.connector import Connector
from millstream.streams.connectors.options import OptionProblem
from millstream.streams.connectors.registry import connector_of
from millstream.streams.errors import SqlError
from millstream.streams.plan.tables import ComputedColumn, MetadataColumn, PhysicalColumn, Table, Watermark
from millstream.streams.plan.types import DataType, Field, Schema, TypeKind
from millstream.streams.sql.binder.scalars import Scope, bind_term
from millstream.streams.sql.options.option_aliases import METADATA_ALIASES
from millstream.streams.sql.options.option_checks import Accepted, check_options
from millstream.streams.sql.syntax.expressions import CallTerm, IntervalTerm, LiteralTerm, NameTerm, Operation, Term
from millstream.streams.sql.syntax.script import Script, did_you_mean
from millstream.streams.sql.syntax.tables import ColumnDefinition, CreateTable, OptionDefinition, WatermarkDefinition

__all__ = ["BoundTable", "bind_table", "bind_watermark"]


_UNITS_MS = {"SECOND": 1000, "MINUTE": 60_000, "HOUR": 3_600_000, "DAY": 86_400_000, "WEEK": 604_800_000}
_EXAMPLE = "As in WATERMARK FOR ts AS ts - INTERVAL '5' SECOND."


def bind_watermark(definition: WatermarkDefinition, field: Field, schema: Schema, script: Script) -> Watermark:
    """The watermark on `field`, a column of `schema` that is known. Raises SqlError."""
    if not field.type.is_timestamp:
        message = f'A watermark needs a TIMESTAMP, but "{field.name}" is {field.type}.'
        raise script.error("SQL_TYPE", message, definition.column.span, remedy="Compute one with TO_TIMESTAMP.")
    expression = definition.expression
    if isinstance(expression, CallTerm) and expression.name.upper() == "SOURCE_WATERMARK":
        message = "SOURCE_WATERMARK() is not supported: no source here has watermarks of its own."
        raise script.error("SQL_UNSUPPORTED", message, expression.span, remedy=_EXAMPLE)
    shift = _shift(expression, field.name)
    if shift is None and isinstance(expression, CallTerm) and expression.name.upper() == "WITHOFFSET":
        message = f"withOffset takes {field.name} and a whole number of milliseconds."
        raise script.error("SQL_TYPE", message, expression.span)
    if shift is not None and shift <= datetime.timedelta():
        return Watermark(field.name, round(-shift / datetime.timedelta(milliseconds=1)))
    bound = bind_term(expression, Scope(script, schema, place="a watermark"))
    if bound.type.kind not in (TypeKind.TIMESTAMP, TypeKind.TIMESTAMP_LTZ):
        message = f"A watermark is a time, but this is {bound.type}."
        raise script.error("SQL_TYPE", message, expression.span, remedy=_EXAMPLE)
    return replace(Watermark(field.name, 0), expression=bound)


def _shift(term: Term, column: str) -> datetime.timedelta | None:
    """By how much the expression is later than the column; None if it is anything else than the column moved."""
    match term:
        case NameTerm(parts=(name,)):
            return datetime.timedelta() if name == column else None
        case Operation(operator="-" | "+" as operator, operands=(inside, IntervalTerm(duration=duration))):
            moved = _shift(inside, column)
            if moved is None or duration is None:
                return None
            return moved + duration if operator == "+" else moved - duration
        case CallTerm(name=name, arguments=(NameTerm(parts=(of,)), LiteralTerm(value=int(amount)))) if (
            name.upper() == "WITHOFFSET" and of == column
        ):
            return -datetime.timedelta(milliseconds=amount)
        case CallTerm(name="TIMESTAMPADD", arguments=(LiteralTerm(value=str(unit)), amount_term, inside)):
            moved, units = _shift(inside, column), _whole(amount_term)
            if moved is None or units is None or unit not in _UNITS_MS:
                return None
            return moved + datetime.timedelta(milliseconds=units * _UNITS_MS[unit])
        case _:
            return None


def _whole(term: Term) -> int | None:
    match term:
        case LiteralTerm(value=int(value)):
            return value
        case Operation(operator="NEGATE", operands=(LiteralTerm(value=int(value)),)):
            return -value
        case _:
            return None


_NOT_STORED = (TypeKind.INTERVAL_DAY, TypeKind.INTERVAL_YEAR)

_NESTED = (TypeKind.ROW, TypeKind.ARRAY, TypeKind.MAP)

_JSON_FORMATS = ("json", "debezium-json", "canal-json", "maxwell-json", "changelog-json")

_Column = PhysicalColumn | MetadataColumn | ComputedColumn


@dataclass(frozen=True, slots=True)
class BoundTable:
    """A table, and what is to be said about its options."""

    table: Table
    notes: tuple[str, ...]


def bind_table(statement: CreateTable, script: Script, name: str = "") -> BoundTable:
    """The table of a CREATE TABLE (with LIKE resolved), called `name`. Raises SqlError."""
    accepted = _accept_options(statement, script)
    columns = _columns(statement, accepted.connector, script)
    schema = Schema(tuple(Field(column.name, column.type) for column in columns))
    watermark: Watermark | None = None
    if statement.watermark is not None:
        field = _find(statement.watermark.column, schema, script)
        watermark = bind_watermark(statement.watermark, field, schema, script)
    distribution = statement.distribution
    table = Table(
        name or str(statement.path),
        tuple(columns),
        accepted.options,
        watermark,
        _key(statement.primary_key, schema, script),
        _partition_keys(statement.partitions, columns, accepted.connector, script),
        () if distribution is None else _key(distribution.columns, schema, script),
        None if distribution is None else distribution.buckets,
        statement.is_dimension,
        tuple(_key(names, schema, script) for names in statement.unique_keys),
        accepted.connector.reads_upserts,
    )
    _check_columns_of_options(table, statement, accepted.connector, script)
    _check_raw(table, statement, script)
    _check_variants(table, statement, script)
    return BoundTable(_with_key_not_null(table), accepted.notes)


def _check_variants(table: Table, statement: CreateTable, script: Script) -> None:
    """VARIANTs are written as JSON, or shown."""
    connector = connector_of(table.connector)
    is_json = bool(connector.formats) and table.options.get("format", "json").lower() in _JSON_FORMATS
    if is_json or connector.shows_changes:
        return
    for column in table.physical:
        if column.type.holds(TypeKind.VARIANT):
            message = f"Tables with the connector '{table.connector}' hold no {column.type} unless they are of JSON."
            remedy = "Use a STRING, and JSON_STRING(...) of what is written."
            if connector.formats:
                remedy = f"Set 'format' = 'json'. {remedy}"
            raise script.error("SQL_UNSUPPORTED", message, statement.span, remedy=remedy)


def _accept_options(statement: CreateTable, script: Script) -> Accepted:
    places = {option.key: option.span for option in statement.options}
    try:
        accepted = check_options({option.key: option.value for option in statement.options})
    except OptionProblem as problem:
        span = places.get(problem.key, statement.span)
        raise script.error("SQL_OPTION", problem.message, span, remedy=problem.remedy) from None
    connector = accepted.connector
    if statement.watermark is not None and not connector.reads:
        message = f"A table with the connector '{connector.name}' is only written, so it has no WATERMARK."
        raise script.error("SQL_OPTION", message, statement.watermark.column.span)
    if connector.needs_key and not statement.primary_key:
        message = (
            f"A table with the connector '{connector.name}' needs a primary key: the rows of a key replace another."
        )
        raise script.error("SQL_OPTION", message, statement.span, remedy="Add PRIMARY KEY (column) NOT ENFORCED.")
    if statement.is_dimension and not connector.looks_up:
        message = f"PERIOD FOR SYSTEM_TIME is for tables to look up, which '{connector.name}' is not."
        raise script.error("SQL_OPTION", message, statement.span)
    return accepted


def _columns(statement: CreateTable, connector: Connector, script: Script) -> list[_Column]:
    stored: dict[str, _Column] = {}
    seen: set[str] = set()
    for definition in statement.columns:
        if definition.name in seen:
            raise script.error("SQL_SYNTAX", f'Two columns are called "{definition.name}".', definition.span)
        seen.add(definition.name)
        if definition.type is not None:
            stored[definition.name] = _stored_column(definition, definition.type, connector, script)
    if not stored:
        raise script.error("SQL_SYNTAX", "A table needs at least one column that is stored.", statement.span)
    base = Schema(tuple(Field(column.name, column.type) for column in stored.values()))
    scope = Scope(script, base, place="a computed column")
    columns: list[_Column] = []
    for definition in statement.columns:
        if definition.expression is None:
            columns.append(stored[definition.name])
        else:
            columns.append(ComputedColumn(definition.name, bind_term(definition.expression, scope)))
    return columns


def _stored_column(
    definition: ColumnDefinition, data_type: DataType, connector: Connector, script: Script
) -> PhysicalColumn | MetadataColumn:
    if data_type.kind in _NOT_STORED:
        message = f"No connector stores columns of type {data_type}."
        raise script.error("SQL_UNSUPPORTED", message, definition.span, remedy="Store a number and compute with it.")
    if definition.metadata_key is None:
        _check_given(definition, data_type, connector, script)
        return PhysicalColumn(definition.name, data_type)
    key = _metadata_key(definition.metadata_key, connector)
    known = connector.metadata.get(key)
    if known is None:
        listed = f"Keys: {', '.join(connector.metadata)}." if connector.metadata else "It has none."
        message = f"The connector '{connector.name}' has no metadata '{key}'."
        raise script.error(
            "SQL_OPTION", message, definition.span, remedy=did_you_mean(key, list(connector.metadata)) or listed
        )
    if not _fits(known, data_type):
        message = f"The metadata '{key}' is {known}, not {data_type}."
        remedy = f"Declare it as {known}, and convert it in a computed column."
        raise script.error("SQL_TYPE", message, definition.span, remedy=remedy)
    if not definition.virtual and connector.writes and key not in connector.writable_metadata:
        message = f"The metadata '{key}' can only be read."
        raise script.error("SQL_UNSUPPORTED", message, definition.span, remedy="Add VIRTUAL.")
    return MetadataColumn(definition.name, data_type, key, definition.virtual)


def _check_given(definition: ColumnDefinition, data_type: DataType, connector: Connector, script: Script) -> None:
    """Refuse a column that the connector does not have, where it has its own."""
    if not connector.columns:
        return
    known = connector.columns.get(definition.name)
    if known is None:
        message = f"A table with the connector '{connector.name}' has no column \"{definition.name}\"."
        remedy = did_you_mean(definition.name, list(connector.columns)) or f"Columns: {', '.join(connector.columns)}."
        raise script.error("SQL_UNKNOWN_COLUMN", message, definition.span, remedy=remedy)
    if not _fits(known, data_type):
        message = f'The column "{definition.name}" is {known}, not {data_type}.'
        raise script.error("SQL_TYPE", message, definition.span)


def _fits(known: DataType, declared: DataType) -> bool:
    """Whether a column may be declared so that is of a known type."""
    return (
        (known.kind is declared.kind and known.elements == tuple(part.as_nullable() for part in declared.elements))
        or (known.is_integer and declared.is_integer)
        or (known.is_timestamp and declared.is_timestamp)
    )


def _metadata_key(written: str, connector: Connector) -> str:
    """The connector's key for what is written: also under Kafka's names, and in blink's underscores."""
    plain = written.strip("_").replace("_", "-").lower() if written.startswith("__") else written
    return plain if plain in connector.metadata else METADATA_ALIASES.get(plain, written)


def _find(name: NameTerm, schema: Schema, script: Script) -> Field:
    field = schema.find(name.parts[0])
    if field is None:
        raise _unknown(name, schema.names, script)
    return field


def _unknown(name: NameTerm, known: Sequence[str], script: Script) -> SqlError:
    message = f'The table has no column "{name.parts[0]}".'
    return script.error("SQL_UNKNOWN_COLUMN", message, name.span, remedy=did_you_mean(name.parts[0], known) or None)


def _key(names: Sequence[NameTerm], schema: Schema, script: Script) -> tuple[str, ...]:
    """The columns of a key, each once."""
    found: list[str] = []
    for name in names:
        column = _find(name, schema, script).name
        if column in found:
            raise script.error("SQL_SYNTAX", f'"{column}" is named twice.', name.span)
        found.append(column)
    return tuple(found)


_NO_NAMES = (TypeKind.BYTES, TypeKind.ARRAY, TypeKind.MAP, TypeKind.ROW)


def _partition_keys(
    names: Sequence[NameTerm], columns: Sequence[_Column], connector: Connector, script: Script
) -> tuple[str, ...]:
    physical = [column for column in columns if isinstance(column, PhysicalColumn)]
    keys = _key(names, Schema(tuple(Field(column.name, column.type) for column in physical)), script)
    if keys and not connector.overwrites:
        message = f"Tables with the connector '{connector.name}' are not partitioned."
        raise script.error("SQL_UNSUPPORTED", message, names[0].span, remedy="Leave PARTITIONED BY out.")
    if len(keys) == len(physical):
        raise script.error("SQL_SYNTAX", "Not every column can be one of PARTITIONED BY.", names[0].span)
    types = {column.name: column.type for column in physical}
    for name, key in zip(names, keys, strict=True):
        if types[key].kind in _NO_NAMES:
            message = f'"{key}" is {types[key]}, which names no directory.'
            raise script.error("SQL_UNSUPPORTED", message, name.span, remedy="Partition by columns of plain types.")
    return keys


def _with_key_not_null(table: Table) -> Table:
    """Columns of a primary key are never NULL, as in Flink."""
    if not table.primary_key:
        return table
    columns = tuple(
        PhysicalColumn(column.name, column.type.as_nullable(False))
        if isinstance(column, PhysicalColumn) and column.name in table.primary_key
        else column
        for column in table.columns
    )
    return replace(table, columns=columns)


def _check_prefix(table: Table, option: OptionDefinition, script: Script) -> None:
    """A prefix tells the key's columns from the body's, so each has it and none stands in the body, as in Flink."""
    named = [name for name in table.options.get("key.fields", "").split(";") if name] or list(table.primary_key)
    without = next((name for name in named if not name.startswith(option.value)), None)
    if without is not None:
        message = f"\"{without}\" of the key does not begin with '{option.value}'."
        raise script.error("SQL_OPTION", message, option.span)
    if table.options.get("value.fields-include", "ALL").upper() == "ALL":
        message = "With a prefix the key's columns cannot stand in the body too."
        raise script.error("SQL_OPTION", message, option.span, remedy="Add 'value.fields-include' = 'EXCEPT_KEY'.")


def _check_raw(table: Table, statement: CreateTable, script: Script) -> None:
    """The format 'raw' is one plain column: the whole body of a message, or the whole key."""
    upsert = table.upserts
    named = [name for name in table.options.get("key.fields", "").split(";") if name]
    key = list(table.primary_key) if upsert else named
    split = table.options.get("value.fields-include", "ALL").upper() == "EXCEPT_KEY"
    body = [column.name for column in table.physical if not (split and column.name in key)]
    for option, columns in (("key.format", key), ("format", body)):
        if table.options.get(option, "").lower() != "raw":
            continue
        kinds = {column.name: column.type.kind for column in table.physical}
        if len(columns) != 1 or kinds.get(columns[0]) in _NESTED:
            what = "key" if option == "key.format" else "body"
            message = f"The format 'raw' makes one plain column of a message's {what}, but here are {len(columns)}."
            span = next((of.span for of in statement.options if of.value.lower() == "raw"), statement.span)
            raise script.error("SQL_OPTION", message, span, remedy="Use 'json' or 'csv'.")


def _check_columns_of_options(table: Table, statement: CreateTable, connector: Connector, script: Script) -> None:
    """Columns that options name: those of the message's key, and those behind fields.# of generators."""
    physical = [column.name for column in table.physical]
    for option in statement.options:
        named = [] if option.key not in ("key.fields", "sink.key-column") else option.value.split(";")
        known = connector.find(option.key)
        column = None if known is None or known.free_name else known.column_of(option.key)
        for name in named if column is None else [column.split(".")[0]]:
            if name not in physical:
                message = f"'{option.key}' names a column that the table has not: \"{name}\"."
                remedy = did_you_mean(name, physical) or f"Columns: {', '.join(physical)}."
                raise script.error("SQL_OPTION", message, option.span, remedy=remedy)
        if option.key == "key.fields-prefix":
            _check_prefix(table, option, script)
        if option.value.lower() == "sequence" and column is not None and option.key.endswith(".kind"):
            for needed in (f"fields.{column}.start", f"fields.{column}.end"):
                if needed not in table.options:
                    message = f"A sequence needs '{needed}'."
                    raise script.error("SQL_OPTION", message, option.span)
