"""The wiring of MATCH_RECOGNIZE: what conditions and measures read are columns of Spark, the rest is ours."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from millstream.streams.operators.keys import OrderColumn
from millstream.streams.operators.operator import Operator
from millstream.streams.operators.patterns.matcher import Matcher
from millstream.streams.operators.patterns.navigation import Formula, formula_of
from millstream.streams.operators.patterns.program import program_of
from millstream.streams.operators.patterns.search import PatternSpec
from millstream.streams.plan.expressions import Call, Case, Cast, Column, Expression, Literal
from millstream.streams.plan.patterns import Match
from millstream.streams.spark.operators.wiring import Wire, Wiring, order_places

__all__ = ["match_wiring"]

_US = 1000
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
