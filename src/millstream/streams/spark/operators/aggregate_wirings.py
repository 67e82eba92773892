"""The wirings of nodes that group rows, and of MATCH_RECOGNIZE."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from millstream.streams.errors import JobError
from millstream.streams.functions.user_functions.user import root_of
from millstream.streams.operators.aggregates.catalogue import AggregateSpec, UserAggregateSpec
from millstream.streams.operators.grouping import Grouper, row_of_nothing
from millstream.streams.operators.keys import OrderColumn
from millstream.streams.operators.operator import Operator
from millstream.streams.operators.patterns.matcher import Matcher
from millstream.streams.operators.patterns.navigation import Formula, formula_of
from millstream.streams.operators.patterns.program import program_of
from millstream.streams.operators.patterns.search import PatternSpec
from millstream.streams.operators.windows.sessions import SessionRows, SessionWindower
from millstream.streams.operators.windows.window_times import Cumulating, Hopping, Slicing
from millstream.streams.operators.windows.windowing import EmitStrategy, Windower
from millstream.streams.plan.aggregates import Aggregate, AggregateCall, WindowAggregate
from millstream.streams.plan.changelog import ChangelogMode, changelog_of
from millstream.streams.plan.expressions import USER_PREFIX, Call, Case, Cast, Column, Expression, Literal
from millstream.streams.plan.nodes import WindowRows
from millstream.streams.plan.patterns import Match
from millstream.streams.plan.windows import Attached, Cumulate, Emit, Hop, Session, Tumble
from millstream.streams.spark.operators.wiring import Wire, Wiring, all_columns, order_places

__all__ = ["aggregate_wiring", "match_wiring", "spec_of", "window_rows_wiring", "window_wiring"]


_US = 1000
"""Microseconds in a millisecond."""


def aggregate_wiring(node: Aggregate) -> Wiring:
    """GROUP BY without a window."""
    columns: list[Expression] = [key for _, key in node.keys]
    specs = [spec_of(call, columns) for _, call in node.aggregates]
    changing = changelog_of(node.input) is ChangelogMode.RETRACT
    keys = len(node.keys)
    make = partial(Grouper, keys, tuple(specs), changing=changing)
    lives = () if node.state_ttl_ms is None else (("groups", node.state_ttl_ms),)
    wire = Wire(node.input, tuple(columns), tuple(range(keys)))
    of_nothing = None if keys else partial(row_of_nothing, tuple(specs))
    return Wiring(make, (wire,), lives_ms=lives, of_nothing=of_nothing)


def window_wiring(node: WindowAggregate) -> Wiring:
    """GROUP BY with a window of any kind."""
    columns: list[Expression] = [key for _, key in node.keys]
    specs = tuple(spec_of(call, columns) for _, call in node.aggregates)
    keys = len(node.keys)
    time = len(columns)
    schema = node.input.schema
    names: tuple[str, ...] = (node.window.time_column,)
    if isinstance(node.window, Attached):
        names = (node.window.start_column, node.window.end_column)
    for name in names:
        field = schema.find(name)
        assert field is not None
        columns.append(Column(name, field.type))
    attribute = schema.find(node.window.time_column)
    on_arrival = attribute is not None and attribute.proctime and not isinstance(node.window, Attached)
    changing = changelog_of(node.input) is ChangelogMode.RETRACT
    wire = (Wire(node.input, tuple(columns), tuple(range(keys))),)
    if isinstance(node.window, Session):
        gap_us = node.window.gap_ms * _US
        session = partial(SessionWindower, keys, specs, time, gap_us, on_arrival=on_arrival, changing=changing)
        return Wiring(session, wire)
    make = partial(
        Windower,
        keys,
        specs,
        time,
        _slicing(node),
        speaking=_speaking(node.emit),
        on_arrival=on_arrival,
        changing=changing,
    )
    return Wiring(make, wire)


def window_rows_wiring(node: WindowRows) -> Wiring | None:
    """Rows with the bounds of their sessions. Other windows are columns: a row's own time says them."""
    window = node.window
    if not isinstance(window, Session):
        return None
    if changelog_of(node.input) is ChangelogMode.RETRACT:
        words = "A SESSION window takes rows that are only appended: a row that goes would take sessions apart."
        raise JobError("JOB_FAILED", words)
    schema = node.input.schema
    columns = all_columns(schema)
    keys = tuple(columns[schema.names.index(name)] for name in window.keys)
    attribute = schema.find(window.time_column)
    make = partial(
        SessionRows,
        len(keys),
        len(keys) + schema.names.index(window.time_column),
        window.gap_ms * _US,
        on_arrival=attribute is not None and attribute.proctime,
    )
    return Wiring(make, (Wire(node.input, (*keys, *columns), tuple(range(len(keys)))),))


def _slicing(node: WindowAggregate) -> Slicing | None:
    match node.window:
        case Tumble(size_ms=size_ms, offset_ms=offset_ms):
            return Hopping(size_ms * _US, size_ms * _US, offset_ms * _US)
        case Hop(size_ms=size_ms, slide_ms=slide_ms, offset_ms=offset_ms):
            return Hopping(size_ms * _US, slide_ms * _US, offset_ms * _US)
        case Cumulate(size_ms=size_ms, step_ms=step_ms, offset_ms=offset_ms):
            return Cumulating(size_ms * _US, step_ms * _US, offset_ms * _US)
        case _:
            return None


def _speaking(emit: Emit | None) -> EmitStrategy:
    if emit is None:
        return EmitStrategy()
    early, late = (None if one is None else one * _US for one in (emit.early_ms, emit.late_ms))
    return EmitStrategy(early, late, emit.lateness_ms * _US)


def spec_of(call: AggregateCall, columns: list[Expression]) -> AggregateSpec:
    """The call over places; its expressions are put behind `columns` unless they stand there already."""

    def place_of(expression: Expression) -> int:
        if expression in columns:
            return columns.index(expression)
        columns.append(expression)
        return len(columns) - 1

    user = _user(call)
    more = [part for part in call.more if user is not None or not _is_constant(part)]
    parts = [part for part in (call.argument, *more) if part is not None]
    return AggregateSpec(
        call.function,
        tuple(place_of(part) for part in parts),
        None if call.argument is None else call.argument.type,
        call.type,
        None if call.filter is None else place_of(call.filter),
        call.distinct,
        () if user is not None else tuple(_constant(part) for part in call.more if _is_constant(part)),
        user,
    )


def _is_constant(part: Expression) -> bool:
    """Whether an argument is the same for all rows: a literal, or an ARRAY of some."""
    match part:
        case Call(function="ARRAY", arguments=elements):
            return all(map(_is_constant, elements))
        case _:
            return isinstance(part, Literal)


def _constant(part: Expression) -> Any:
    match part:
        case Literal(value=value):
            return value
        case Call(arguments=elements):
            return [_constant(element) for element in elements]
        case _:
            raise TypeError(f"{part} is no constant")


def _user(call: AggregateCall) -> UserAggregateSpec | None:
    """What a call of a user's aggregate is beside the others."""
    if not call.function.startswith(USER_PREFIX):
        return None
    path = call.function.removeprefix(USER_PREFIX)
    types = tuple(part.type for part in (call.argument, *call.more) if part is not None)
    return UserAggregateSpec(path, root_of(path), types)


"""Microseconds in a millisecond."""


@dataclass(frozen=True, slots=True)
class _Make:
    """Makes the operator in a worker: formulas become functions there."""

    partition: tuple[int, ...]
    order: tuple[OrderColumn, ...]
    pattern: PatternSpec
    measures: tuple[Formula, ...]
    time: int | None

    def __call__(self) -> Operator:
        return Matcher(self.partition, self.order, self.pattern, self.measures, time=self.time)


def match_wiring(node: Match) -> Wiring:
    """The operator reads the partition, the order, and what conditions and measures read of single rows."""
    schema = node.input.schema
    names = dict.fromkeys((*node.partition, *(key.column for key in node.order)))
    fields = {field.name: field for field in schema.fields}
    columns: list[Expression] = [Column(name, fields[name].type) for name in names]
    order = tuple(
        OrderColumn(list(names).index(key.column), place.ascending, place.nulls_first)
        for key, place in zip(
            [key for key in node.order if not (fields[key.column].proctime and key.ascending)],
            order_places(schema, node.order),
            strict=True,
        )
    )

    def place_of(expression: Expression) -> int:
        if expression not in columns:
            columns.append(expression)
        return columns.index(expression)

    defines = tuple(
        (name, place_of(row) if (row := _of_the_row(condition, name)) is not None else formula_of(condition, place_of))
        for name, condition in node.defines
    )
    measures = tuple(formula_of(value, place_of) for _, value in node.measures)
    first = fields[node.order[0].column]
    make = _Make(
        tuple(range(len(node.partition))),
        order,
        PatternSpec(
            program_of(node.pattern),
            defines,
            node.skip,
            None if node.within_ms is None else node.within_ms * _US,
            node.unless,
        ),
        measures,
        None if first.proctime else list(names).index(first.name),
    )
    # Shows at once whether everything can be evaluated.
    make()
    return Wiring(make, (Wire(node.input, tuple(columns), make.partition),))


def _of_the_row(condition: Expression, variable: str) -> Expression | None:
    """The condition as one of the row alone, where it reads no other row of the match; else None."""
    match condition:
        case Call("MATCH_LAST", (value, Literal(value=of), Literal(value=0))) if of in (variable, ""):
            return value
        case Call(function=function) if function.startswith("MATCH_"):
            return None
        case Call(arguments=arguments):
            parts = [_of_the_row(part, variable) for part in arguments]
            known = tuple(part for part in parts if part is not None)
            return Call(condition.function, known, condition.type) if len(known) == len(parts) else None
        case Cast(operand=operand):
            inner = _of_the_row(operand, variable)
            return None if inner is None else Cast(inner, condition.type, condition.safe)
        case Case():
            # The binder makes calls of other rows inside of CASE rarely; those without any stay columns.
            return None if any(_calls(condition)) else condition
        case _:
            return condition


def _calls(expression: Expression) -> Iterator[str]:
    """The names of all MATCH_... calls."""
    match expression:
        case Call(function=function, arguments=arguments):
            if function.startswith("MATCH_"):
                yield function
            for argument in arguments:
                yield from _calls(argument)
        case Case(branches=branches, otherwise=otherwise):
            for part in (*(part for pair in branches for part in pair), *((otherwise,) if otherwise else ())):
                yield from _calls(part)
        case Cast(operand=operand):
            yield from _calls(operand)
        case _:
            return
