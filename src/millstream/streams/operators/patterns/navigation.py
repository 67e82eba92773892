"""Navigation in a match: first and last rows of a variable, neighbours, aggregates."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from millstream.streams.operators.aggregates.accumulator import Accumulator
from millstream.streams.operators.aggregates.catalogue import AggregateSpec, accumulator_of
from millstream.streams.operators.evaluate import evaluator
from millstream.streams.operators.operator import Row
from millstream.streams.plan import expressions as plan
from millstream.streams.plan.expressions import Expression

__all__ = ["Formula", "Kind", "Matched", "Navigation", "Reader", "Rows", "formula_of", "reader_of", "value_of"]

Kind = Literal["here", "first", "last", "prev", "next", "aggregate"]

_KINDS: dict[str, Kind] = {
    "MATCH_FIRST": "first",
    "MATCH_LAST": "last",
    "MATCH_PREV": "prev",
    "MATCH_NEXT": "next",
    "MATCH_AGGREGATE": "aggregate",
}


@dataclass(frozen=True, slots=True)
class Navigation:
    """One value read of a match: at `place` of a row, `offset` rows of `variable` ("": any) or of all further.

    An aggregate has a `spec`, over rows of the variable.
    """

    kind: Kind
    place: int = 0
    variable: str = ""
    offset: int = 0
    spec: AggregateSpec | None = None


@dataclass(frozen=True, slots=True)
class Formula:
    """An expression whose columns `$0`, `$1`, ... are the values of the navigations."""

    expression: Expression
    navigations: tuple[Navigation, ...]


class Matched:
    """The last of some rows that fit a pattern so far; `before` the others, shared by all that begin alike.

    `sums` are the states of the aggregates that definitions read, each never changed in place.
    """

    __slots__ = ("before", "number", "sums", "variable")

    def __init__(self, variable: str, number: int, before: Matched | None, sums: tuple[Any, ...]) -> None:
        self.variable = variable
        self.number = number
        self.before = before
        self.sums = sums

    def numbers(self, variable: str) -> list[int]:
        """The rows of a variable, or of any, in order."""
        found: list[int] = []
        one: Matched | None = self
        while one is not None:
            if not variable or one.variable == variable:
                found.append(one.number)
            one = one.before
        found.reverse()
        return found


Rows = Mapping[int, Row]
Reader = Callable[[Matched, Rows], Any]
"""From a match and the rows of its partition by number to a value."""


def formula_of(expression: Expression, place_of: Callable[[Expression], int]) -> Formula:
    """The expression with its calls of MATCH_... taken out; `place_of` tells where rows have what is inside of them."""
    found: list[Navigation] = []

    def take(navigation: Navigation, of: Expression) -> Expression:
        if navigation not in found:
            found.append(navigation)
        return plan.Column(f"${found.index(navigation)}", of.type)

    def without(part: Expression) -> Expression:
        match part:
            case plan.Call(function=function) if function in _KINDS:
                return take(_navigation(part, place_of), part)
            case plan.Call(arguments=arguments):
                return replace(part, arguments=tuple(map(without, arguments)))
            case plan.Column():
                return take(Navigation("here", place_of(part)), part)
            case plan.Case(branches=branches, otherwise=otherwise):
                pairs = tuple((without(condition), without(result)) for condition, result in branches)
                return replace(part, branches=pairs, otherwise=None if otherwise is None else without(otherwise))
            case plan.Cast(operand=operand):
                return replace(part, operand=without(operand))
            case plan.Literal():
                return part

    return Formula(without(expression), tuple(found))


def _navigation(call: plan.Call, place_of: Callable[[Expression], int]) -> Navigation:
    kind = _KINDS[call.function]
    constants = [part.value for part in call.arguments if isinstance(part, plan.Literal)]
    if kind == "aggregate":
        function, variable = str(constants[0]), str(constants[1])
        values = call.arguments[2:]
        places = tuple(place_of(value) for value in values)
        spec = AggregateSpec(function, places, values[0].type if values else None, call.type)
        return Navigation(kind, variable=variable, spec=spec)
    place = place_of(call.arguments[0])
    trailing = [part.value for part in call.arguments[1:] if isinstance(part, plan.Literal)]
    if kind in ("prev", "next"):
        return Navigation(kind, place, offset=int(str(trailing[0])) if trailing else 1)
    return Navigation(kind, place, str(trailing[0]), int(str(trailing[1])))


def reader_of(formula: Formula, running: Mapping[tuple[str, AggregateSpec], int] | None = None) -> Reader:
    """A function that computes the formula; `running` tells which aggregates a match carries along."""
    readers = [_reader(navigation, running or {}) for navigation in formula.navigations]
    if len(readers) == 1 and isinstance(formula.expression, plan.Column):
        return readers[0]
    compute = evaluator(formula.expression, {f"${number}": number for number in range(len(readers))})
    return lambda matched, rows: compute(tuple([read(matched, rows) for read in readers]))


def _reader(navigation: Navigation, running: Mapping[tuple[str, AggregateSpec], int]) -> Reader:
    match navigation:
        case Navigation(kind="aggregate", variable=variable, spec=spec):
            assert spec is not None
            machine, number = accumulator_of(spec, changing=False), running.get((variable, spec), -1)
            if number < 0:
                return _build_aggregate(machine, variable, spec)
            return lambda matched, rows: machine.result(matched.sums[number])
        case Navigation(kind="first"):
            return _first(navigation)
        case Navigation(kind="last"):
            return _last(navigation)
        case _:
            place, step = navigation.place, navigation.offset * (-1 if navigation.kind == "prev" else 1)
            return lambda matched, rows: None if (row := rows.get(matched.number + step)) is None else row[place]


def _build_aggregate(machine: Accumulator, variable: str, spec: AggregateSpec) -> Reader:
    def read(matched: Matched, rows: Rows) -> Any:
        found = [rows[number] for number in matched.numbers(variable)]
        return machine.result(
            machine.add(machine.new(), [v for row in found if (v := value_of(spec, row)) is not None])
        )

    return read


def value_of(spec: AggregateSpec, row: Row) -> Any:
    """What an aggregate reads of a row; None where it reads nothing."""
    match spec.arguments:
        case ():
            return row
        case (place,):
            return row[place]
        case places:
            return None if row[places[0]] is None else tuple(row[place] for place in places)


def _first(navigation: Navigation) -> Reader:
    variable, offset, place = navigation.variable, navigation.offset, navigation.place

    def read(matched: Matched, rows: Rows) -> Any:
        numbers = matched.numbers(variable)
        return rows[numbers[offset]][place] if offset < len(numbers) else None

    return read


def _last(navigation: Navigation) -> Reader:
    variable, offset, place = navigation.variable, navigation.offset, navigation.place

    def read(matched: Matched, rows: Rows) -> Any:
        one: Matched | None = matched
        left = offset
        while one is not None:
            if not variable or one.variable == variable:
                if not left:
                    return rows[one.number][place]
                left -= 1
            one = one.before
        return None

    return read
