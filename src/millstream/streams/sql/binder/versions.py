"""JOIN t FOR SYSTEM_TIME AS OF x: rows looked up now, or the version of a row that was valid at a time."""

from __future__ import annotations

from millstream.streams.connectors.registry import CONNECTORS, connector_of
from millstream.streams.plan.changelog import upsert_key_of
from millstream.streams.plan.conditions import conjunction, conjuncts_of
from millstream.streams.plan.expressions import Column, Expression, is_proctime
from millstream.streams.plan.joins import JoinKind, LookupJoin, LookupSearch, TemporalJoin
from millstream.streams.plan.nodes import Node, Normalize, Scan
from millstream.streams.plan.tables import Table
from millstream.streams.plan.types import Field
from millstream.streams.sql.binder.join_conditions import split_keys
from millstream.streams.sql.binder.lookup_searches import bind_search, equal_columns
from millstream.streams.sql.binder.query_context import QueryContext
from millstream.streams.sql.binder.query_hints import lookup_hints
from millstream.streams.sql.binder.relations import Relation, project, rename_apart, scope_of
from millstream.streams.sql.binder.scalars import bind_condition, bind_term
from millstream.streams.sql.binder.scopes import ScopePart
from millstream.streams.sql.syntax.expressions import Term
from millstream.streams.sql.syntax.queries import TableSource

__all__ = ["join_versions"]


def join_versions(
    left: Relation, table: Node, source: TableSource, kind: JoinKind, on: Term | None, context: QueryContext
) -> Relation:
    """Each row of `left` with the rows of the table as of a time attribute of it. Raises SqlError."""
    script = context.script
    assert source.as_of is not None
    if kind not in (JoinKind.INNER, JoinKind.LEFT) or on is None:
        message = "A join with versions is JOIN or LEFT JOIN, with ON."
        raise script.error("SQL_UNSUPPORTED", message, source.span)
    time = _time(left, source.as_of, context)
    node, new = rename_apart(table, left.node.schema.names)
    qualifier = source.alias.name or source.parts[-1]
    names = source.alias.columns or table.schema.names
    columns = tuple((name, _column(node, new[of])) for name, of in zip(names, table.schema.names, strict=False))
    path = context.full_name(source.parts) if source.alias.name in (None, source.parts[-1]) else ()
    both = Relation(left.node, (*left.parts, ScopePart(qualifier, columns, path=path)))
    conditions = conjuncts_of(bind_condition(on, scope_of(both, script, "ON")))
    if time.proctime:
        join: Node = _lookup(left, table, new, conditions, kind, source, context)
    else:
        join = _temporal(left, node, conditions, kind, time, source, context)
    return both.over(join)


def _column(node: Node, name: str) -> Column:
    field = node.schema.find(name)
    assert field is not None
    return Column(name, field.type)


def _time(left: Relation, as_of: Term, context: QueryContext) -> Field:
    bound = bind_term(as_of, scope_of(left, context.script, "FOR SYSTEM_TIME AS OF"))
    if is_proctime(bound):
        return Field("", bound.type, proctime=True)
    field = left.node.schema.find(bound.name) if isinstance(bound, Column) else None
    if field is None or not field.is_time_attribute:
        known = [of.name for of in left.node.schema.fields if of.is_time_attribute]
        remedy = f"Time attributes here: {', '.join(known)}." if known else "Declare one: p AS PROCTIME()."
        message = "FOR SYSTEM_TIME AS OF takes a time attribute of the other table."
        raise context.script.error("SQL_TIME_ATTRIBUTE", message, as_of.span, remedy=remedy)
    return field


def _lookup(
    left: Relation,
    table: Node,
    new: dict[str, str],
    conditions: list[Expression],
    kind: JoinKind,
    source: TableSource,
    context: QueryContext,
) -> Node:
    script = context.script
    if isinstance(table, Normalize):
        # What is loaded of a topic of upserts is the last row of each key in any case.
        table = table.input
    if not isinstance(table, Scan) or not CONNECTORS[table.table.connector].looks_up:
        what = f"its connector is {table.table.connector}" if isinstance(table, Scan) else "it is no table but a query"
        message = f'"{source.name}" cannot be looked up: {what}.'
        known = [name for name, connector in CONNECTORS.items() if connector.looks_up]
        remedy = f"Connectors that look up: {', '.join(known)}." if known else None
        raise script.error("SQL_UNSUPPORTED", message, source.span, remedy=remedy)
    named = project(table, ((new[of.name], Column(of.name, of.type)) for of in table.schema.fields))
    stored = {new[column.name]: column.name for column in table.table.physical}
    node, plain, apart = equal_columns(left.node, named, stored, conditions)
    search, rest = None, apart
    if not plain:
        node, search, rest = bind_search(node, stored, apart, full_scan=_is_full_scan(table.table))
        _check_search(search, table.table, source, context)
    _check_changes(table.table, source, context)
    qualifier = source.alias.name or source.parts[-1]
    hints = lookup_hints(context, (qualifier, source.parts[-1]))
    columns = tuple((name, of) for of, name in new.items())
    return LookupJoin(node, table.table, kind, plain, columns, conjunction(rest), hints, search)


def _is_full_scan(table: Table) -> bool:
    return table.options.get("lookup.full-scan", "false").lower() == "true"


def _check_search(search: LookupSearch | None, table: Table, source: TableSource, context: QueryContext) -> None:
    """Refuse what finds nothing without looking at all rows, and what only a table that is loaded can find."""
    if search is None:
        message = (
            f'"{source.name}" cannot be looked up: no stored column of it is equal to something, without a cast or '
            "function, nor compared as a range, network or prefix."
        )
        remedy = "Write ON d.id = x.id, or 'lookup.full-scan' = 'true' to compare each row with all of a small table."
        raise context.script.error("SQL_UNSUPPORTED", message, source.span, remedy=remedy)
    if table.options.get("lookup.store", "").lower() == "plain":
        message = f"\"{source.name}\" has no equal column in ON, and 'lookup.store' = 'plain' finds by no others."
        raise context.script.error("SQL_UNSUPPORTED", message, source.span, remedy="Leave that option out.")
    asks = connector_of(table.connector).find("lookup.cache") is not None
    if asks and table.options.get("lookup.cache", "NONE").upper() != "FULL":
        message = f'"{source.name}" has no equal column in ON: other conditions need the table to be loaded as a whole.'
        raise context.script.error("SQL_UNSUPPORTED", message, source.span, remedy="Set 'lookup.cache' = 'FULL'.")


def _check_changes(table: Table, source: TableSource, context: QueryContext) -> None:
    """Refuse a topic of changes that cannot be merged into what is kept of the table."""
    if "lookup.changes.topic" not in table.options:
        return
    if not table.primary_key:
        message = f"\"{source.name}\" has no primary key, by which the rows of 'lookup.changes.topic' replace others."
        remedy = "Declare PRIMARY KEY (...) NOT ENFORCED."
        raise context.script.error("SQL_UNSUPPORTED", message, source.span, remedy=remedy)
    if table.options.get("lookup.store", "").lower() == "plain":
        message = f"\"{source.name}\" has a topic of changes, which 'lookup.store' = 'plain' does not take."
        raise context.script.error("SQL_UNSUPPORTED", message, source.span, remedy="Leave one of them out.")


def _temporal(
    left: Relation,
    right: Node,
    conditions: list[Expression],
    kind: JoinKind,
    time: Field,
    source: TableSource,
    context: QueryContext,
) -> Node:
    script = context.script
    primary = upsert_key_of(right)
    versions = [of.name for of in right.schema.fields if of.rowtime]
    if primary is None or not versions:
        missing = "primary key" if primary is None else "watermark"
        message = f'"{source.name}" has no versions: it has no {missing}.'
        remedy = (
            "Declare PRIMARY KEY (...) NOT ENFORCED and WATERMARK FOR a time, or use FOR SYSTEM_TIME AS OF proctime."
        )
        raise script.error("SQL_UNSUPPORTED", message, source.span, remedy=remedy)
    node, right, keys, rest = split_keys(left.node, right, conditions)
    missing_keys = primary - {other for _, other in keys}
    if missing_keys:
        shown = ", ".join(sorted(missing_keys))
        message = f'The versions of "{source.name}" are found by its whole primary key: {shown} is not in ON.'
        raise script.error("SQL_UNSUPPORTED", message, source.span)
    return TemporalJoin(node, right, kind, keys, time.name, versions[0], conjunction(rest))
