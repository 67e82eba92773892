"""MATCH_RECOGNIZE bound: the rows of a table become one row per match."""

from __future__ import annotations

from collections.abc import Sequence

from millstream.streams.plan.changelog import ChangelogMode, changelog_of
from millstream.streams.plan.expressions import Column, Expression, is_proctime
from millstream.streams.plan.nodes import Node, Project
from millstream.streams.plan.ordering import OrderKey
from millstream.streams.plan.patterns import Match
from millstream.streams.plan.types import Field
from millstream.streams.sql.binder.matches.match_values import MatchValues
from millstream.streams.sql.binder.matches.pattern_rules import check_pattern, check_skip
from millstream.streams.sql.binder.scalars import bind_term
from millstream.streams.sql.binder.scopes import Scope
from millstream.streams.sql.syntax.expressions import CallTerm, NameTerm
from millstream.streams.sql.syntax.queries import MatchSource
from millstream.streams.sql.syntax.script import Script, Span
from millstream.streams.sql.syntax.suggestions import did_you_mean

__all__ = ["bind_match"]


def bind_match(source: MatchSource, node: Node, script: Script) -> Node:
    """The plan of a MATCH_RECOGNIZE over the rows of `node`. Raises SqlError."""
    _check(source, node, script)
    partition = tuple(_column(name, node, script).name for name in source.partition)
    order = _order(source, node, script)
    time = node.schema.find(order[0].column)
    assert time is not None
    rowtime = time.name if time.rowtime else None
    values = MatchValues(script, node.schema, tuple(source.variables), rowtime)
    conditions = {of.variable: values.definition(of.condition, of.variable) for of in source.definitions}
    # A definition for each variable of the pattern that has one, in the order of the pattern.
    defines = tuple((name, conditions[name]) for name in source.variables if name in conditions)
    measures = tuple((measure.name, values.measure(measure.value)) for measure in source.measures)
    clocks = {name for name, value in measures if is_proctime(value)}
    times = frozenset(measure.name for measure in source.measures if _is_rowtime(measure.value))
    within = source.within
    match = Match(
        node,
        partition,
        order,
        source.pattern,
        defines,
        tuple((name, value) for name, value in measures if name not in clocks),
        source.skip,
        None if within is None or within.duration is None else round(within.duration.total_seconds() * 1000),
        times,
    )
    return match if not clocks else _with_clocks(match, measures, clocks, times)


def _check(source: MatchSource, node: Node, script: Script) -> None:
    if changelog_of(node) is not ChangelogMode.APPEND:
        message = "MATCH_RECOGNIZE needs rows that are only appended, but these change."
        raise script.error("SQL_UNSUPPORTED", message, source.table.span, remedy="Match before grouping or ranking.")
    for definition in source.definitions:
        _need_variable(definition.variable, source, definition.span, script)
    if source.skip.variable:
        _need_variable(source.skip.variable, source, source.skip_span, script)
    check_pattern(source.pattern, script, source.pattern_span)
    check_skip(source.skip, source.pattern, script, source.skip_span)
    names = [name.parts[0] for name in source.partition] + [measure.name for measure in source.measures]
    for measure in source.measures:
        if names.count(measure.name) > 1:
            message = f'"{measure.name}" is a column of PARTITION BY too.'
            raise script.error("SQL_SYNTAX", message, measure.span, remedy="Give the measure another name.")
    if not names:
        raise script.error("SQL_SYNTAX", "A match has no columns: neither PARTITION BY nor MEASURES.", source.span)


def _need_variable(name: str, source: MatchSource, span: Span, script: Script) -> None:
    if name in source.variables:
        return
    remedy = did_you_mean(name, list(source.variables)) or f"It has {', '.join(source.variables)}."
    raise script.error("SQL_UNKNOWN_COLUMN", f'PATTERN has no variable "{name}".', span, remedy=remedy)


def _column(name: NameTerm, node: Node, script: Script) -> Field:
    bound = bind_term(name, Scope(script, node.schema, place="MATCH_RECOGNIZE"))
    field = node.schema.find(bound.name) if isinstance(bound, Column) else None
    if field is None:
        message = "PARTITION BY and ORDER BY of MATCH_RECOGNIZE take columns."
        raise script.error("SQL_UNSUPPORTED", message, name.span, remedy="Compute them in a sub-query.")
    return field


def _order(source: MatchSource, node: Node, script: Script) -> tuple[OrderKey, ...]:
    """The order, which begins with a time attribute, ascending, as in Flink."""
    keys: list[OrderKey] = []
    for item in source.order:
        if not isinstance(item.value, NameTerm):
            message = "PARTITION BY and ORDER BY of MATCH_RECOGNIZE take columns."
            raise script.error("SQL_UNSUPPORTED", message, item.span, remedy="Compute them in a sub-query.")
        keys.append(OrderKey(_column(item.value, node, script).name, item.ascending, item.nulls_first))
    span = source.order[0].span if source.order else source.span
    first = node.schema.find(keys[0].column) if keys else None
    if first is None or not first.is_time_attribute or not keys[0].ascending:
        known = [field.name for field in node.schema.fields if field.is_time_attribute]
        remedy = f"Write ORDER BY {known[0]}." if known else None
        message = "MATCH_RECOGNIZE needs ORDER BY with a time attribute first, ascending."
        raise script.error("SQL_TIME_ATTRIBUTE", message, span, remedy=remedy)
    return tuple(keys)


def _is_rowtime(term: object) -> bool:
    return isinstance(term, CallTerm) and term.name == "MATCH_ROWTIME"


def _with_clocks(
    match: Match, measures: Sequence[tuple[str, Expression]], clocks: set[str], times: frozenset[str]
) -> Project:
    """The matches with the clock's columns in their places: the clock is read where it is used."""
    fields = {field.name: Column(field.name, field.type) for field in match.schema.fields}
    given = dict(measures)
    names = [*match.partition, *(name for name, _ in measures)]
    columns = tuple((name, given[name] if name in clocks else fields[name]) for name in names)
    return Project(match, columns, times, frozenset(clocks))
