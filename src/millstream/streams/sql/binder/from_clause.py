"""Binds FROM: tables, sub-queries, windows, and joins.

TO_CHANGELOG and FROM_CHANGELOG bound: the column of codes, and which kind of change each of them is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from millstream.streams.plan.changelog import ChangelogMode, RowKind, changelog_of
from millstream.streams.plan.expressions import Call, Column, Expression, conjuncts_of
from millstream.streams.plan.joins import JoinKind
from millstream.streams.plan.nodes import FromChangelog, Node, Normalize, Scan, ToChangelog, Values
from millstream.streams.plan.tables import Table
from millstream.streams.plan.types import Schema, TypeKind
from millstream.streams.sql.binder.join_conditions import join_nodes
from millstream.streams.sql.binder.matches import bind_match
from millstream.streams.sql.binder.models import bind_prediction
from millstream.streams.sql.binder.query_context import QueryContext, SidesWithAnswers, state_ttl_ms, with_options
from millstream.streams.sql.binder.relations import Relation, rename_apart, rename_columns, scope_of
from millstream.streams.sql.binder.scalars import bind_condition, bind_term
from millstream.streams.sql.binder.scopes import Scope, ScopePart, column_of_name
from millstream.streams.sql.binder.subqueries.laterals import join_table_function
from millstream.streams.sql.binder.versions import join_versions
from millstream.streams.sql.binder.windows.window_functions import window_relation
from millstream.streams.sql.parser.names import path_text
from millstream.streams.sql.syntax.expressions import NameTerm, Operation, StarTerm
from millstream.streams.sql.syntax.queries import (
    Alias,
    ChangelogSource,
    FilteredSource,
    FunctionSource,
    JoinSource,
    LateralSource,
    MatchSource,
    PredictionSource,
    Select,
    Source,
    SubquerySource,
    TableSource,
    WindowSource,
)
from millstream.streams.sql.syntax.script import Script, Span, did_you_mean
from millstream.streams.sql.syntax.terms import conjunction_of_terms, conjuncts_of_term, queries_of

__all__ = ["bind_source", "convert_changes", "table_names"]

_OP = "op"


def convert_changes(source: ChangelogSource, node: Node, script: Script) -> Node:
    """The rows of the call over `node`, the rows of its table. Raises SqlError."""
    names = node.schema.names
    for term in source.partition:
        if term.parts[0] not in names:
            raise _no_column(term.parts[0], names, term.span, script)
    first = tuple(term.parts[0] for term in source.partition)
    op = _OP if source.op is None else source.op.parts[0]
    span = source.span if source.op is None else source.op.span
    if source.function == "TO_CHANGELOG":
        if op in names:
            message = f'The table of TO_CHANGELOG has a column "{op}" already.'
            remedy = "Name the column of codes otherwise: op => DESCRIPTOR(kind)."
            raise script.error("SQL_TYPE", message, span, remedy=remedy)
        return ToChangelog(node, op, _codes(source, script), first)
    field = node.schema.find(op)
    if field is None:
        raise _no_column(op, names, span, script)
    if field.type.kind is not TypeKind.STRING:
        message = f'The codes of changes are texts, but "{op}" is {field.type}.'
        raise script.error("SQL_TYPE", message, span, remedy="Take CAST(... AS STRING) of it in a sub-query.")
    if op in first:
        message = f'"{op}" says what a change is, so it cannot be a key as well.'
        raise script.error("SQL_TYPE", message, span)
    return _changes(source, node, op, first, script)


def _codes(source: ChangelogSource, script: Script) -> tuple[tuple[int, str], ...]:
    """The code of each kind, by its number; one key of the map may name several kinds, joined by commas."""
    if not source.mapping:
        return tuple((kind.value, kind.name) for kind in RowKind)
    found: dict[int, str] = {}
    for kinds, code, span in source.mapping:
        for name in kinds.split(","):
            kind = _kind(name.strip(), span, script)
            if kind.value in found:
                raise script.error("SQL_TYPE", f"{kind.name} has two codes.", span)
            found[kind.value] = code
    return tuple(sorted(found.items()))


def _changes(source: ChangelogSource, node: Node, op: str, first: tuple[str, ...], script: Script) -> Node:
    """Rows as changes; where updates come without the row before, the last row of each key counts."""
    if changelog_of(node) is not ChangelogMode.APPEND:
        message = "FROM_CHANGELOG takes a table of new rows, but the rows of this one change already."
        raise script.error("SQL_UNSUPPORTED", message, source.span, remedy="Use the table as it is.")
    kinds: dict[str, RowKind] = {}
    for codes, name, span in source.mapping:
        kind = _kind(name, span, script)
        if kind in kinds.values():
            message = f"{kind.name} stands twice in the map."
            raise script.error("SQL_TYPE", message, span, remedy=f"Join the codes: MAP['c, r', '{kind.name}'].")
        for code in map(str.strip, codes.split(",")):
            if code in kinds:
                raise script.error("SQL_TYPE", f"The code '{code}' stands twice in the map.", span)
            kinds[code] = kind
    kinds = kinds or {kind.name: kind for kind in RowKind}
    pairs = tuple((code, kind.value) for code, kind in kinds.items())
    changes = FromChangelog(node, op, pairs, first, fails=not source.skips)
    row_kinds = set(kinds.values())
    if RowKind.UPDATE_BEFORE in row_kinds or RowKind.UPDATE_AFTER not in row_kinds:
        return changes
    if not first:
        message = "Updates without the row before (UPDATE_BEFORE) need a key that says which row they replace."
        remedy = "Name it: input => TABLE t PARTITION BY key; or give UPDATE_BEFORE a code."
        raise script.error("SQL_TYPE", message, source.span, remedy=remedy)
    return Normalize(changes, first)


def _kind(name: str, span: Span, script: Script) -> RowKind:
    if name not in RowKind.__members__:
        listed = ", ".join(RowKind.__members__)
        message = f"'{name}' is no kind of change."
        raise script.error(
            "SQL_TYPE", message, span, remedy=did_you_mean(name, list(RowKind.__members__)) or f"They are {listed}."
        )
    return RowKind[name]


def _no_column(name: str, names: tuple[str, ...], span: Span, script: Script) -> Exception:
    message = f'There is no column "{name}" in ({", ".join(names)}).'
    return script.error("SQL_UNKNOWN_COLUMN", message, span, remedy=did_you_mean(name, list(names)) or None)


def bind_source(source: Source, context: QueryContext) -> Relation:
    """The rows of FROM with their parts. Raises SqlError."""
    match source:
        case TableSource():
            if source.as_of is not None:
                message = "FOR SYSTEM_TIME AS OF stands behind JOIN: versions are found for the rows of another table."
                remedy = "To read a topic from a time on, set 'scan.startup.mode' = 'timestamp' in OPTIONS(...)."
                raise context.script.error("SQL_UNSUPPORTED", message, source.span, remedy=remedy)
            return _bind_named(source, context)
        case SubquerySource():
            return _subquery(source, context)
        case LateralSource():
            return _subquery(SubquerySource(source.query, source.span, source.alias), context)
        case WindowSource():
            return _window(source, context)
        case PredictionSource():
            return _prediction(source, context)
        case ChangelogSource():
            return _bind_changelog(source, context)
        case MatchSource():
            matches = bind_match(source, bind_source(source.table, context).node, context.script)
            return _apply_alias(matches, source.alias, None, source.span, context.script)
        case FilteredSource():
            return context.where(source.where, bind_source(source.source, context), context)
        case FunctionSource():
            one_row = Relation(Values(Schema(()), ((),)), ())
            return join_table_function(one_row, source, JoinKind.INNER, None, context)
        case JoinSource():
            return _join(source, context)


def table_names(source: Source | None) -> Iterator[str]:
    """The names and aliases of the tables in FROM, without what stands in sub-queries."""
    match source:
        case TableSource():
            yield source.parts[-1]
        case FilteredSource():
            yield from table_names(source.source)
        case JoinSource():
            yield from table_names(source.left)
            yield from table_names(source.right)
        case WindowSource() | PredictionSource() | ChangelogSource() | MatchSource():
            yield from table_names(source.table)
    aliased = (
        SubquerySource
        | LateralSource
        | WindowSource
        | PredictionSource
        | ChangelogSource
        | FunctionSource
        | MatchSource
    )
    if isinstance(source, TableSource | aliased) and source.alias.name:
        yield source.alias.name


def _subquery(source: SubquerySource, context: QueryContext) -> Relation:
    """The rows of a sub-query; without an alias its columns keep the qualified names that it read them by."""
    node = context.bind(source.query, replace(context, hints=(), outer=None))
    relation = _apply_alias(node, source.alias, None, source.span, context.script)
    if source.alias.name is not None or not isinstance(source.query, Select):
        return relation
    items = source.query.items
    if any(isinstance(item.value, StarTerm) for item in items):
        return relation
    pairs = zip(items, node.schema.names, strict=True)
    terms = ((item.value, name) for item, name in pairs if isinstance(item.value, NameTerm))
    inner = tuple((term.parts[0], term.parts[1], name) for term, name in terms if len(term.parts) == 2)
    return replace(relation, parts=tuple(replace(part, inner=inner) for part in relation.parts))


def _bind_named(source: TableSource, context: QueryContext) -> Relation:
    name = source.parts[-1]
    relation = _apply_alias(_table(source, context), source.alias, name, source.span, context.script)
    if source.alias.name not in (None, name):
        return relation
    path = context.full_name(source.parts)
    return replace(relation, parts=tuple(replace(part, path=path) for part in relation.parts))


def _table(source: TableSource, context: QueryContext) -> Node:
    node = context.lookup(path_text(source.parts), source.span)
    if source.hints and not isinstance(node, Scan):
        message = f'"{source.name}" is a view, which has no options.'
        raise context.script.error("SQL_UNSUPPORTED", message, source.hints[0].span)
    if isinstance(node, Scan):
        node = with_options(node, source.hints, context.script) if source.hints else node
        _check_readable(node.table, source.span, context.script)
        if node.table.upserts and node.table.primary_key:
            return Normalize(node, node.table.primary_key)
    return node


def _check_readable(table: Table, span: Span, script: Script) -> None:
    for column in table.physical:
        if column.type.holds(TypeKind.VARIANT):
            message = f'"{column.name}" of "{table.name}" is {column.type}, which can only be written.'
            remedy = f"Declare {column.name} as STRING to read it, and take PARSE_JSON({column.name})."
            raise script.error("SQL_UNSUPPORTED", message, span, remedy=remedy)


def _apply_alias(node: Node, alias: Alias, name: str | None, span: Span, script: Script) -> Relation:
    fields = node.schema.fields
    names = alias.columns or node.schema.names
    if len(names) != len(fields) or len(set(names)) != len(names):
        message = f'"{alias.name}" names {len(names)} different columns, but there are {len(fields)}.'
        raise script.error("SQL_SYNTAX", message, span)
    columns = tuple((new, Column(of.name, of.type)) for new, of in zip(names, fields, strict=True))
    return Relation(node, (ScopePart(alias.name or name, columns),))


def _window(source: WindowSource, context: QueryContext) -> Relation:
    inside = bind_source(source.table, context)
    relation = window_relation(source, inside.node, inside.parts[0].qualifier, context.script)
    qualifier = source.alias.name or inside.parts[0].qualifier
    return _apply_alias(relation.node, source.alias, qualifier, source.span, context.script)


def _prediction(source: PredictionSource, context: QueryContext) -> Relation:
    inside = bind_source(source.table, context)
    qualifier = source.alias.name or inside.parts[0].qualifier
    return _apply_alias(
        bind_prediction(source, inside, context.script), source.alias, qualifier, source.span, context.script
    )


def _bind_changelog(source: ChangelogSource, context: QueryContext) -> Relation:
    inside = bind_source(source.table, context)
    qualifier = source.alias.name or inside.parts[0].qualifier
    node = convert_changes(source, inside.node, context.script)
    return _apply_alias(node, source.alias, qualifier, source.span, context.script)


def _join(source: JoinSource, context: QueryContext) -> Relation:
    left = bind_source(source.left, context)
    kind = JoinKind.INNER if source.kind == "CROSS" else JoinKind[source.kind]
    if isinstance(source.right, FunctionSource):
        return join_table_function(left, source.right, kind, source.on, context)
    if isinstance(source.right, LateralSource):
        return context.lateral(left, source.right, kind, source.on, context)
    if isinstance(source.right, TableSource) and source.right.as_of is not None:
        table = _table(source.right, context)
        return join_versions(left, table, source.right, kind, source.on, context)
    right = bind_source(source.right, context)
    _check_names(left, right, source, context.script)
    if source.on is not None and any(True for _ in queries_of(source.on)):
        return _joined_by_queries(source, left, right, kind, context)
    return _join_relations(source, left, right, kind, context)


def _joined_by_queries(
    source: JoinSource, left: Relation, right: Relation, kind: JoinKind, context: QueryContext
) -> Relation:
    """The join by an ON with sub-queries: those of an inner join are asked of its rows, others of one side's."""
    assert source.on is not None
    if kind is not JoinKind.INNER:
        sides = context.sides_of_on(left, right, kind, source.on, context)
        if sides is not None:
            return _join_relations(replace(source, on=sides.on), sides.left, sides.right, kind, context, sides)
        pairs = _joined_by_queries(source, left, right, JoinKind.INNER, context)
        return context.with_rows_alone(pairs, left, right, kind)
    terms = list(conjuncts_of_term(source.on))
    plain = [term for term in terms if not any(True for _ in queries_of(term))]
    relation = _join_relations(replace(source, on=conjunction_of_terms(plain)), left, right, kind, context)
    return context.where(conjunction_of_terms([term for term in terms if term not in plain]), relation, context)


def _join_relations(
    source: JoinSource,
    left: Relation,
    right: Relation,
    kind: JoinKind,
    context: QueryContext,
    answers: SidesWithAnswers | None = None,
) -> Relation:
    """Two tables joined by ON, USING or NATURAL, in which `answers` stand for sub-queries."""
    node, new = rename_apart(right.node, left.node.schema.names)
    parts = tuple(
        replace(part, columns=tuple((name, rename_columns(value, new)) for name, value in part.columns))
        for part in right.parts
    )
    right = Relation(node, parts)
    both = Relation(left.node, (*left.parts, *parts))
    values: dict[object, Expression] = {}
    if answers is not None:
        values = {**answers.left_values, **{key: rename_columns(of, new) for key, of in answers.right_values.items()}}
    conditions, merged = _conditions(source, left, right, both, values, context)
    join = join_nodes(left.node, right.node, kind, conditions, state_ttl_ms=_ttl(left, right, context))
    relation = Relation(join, both.parts).over(join)
    return relation if not merged else _merge_columns(relation, merged, kind)


def _check_names(left: Relation, right: Relation, source: JoinSource, script: Script) -> None:
    used_qualifiers = {part.qualifier for part in left.parts if part.qualifier is not None}
    for part in right.parts:
        if part.qualifier in used_qualifiers:
            message = f'Two tables in FROM are called "{part.qualifier}".'
            raise script.error("SQL_SYNTAX", message, source.right.span, remedy="Give one of them an alias.")


def _ttl(left: Relation, right: Relation, context: QueryContext) -> tuple[int | None, int | None] | None:
    sides = tuple(
        state_ttl_ms(context, [part.qualifier for part in side.parts if part.qualifier is not None])
        if len(side.parts) == 1
        else None
        for side in (left, right)
    )
    return None if sides == (None, None) else (sides[0], sides[1])


def _conditions(
    source: JoinSource,
    left: Relation,
    right: Relation,
    both: Relation,
    values: Mapping[object, Expression],
    context: QueryContext,
) -> tuple[list[Expression], list[tuple[str, Expression, Expression]]]:
    """The conditions of ON, USING or NATURAL, and the columns that USING and NATURAL merge."""
    scope = Scope(context.script, both.node.schema, replaced=values, parts=both.parts, place="ON")
    if source.on is not None:
        return conjuncts_of(bind_condition(source.on, scope)), []
    names = list(source.using)
    if source.natural:
        ours = [name for part in left.parts for name, _ in part.columns if name not in part.hidden]
        theirs = {name for part in right.parts for name, _ in part.columns if name not in part.hidden}
        names = [NameTerm((name,), source.span) for name in dict.fromkeys(ours) if name in theirs]
        if not names:
            message = "NATURAL JOIN finds no column of the same name on both sides."
            raise context.script.error("SQL_SYNTAX", message, source.span, remedy="Write JOIN ... ON.")
    merged = []
    conditions = []
    for name in names:
        mine, other = _side(name, left, context), _side(name, right, context)
        merged.append((name.parts[0], mine, other))
        conditions.append(_equal(mine, other, name.span, scope))
    return conditions, merged


def _equal(mine: Expression, other: Expression, span: Span, scope: Scope) -> Expression:
    """`mine` = `other`, checked as if it had been written."""
    parts = (ScopePart(None, (("left", mine), ("right", other))),)
    sides = NameTerm(("left",), span), NameTerm(("right",), span)
    return bind_term(Operation("=", sides, span), replace(scope, parts=parts))


def _side(name: NameTerm, side: Relation, context: QueryContext) -> Expression:
    found = column_of_name(name, scope_of(side, context.script, "USING"))
    if found is None:
        known = [column for part in side.parts for column, _ in part.columns]
        message = f'There is no column "{name.parts[0]}" on both sides of the JOIN.'
        hint = did_you_mean(name.parts[0], known)
        raise context.script.error("SQL_UNKNOWN_COLUMN", message, name.span, remedy=hint or None)
    return found[0]


def _merge_columns(relation: Relation, merged: list[tuple[str, Expression, Expression]], kind: JoinKind) -> Relation:
    """The relation with a part of the merged columns in front; the sides' own need a qualifier."""
    fields = {of.name: Column(of.name, of.type) for of in relation.node.schema.fields}
    columns = []
    for name, mine, other in merged:
        left = fields.get(mine.name, mine) if isinstance(mine, Column) else mine
        right = fields.get(other.name, other) if isinstance(other, Column) else other
        value: Expression = right if kind is JoinKind.RIGHT else left
        if kind is JoinKind.FULL:
            value = Call("COALESCE", (left, right), left.type)
        columns.append((name, value))
    names = frozenset(name for name, _ in columns)
    parts = tuple(replace(part, hidden=part.hidden | names) for part in relation.parts)
    return Relation(relation.node, (ScopePart(None, tuple(columns)), *parts))
