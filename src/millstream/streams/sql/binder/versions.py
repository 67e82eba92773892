"""Binds JOIN t FOR SYSTEM_TIME AS OF x: lookup joins and temporal joins."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from millstream.streams.connectors.registry import CONNECTORS, connector_of
from millstream.streams.functions.casting import common_type
from millstream.streams.plan.changelog import upsert_key_of
from millstream.streams.plan.expressions import (
    Call,
    Cast,
    Column,
    Expression,
    columns_of,
    conjunction,
    conjuncts_of,
    is_proctime,
)
from millstream.streams.plan.joins import JoinKind, LookupJoin, LookupSearch, SearchKind, TemporalJoin
from millstream.streams.plan.nodes import Node, Normalize, Scan
from millstream.streams.plan.tables import Table
from millstream.streams.plan.types import Field
from millstream.streams.sql.binder.join_conditions import equal_pair, split_keys
from millstream.streams.sql.binder.query_context import QueryContext, lookup_hints
from millstream.streams.sql.binder.relations import Relation, as_column, project, rename_apart, scope_of
from millstream.streams.sql.binder.scalars import bind_condition, bind_term, convert_type
from millstream.streams.sql.binder.scopes import ScopePart
from millstream.streams.sql.syntax.expressions import Term
from millstream.streams.sql.syntax.queries import TableSource

__all__ = ["bind_search", "equal_columns", "join_versions"]


_TURNED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
_CONTAINED = {"CIDR_MATCH": SearchKind.NETWORK, "STARTSWITH": SearchKind.PREFIX}


@dataclass(frozen=True, slots=True)
class _Bound:
    """`value` `operator` the table's column; `of` is the condition that says so."""

    value: Expression
    operator: str
    column: Column
    of: Expression


def equal_columns(
    left: Node, right: Node, stored: Mapping[str, str], conditions: Sequence[Expression]
) -> tuple[Node, tuple[tuple[str, str], ...], list[Expression]]:
    """`left` with a column for each value that a stored column of the table equals, these pairs, and the others.

    `stored` are the table's columns by their names on the right. Whole numbers of another width are equal as they are.
    """
    keys: dict[tuple[str, str], None] = {}
    rest: list[Expression] = []
    for condition in conditions:
        value, column = equal_pair(condition, left, right) or (condition, condition)
        if isinstance(column, Cast) and column.type.is_integer and column.operand.type.is_integer:
            column = column.operand
        if isinstance(column, Column) and column.name in stored and value is not condition:
            left, mine = as_column(left, value, "left_key", right.schema.names)
            keys[mine, stored[column.name]] = None
        else:
            rest.append(condition)
    return left, tuple(keys), rest


def bind_search(
    left: Node, stored: Mapping[str, str], conditions: Sequence[Expression], *, full_scan: bool = False
) -> tuple[Node, LookupSearch | None, list[Expression]]:
    """`left` with a column for what is searched, the search that serves the conditions, and those it does not serve.

    `stored` are the table's columns by their names in the conditions. Networks and prefixes come before ranges; where
    nothing serves there is a `full_scan`, or None.
    """
    ours = set(left.schema.names)
    for condition in conditions:
        found = _find_containment(condition, ours, stored)
        if found is not None:
            kind, value, column = found
            left, probe = as_column(left, value, "lookup_probe")
            rest = [other for other in conditions if other is not condition]
            return left, LookupSearch(kind, (stored[column.name],), probe), rest
    between = _range(conditions, ours, stored)
    if between is not None:
        start, end = between
        left, probe = as_column(left, start.value, "lookup_probe")
        columns = stored[start.column.name], stored[end.column.name]
        search = LookupSearch(SearchKind.RANGE, columns, probe, end_included=end.operator == "<=")
        # An index holds the start of each range; a comparison that does not is looked at again.
        served = [end.of] if start.operator == ">" and start.of is not end.of else [start.of, end.of]
        return left, search, [other for other in conditions if not any(other is one for one in served)]
    return left, LookupSearch(SearchKind.ALL) if full_scan else None, list(conditions)


def _find_containment(
    condition: Expression, ours: set[str], stored: Mapping[str, str]
) -> tuple[SearchKind, Expression, Column] | None:
    if not isinstance(condition, Call) or condition.function not in _CONTAINED or len(condition.arguments) != 2:
        return None
    value, column = condition.arguments
    if isinstance(column, Column) and column.name in stored and _is_of(value, ours):
        return _CONTAINED[condition.function], value, column
    return None


def _range(conditions: Sequence[Expression], ours: set[str], stored: Mapping[str, str]) -> tuple[_Bound, _Bound] | None:
    """The first value that has a column of the table below it and one above it."""
    bounds = [bound for condition in conditions for bound in _bounds(condition, ours, stored)]
    for start in bounds:
        for end in bounds:
            if start.operator in (">", ">=") and end.operator in ("<", "<=") and start.value == end.value:
                return start, end
    return None


def _bounds(condition: Expression, ours: set[str], stored: Mapping[str, str]) -> Iterator[_Bound]:
    if not isinstance(condition, Call):
        return
    pairs: list[tuple[Expression, str, Expression]] = []
    if condition.function == "BETWEEN":
        value, low, high = condition.arguments
        pairs = [(value, ">=", low), (value, "<=", high)]
    elif condition.function in _TURNED:
        first, second = condition.arguments
        pairs = [(first, condition.function, second), (second, _TURNED[condition.function], first)]
    for value, operator, column in pairs:
        if isinstance(column, Column) and column.name in stored and _is_of(value, ours):
            wanted = common_type((value.type, column.type))
            if wanted.as_nullable() == column.type.as_nullable():
                yield _Bound(convert_type(value, wanted), operator, column, condition)


def _is_of(value: Expression, ours: set[str]) -> bool:
    read = set(columns_of(value))
    return bool(read) and read <= ours


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
