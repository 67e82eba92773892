"""Binds INSERT: column mapping, accepted change kinds, and EMIT."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from millstream.streams.connectors.registry import CONNECTORS, connector_of
from millstream.streams.functions.casting import at_length, keeps_length, same_shape
from millstream.streams.optimizer.prune_columns import prune_columns
from millstream.streams.plan.aggregates import Aggregate, WindowAggregate
from millstream.streams.plan.changelog import CHANGELOG_FORMATS, ChangelogMode, changelog_of, upsert_key_of
from millstream.streams.plan.expressions import Call, Cast, Column, Expression, Literal
from millstream.streams.plan.joins import Join, SetOperation, TemporalJoin
from millstream.streams.plan.nodes import (
    Filter,
    Node,
    Normalize,
    OnConflict,
    OnePerKey,
    Project,
    Scan,
    Sink,
    WindowRows,
    inputs_of,
    with_inputs,
)
from millstream.streams.plan.ordering import Over, Rank, Sort
from millstream.streams.plan.patterns import Match
from millstream.streams.plan.tables import Table
from millstream.streams.plan.types import BOOLEAN, DataType, Schema, TypeKind
from millstream.streams.plan.windows import Attached, Emit, Session
from millstream.streams.sql.binder.scalars import Scope, bind_term, convert_type
from millstream.streams.sql.syntax.queries import item_span
from millstream.streams.sql.syntax.script import Script, Span, did_you_mean
from millstream.streams.sql.syntax.statements import Insert

__all__ = [
    "bind_insert",
    "check_changes",
    "check_conflicts",
    "one_per_key",
    "takes_upserts",
    "with_emit",
    "without_emit",
]


def with_emit(node: Node, emit: Emit) -> Node:
    """The same plan, in which windows speak as `emit` says, as far as their rows may change.

    Sessions speak at their end only, and so do windows under what needs final rows: other windows, OVER, patterns,
    joins in time and places in a window.
    """
    match node:
        case WindowAggregate(window=Session() | Attached()) | Over() | Match() | TemporalJoin() | WindowRows():
            return node
        case WindowAggregate():
            return replace(node, emit=emit)
        case Rank() if node.window_end is not None:
            return node
        case Join() if node.bounds is not None or node.window_ends is not None:
            return node
    inputs = inputs_of(node)
    return with_inputs(node, tuple(with_emit(below, emit) for below in inputs)) if inputs else node


def check_changes(table: Table, node: Node, span: Span, script: Script) -> None:
    """Refuse a query whose rows change where the table only takes new rows.

    `node` has the columns of `table.writable` by name. EMIT asks for rows that come again, so those are taken by any
    table. Raises SQL_UNSUPPORTED.
    """
    emitting = without_emit(node)
    if changelog_of(emitting) is ChangelogMode.APPEND or _takes_changes(table):
        return
    cause = _cause(emitting)
    message = (
        f'Rows of this query change ({_clause_of(cause)}), but "{table.name}" ({table.connector}) only takes new rows.'
    )
    raise script.error("SQL_UNSUPPORTED", message, span, remedy=_ways_out(table, cause))


def takes_upserts(table: Table) -> bool:
    """Whether the table holds the last row of each value of its primary key."""
    connector = connector_of(table.connector)
    return connector.upserts and (connector.needs_key or bool(table.primary_key))


def _takes_changes(table: Table) -> bool:
    if connector_of(table.connector).shows_changes or takes_upserts(table):
        return True
    return any(table.options.get(option, "") in CHANGELOG_FORMATS for option in ("format", "value.format"))


def without_emit(node: Node) -> Node:
    """The query as if its windows told their rows once, at their ends."""
    inputs = inputs_of(node)
    below = with_inputs(node, tuple(map(without_emit, inputs))) if inputs else node
    return replace(below, emit=None) if isinstance(below, WindowAggregate) else below


def _cause(node: Node) -> Node:
    """The lowest node whose rows change though those below it do not."""
    changing = [below for below in inputs_of(node) if changelog_of(below) is ChangelogMode.RETRACT]
    return _cause(changing[0]) if changing else node


def _clause_of(node: Node) -> str:
    """What the user wrote for the node."""
    match node:
        case Aggregate(keys=keys, aggregates=aggregates):
            if not aggregates:
                return "DISTINCT rows"
            names = ", ".join(name for name, _ in keys)
            return f"GROUP BY {names} without a window" if keys else "an aggregate of all rows"
        case Join(kind=kind):
            return f"{kind.value} JOIN"
        case Rank(function=function):
            return f"{function}() with a filter"
        case SetOperation(kind=kind):
            return kind.value
        case Sort():
            return "ORDER BY with LIMIT"
        case Over():
            return "OVER by a time without a watermark"
        case Scan(table=table):
            return f"{table.name} is a table of changes"
        case Normalize(input=Scan(table=table)):
            return f"{table.name} is a table of upserts"
        case _:
            return type(node).__name__


def _ways_out(table: Table, cause: Node) -> str:
    ways = ["write to an upsert-rocketmq table with a PRIMARY KEY"]
    connector = connector_of(table.connector)
    if not CHANGELOG_FORMATS.isdisjoint(connector.formats):
        ways.append("choose a format of changes such as 'debezium-json'")
    if connector.upserts:
        ways = ["declare a PRIMARY KEY for the table"]
    if isinstance(cause, Aggregate):
        ways.append("group by a window, whose rows are final")
    if isinstance(cause, Join):
        ways.append("bound the times of both sides, so that the join's rows are final")
    ways.append("tell each change as a row of its own by TO_CHANGELOG(TABLE ...)")
    words = ", or ".join(ways)
    return f"{words[0].upper()}{words[1:]}."


def check_conflicts(insert: Insert, table: Table, node: Node, told: frozenset[str] | None, script: Script) -> None:
    """Refuse ON CONFLICT where there is none, and a query without it whose rows are told apart by other columns alone.

    `told` are the columns that tell the rows of `node` apart; None: unknown. Raises SQL_UNSUPPORTED.
    """
    changes = changelog_of(without_emit(node)) is not ChangelogMode.APPEND
    if insert.on_conflict is not None:
        _check_clause(insert, table, changes, script)
    elif changes and table.primary_key and told and told.isdisjoint(table.primary_key):
        ours, theirs = ", ".join(table.primary_key), ", ".join(sorted(told))
        message = (
            f'The primary key of "{table.name}" ({ours}) does not tell the rows of this query apart ({theirs} does).'
        )
        remedy = f"Declare PRIMARY KEY ({theirs}) NOT ENFORCED, group by {ours}, or add ON CONFLICT DO DEDUPLICATE."
        raise script.error("SQL_UNSUPPORTED", message, insert.span, remedy=remedy)


def _check_clause(insert: Insert, table: Table, changes: bool, script: Script) -> None:
    if not takes_upserts(table):
        message = f'ON CONFLICT is for tables that are updated by a PRIMARY KEY, and "{table.name}" is not.'
        raise script.error("SQL_UNSUPPORTED", message, insert.span, remedy="Leave it out.")
    if not changes:
        message = f'Rows of this query never change, so that the last one of each key counts in "{table.name}".'
        remedy = "Leave ON CONFLICT out, or keep the first row of each key by QUALIFY ROW_NUMBER() OVER (...) = 1."
        raise script.error("SQL_UNSUPPORTED", message, insert.span, remedy=remedy)


def one_per_key(
    node: Node,
    table: Table,
    told: frozenset[str] | None,
    on_conflict: OnConflict | None,
    settings: Mapping[str, str],
) -> Node:
    """`node` with one row for each primary key of the table, where rows that `told` tells apart may fall on it.

    Without ON CONFLICT the last one counts, as in Flink; a batch job's rows come once, the last replaces those before.
    """
    materialize = settings.get("table.exec.sink.upsert-materialize", "auto").lower()
    if not takes_upserts(table) or changelog_of(without_emit(node)) is ChangelogMode.APPEND:
        return node
    apart = told is not None and told <= set(table.primary_key)
    batch = settings.get("execution.runtime-mode", "streaming").lower() == "batch"
    needless = apart or (on_conflict is None and (batch or materialize == "none"))
    return (
        node
        if needless and materialize != "force"
        else OnePerKey(node, table.primary_key, on_conflict or OnConflict.LAST)
    )


_SURE = BOOLEAN.as_nullable(False)


def bind_insert(insert: Insert, table: Table, node: Node, settings: Mapping[str, str], script: Script) -> Sink:
    """The sink that gets the rows of `node`, the query of the INSERT. Raises SqlError."""
    connector = CONNECTORS[table.connector]
    if not connector.writes:
        message = f'The table "{table.name}" cannot be written: its connector is {table.connector}.'
        raise script.error("SQL_UNSUPPORTED", message, insert.span)
    if insert.overwrites:
        _check_overwrite(insert, table, settings, script)
    fixed = _fixed_values_of(insert, table, script)
    wanted = _targets(insert, table, fixed, script)
    given = node.schema.fields
    if len(given) != len(wanted):
        targets = ", ".join(name for name, _ in wanted)
        message = f'The query has {len(given)} columns, but "{table.name}" takes {len(wanted)}: {targets}.'
        raise script.error("SQL_TYPE", message, insert.query.span)
    columns: dict[str, Expression] = dict(fixed)
    for place, ((name, data_type), source) in enumerate(zip(wanted, given, strict=True)):
        _check_fit(name, data_type, source.type, table, item_span(insert.query, place), script)
        columns[name] = convert_type(Column(source.name, source.type), data_type)
    ordered = tuple(
        (column.name, columns.get(column.name, Literal(None, column.type.as_nullable()))) for column in table.writable
    )
    if settings.get("table.exec.sink.not-null-enforcer", "error").lower() == "drop":
        node = _without_nulls(node, table, columns)
    unsized = prune_columns(Project(node, ordered))
    if not _is_batch(settings):
        check_changes(table, unsized, insert.span, script)
    upsert_key = upsert_key_of(unsized)
    if insert.on_conflict is not None or not _is_batch(settings):
        check_conflicts(insert, table, unsized, upsert_key, script)
    declared = settings.get("table.exec.sink.type-length-enforcer", "ignore").lower() != "trim_pad"
    sized = tuple(
        (
            column.name,
            value if _is_sized(value, column.type, node) else _at_length(value, column.type, declared=declared),
        )
        for column, (_, value) in zip(table.writable, ordered, strict=True)
    )
    rows = one_per_key(prune_columns(Project(node, sized)), table, upsert_key, insert.on_conflict, settings)
    return Sink(table, rows, insert.overwrites, tuple(fixed))


def _is_sized(value: Expression, wanted: DataType, node: Node) -> bool:
    """Whether a column is a constant of the query that has its length: what optimizers look for stays as it is."""
    if not isinstance(value, Column) or not isinstance(node, Project):
        return False
    constant = dict(node.columns).get(value.name)
    text = constant.value if isinstance(constant, Literal) else None
    return isinstance(text, str) and at_length(text, wanted) == text


def _at_length(value: Expression, wanted: DataType, *, declared: bool) -> Expression:
    """A text or bytes at the length of its column; with `declared` what a type says of its values is believed."""
    is_cast = isinstance(value, Cast) and value.type.as_nullable() == wanted.as_nullable()
    if not wanted.is_sized or is_cast or (declared and keeps_length(value.type, wanted)):
        return value
    match value:
        case Literal(value=str() as constant):
            return Literal(at_length(constant, wanted), wanted)
        case Literal(value=bytes() as constant):
            return Literal(at_length(constant, wanted), wanted)
        case _:
            return Cast(value, wanted.as_nullable(value.type.nullable))


def _without_nulls(node: Node, table: Table, columns: Mapping[str, Expression]) -> Node:
    """The rows that have a value for each column of the table that is never NULL."""
    never = [column.name for column in table.writable if not column.type.nullable and column.name in columns]
    conditions = tuple(Call("IS NOT NULL", (columns[name],), _SURE) for name in never if columns[name].type.nullable)
    if not conditions:
        return node
    return Filter(node, conditions[0] if len(conditions) == 1 else Call("AND", conditions, _SURE))


def _is_batch(settings: Mapping[str, str]) -> bool:
    return settings.get("execution.runtime-mode", "streaming").lower() == "batch"


def _check_overwrite(insert: Insert, table: Table, settings: Mapping[str, str], script: Script) -> None:
    if not CONNECTORS[table.connector].overwrites:
        message = f"Tables with the connector '{table.connector}' cannot be overwritten."
        raise script.error("SQL_UNSUPPORTED", message, insert.span, remedy="Use INSERT INTO.")
    if not _is_batch(settings):
        message = "INSERT OVERWRITE needs a job that ends: a stream never has all rows of a table."
        raise script.error(
            "SQL_UNSUPPORTED", message, insert.span, remedy="SET 'execution.runtime-mode' = 'batch' first."
        )


def _fixed_values_of(insert: Insert, table: Table, script: Script) -> dict[str, Expression]:
    """The columns whose values PARTITION (...) gives."""
    fixed: dict[str, Expression] = {}
    types = {column.name: column.type for column in table.physical}
    for part in insert.partition:
        name = part.column.parts[0]
        if name not in table.partition_keys:
            known = f"They are {', '.join(table.partition_keys)}." if table.partition_keys else "It has none."
            message = f'"{name}" is none of the columns by which "{table.name}" is partitioned.'
            raise script.error("SQL_UNKNOWN_COLUMN", message, part.column.span, remedy=known)
        if part.value is not None:
            value = bind_term(part.value, Scope(script, Schema(()), place="PARTITION"))
            _check_fit(name, types[name], value.type, table, part.value.span, script)
            fixed[name] = convert_type(value, types[name])
    return fixed


def _targets(
    insert: Insert, table: Table, fixed: Mapping[str, Expression], script: Script
) -> list[tuple[str, DataType]]:
    """The columns that the query fills, in its order."""
    writable = {column.name: column.type for column in table.writable if column.name not in fixed}
    if not insert.columns:
        return list(writable.items())
    named: list[str] = []
    for term in insert.columns:
        name = term.parts[0]
        if name not in writable:
            message = f'"{table.name}" has no column "{name}" to write.'
            remedy = did_you_mean(name, list(writable)) or f"Columns: {', '.join(writable)}."
            raise script.error("SQL_UNKNOWN_COLUMN", message, term.span, remedy=remedy)
        if name in named:
            raise script.error("SQL_SYNTAX", f'"{name}" is named twice.', term.span)
        named.append(name)
    for name, data_type in writable.items():
        if name not in named and not data_type.nullable:
            message = f'"{name}" of "{table.name}" is never NULL, so the INSERT has to name it.'
            raise script.error("SQL_TYPE", message, insert.columns[0].span)
    return [(name, writable[name]) for name in named]


def _check_fit(name: str, wanted: DataType, given: DataType, table: Table, span: Span, script: Script) -> None:
    """What is cast on the way into a sink: numbers among numbers, times among times, NULL, as Flink does it.

    Plain values become text as well, since columns without a type (rsqldb) are STRING.
    """
    plain = given.is_number or given.is_timestamp or given.kind in (TypeKind.BOOLEAN, TypeKind.DATE, TypeKind.TIME)
    fits = (
        same_shape(given, wanted)
        or given.kind is TypeKind.NULL
        or (given.is_number and wanted.is_number)
        or (given.is_timestamp and wanted.is_timestamp)
        or (plain and wanted.kind is TypeKind.STRING)
    )
    if not fits:
        message = f'"{name}" of "{table.name}" is {wanted}, but the query gives {given}.'
        raise script.error("SQL_TYPE", message, span, remedy=f"Use CAST(... AS {wanted.as_nullable()}).")
