"""Binds MATCH_RECOGNIZE, with Flink's rules for patterns."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import fields, is_dataclass, replace

from millstream.streams.functions.registry import AGGREGATES
from millstream.streams.plan.changelog import ChangelogMode, changelog_of
from millstream.streams.plan.expressions import Call, Column, Expression, Literal, is_proctime
from millstream.streams.plan.nodes import Node, Project
from millstream.streams.plan.ordering import OrderKey
from millstream.streams.plan.patterns import Match
from millstream.streams.plan.types import INT, STRING, Field, Schema
from millstream.streams.sql.binder.aggregate_calls import bind_aggregate
from millstream.streams.sql.binder.pattern_rules import check_pattern, check_skip
from millstream.streams.sql.binder.scalars import bind_condition, bind_term
from millstream.streams.sql.binder.scopes import Scope
from millstream.streams.sql.syntax.expressions import CallTerm, LiteralTerm, NameTerm, StarTerm, Term
from millstream.streams.sql.syntax.queries import MatchSource
from millstream.streams.sql.syntax.script import Script, Span, did_you_mean
from millstream.streams.sql.syntax.terms import identity

__all__ = ["MatchValues", "bind_match"]


_LOGICAL = ("FIRST", "LAST")
_PHYSICAL = ("PREV", "NEXT")
_TIMES = ("MATCH_ROWTIME", "MATCH_PROCTIME")
_REFUSED = {
    "CLASSIFIER": "CLASSIFIER() is not supported, as in Flink: a row per match shows what its measures name.",
    "MATCH_NUMBER": "MATCH_NUMBER() is not supported, as in Flink.",
}

_TEXT = STRING.as_nullable(False)
_COUNT = INT.as_nullable(False)


class MatchValues:
    """Binds the expressions of one MATCH_RECOGNIZE over the rows of `schema`."""

    def __init__(self, script: Script, schema: Schema, variables: Collection[str], rowtime: str | None) -> None:
        self._script = script
        self._schema = schema
        self._variables = variables
        self._rowtime = rowtime

    def measure(self, term: Term) -> Expression:
        """The bound measure. Raises SqlError."""
        return bind_term(term, self._scope(term, None))

    def definition(self, term: Term, variable: str) -> Expression:
        """The bound condition of a variable. Raises SqlError."""
        return bind_condition(term, self._scope(term, variable))

    def _scope(self, term: Term, defined: str | None) -> Scope:
        """What the expression may name: each part that reads rows of the match is replaced as a whole."""
        replaced = {identity(part): self._read(part, defined) for part in _reading(term)}
        place = "MEASURES" if defined is None else "DEFINE"
        return Scope(self._script, self._schema, replaced=replaced, place=place)

    def _read(self, part: NameTerm | CallTerm, defined: str | None) -> Expression:
        if isinstance(part, NameTerm):
            return self._logical("LAST", part, 0)
        if part.name in _REFUSED:
            raise self._script.error("SQL_UNSUPPORTED", _REFUSED[part.name], part.name_span)
        if part.name in _TIMES:
            return self._time(part, defined)
        if part.name in AGGREGATES:
            return self._aggregate(part)
        value, offset = self._arguments(part)
        if part.name in _LOGICAL:
            return self._logical(part.name, value, offset)
        return self._physical(part, value, offset, defined)

    def _arguments(self, call: CallTerm) -> tuple[Term, int]:
        """The value and the offset of FIRST, LAST, PREV and NEXT; the offset is 0, or 1 for those two."""
        if len(call.arguments) not in (1, 2) or call.distinct or call.star:
            message = f"{call.name} takes a value and perhaps an offset, as in {call.name}(A.price, 1)."
            raise self._script.error("SQL_SYNTAX", message, call.span)
        inside = next((part for part in _reading(call.arguments[0]) if isinstance(part, CallTerm)), None)
        if inside is not None:
            message = f"{inside.name} inside of {call.name} is not supported."
            raise self._script.error("SQL_UNSUPPORTED", message, inside.span)
        offset = 0 if call.name in _LOGICAL else 1
        if len(call.arguments) == 2:
            given = call.arguments[1]
            if not isinstance(given, LiteralTerm) or type(given.value) is not int:
                raise self._script.error("SQL_TYPE", "The offset is a whole number, 0 or more.", given.span)
            offset = given.value
        return call.arguments[0], offset

    def _logical(self, function: str, value: Term, offset: int) -> Expression:
        variable, bound = self._of_variable(value)
        arguments = (bound, Literal(variable, _TEXT), Literal(offset, _COUNT))
        return Call(f"MATCH_{function}", arguments, bound.type.as_nullable())

    def _physical(self, call: CallTerm, value: Term, offset: int, defined: str | None) -> Expression:
        variable, bound = self._of_variable(value)
        if defined is None:
            message = f"{call.name} stands in DEFINE only, as it looks at rows beside the one that is tried."
            raise self._script.error("SQL_UNSUPPORTED", message, call.span, remedy="Use FIRST and LAST in MEASURES.")
        if variable not in ("", defined):
            message = f"{call.name} looks beside the row that is tried, which is of {defined}, not of {variable}."
            raise self._script.error("SQL_UNSUPPORTED", message, call.span, remedy=f"Use LAST({variable}. ..., n).")
        return Call(f"MATCH_{call.name}", (bound, Literal(offset, _COUNT)), bound.type.as_nullable())

    def _aggregate(self, call: CallTerm) -> Expression:
        if call.distinct or call.filter is not None or len(call.arguments) > 1:
            message = f"{call.name} over the rows of a match takes one value, without DISTINCT and FILTER."
            raise self._script.error("SQL_UNSUPPORTED", message, call.span)
        name = Literal(call.name, _TEXT)
        match call.arguments:
            case (StarTerm(qualifier=(variable,)) as star,):
                self._need_variable(variable, star.span)
                counted = replace(call, arguments=(), star=True)
                bound = bind_aggregate(counted, Scope(self._script, self._schema))
                return Call("MATCH_AGGREGATE", (name, Literal(variable, _TEXT)), bound.type)
            case (value,):
                variable, plain = self._strip_variable(value)
                bound = bind_aggregate(replace(call, arguments=(plain,)), Scope(self._script, self._schema))
                assert bound.argument is not None
                return Call("MATCH_AGGREGATE", (name, Literal(variable, _TEXT), bound.argument), bound.type)
        bound = bind_aggregate(call, Scope(self._script, self._schema))
        return Call("MATCH_AGGREGATE", (name, Literal("", _TEXT)), bound.type)

    def _time(self, call: CallTerm, defined: str | None) -> Expression:
        """MATCH_ROWTIME() is the time of the match's last row; MATCH_PROCTIME() is the clock."""
        if call.name == "MATCH_PROCTIME":
            return bind_term(CallTerm("PROCTIME", (), call.span, call.name_span), Scope(self._script, self._schema))
        if self._rowtime is None:
            message = "MATCH_ROWTIME() needs rows in the order of event time."
            raise self._script.error("SQL_TIME_ATTRIBUTE", message, call.span, remedy="Use MATCH_PROCTIME().")
        return self._logical("LAST", NameTerm((self._rowtime,), call.span), 0)

    def _of_variable(self, value: Term) -> tuple[str, Expression]:
        """The variable that the columns of a value belong to, blank for any row, and the value bound without it."""
        variable, plain = self._strip_variable(value)
        return variable, bind_term(plain, Scope(self._script, self._schema, place="an expression over rows of a match"))

    def _strip_variable(self, value: Term) -> tuple[str, Term]:
        names = [part for part in _reading(value) if isinstance(part, NameTerm)]
        found = {self._variable_of(name) for name in names}
        if len(found) > 1:
            listed = " and ".join(sorted(of or "any row" for of in found))
            message = f"One expression reads rows of {listed}."
            remedy = "Take the value of each by FIRST, LAST or an aggregate of its own, and compute with those."
            raise self._script.error("SQL_UNSUPPORTED", message, value.span, remedy=remedy)
        variable = next(iter(found), "")
        return variable, _without_variable(value, variable) if variable else value

    def _variable_of(self, name: NameTerm) -> str:
        first = name.parts[0]
        if len(name.parts) > 1 and first in self._variables:
            return first
        if len(name.parts) > 1 and self._schema.find(first) is None:
            self._need_variable(first, name.span)
        return ""

    def _need_variable(self, name: str, span: Span) -> None:
        if name not in self._variables:
            message = f'PATTERN has no variable "{name}".'
            remedy = did_you_mean(name, list(self._variables)) or f"It has {', '.join(self._variables)}."
            raise self._script.error("SQL_UNKNOWN_COLUMN", message, span, remedy=remedy)


def _reading(term: object) -> Iterator[NameTerm | CallTerm]:
    """The outermost parts of an expression that read rows of the match."""
    if isinstance(term, NameTerm) or (
        isinstance(term, CallTerm)
        and (term.name in (*_LOGICAL, *_PHYSICAL, *_TIMES, *_REFUSED) or term.name in AGGREGATES)
    ):
        yield term
    elif isinstance(term, tuple):
        for part in term:
            yield from _reading(part)
    elif is_dataclass(term) and not isinstance(term, Span):
        for part in fields(term):
            yield from _reading(getattr(term, part.name))


def _without_variable(term: Term, variable: str) -> Term:
    """The expression with the variable in front of its columns left out."""
    return _rebuilt(term, variable)  # type: ignore[return-value]


def _rebuilt(tree: object, variable: str) -> object:
    if isinstance(tree, NameTerm):
        return replace(tree, parts=tree.parts[1:]) if tree.parts[0] == variable else tree
    if isinstance(tree, tuple):
        return tuple(_rebuilt(part, variable) for part in tree)
    if is_dataclass(tree) and not isinstance(tree, Span | type):
        return replace(tree, **{part.name: _rebuilt(getattr(tree, part.name), variable) for part in fields(tree)})
    return tree


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
