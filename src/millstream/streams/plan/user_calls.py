"""User function nodes, and the extraction of calls from expressions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

from millstream.streams.plan.aggregates import Aggregate, Expand, WindowAggregate
from millstream.streams.plan.expressions import USER_PREFIX, Call, Case, Cast, Column, Expression, Literal, columns_of
from millstream.streams.plan.fan_out import FanOut
from millstream.streams.plan.joins import Correlate
from millstream.streams.plan.nodes import Filter, Node, Project, Scan, inputs_of
from millstream.streams.plan.ordering import Over
from millstream.streams.plan.tables import ComputedColumn
from millstream.streams.plan.types import BOOLEAN, Field, Schema

__all__ = [
    "CallExtractor",
    "ExtractedCall",
    "OnError",
    "PythonCode",
    "PythonKind",
    "PythonRows",
    "calls_users_functions",
    "has_user_call",
    "has_users_aggregates",
    "users_functions_of",
]


class PythonKind(Enum):
    """What a function gives for a row: another row, several, whether it stays, nothing; or columns for columns."""

    MAP = "map"
    FLAT_MAP = "flat_map"
    FILTER = "filter"
    FOREACH = "foreach"
    MAP_BATCHES = "map_batches"


class OnError(Enum):
    """What becomes of a row for which a function raises: it goes to a topic, is only counted, or ends the job."""

    DEAD_LETTER = "dead-letter"
    SKIP = "skip"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class PythonCode:
    """A function, and what a message calls it. Two plans are equal whatever the function does.

    `row_type` is the class of the rows that it is given; None for the SDK's own. `root` is a directory to import from.
    """

    name: str
    function: Callable[..., Any] = field(compare=False, repr=False)
    row_type: type | None = field(default=None, compare=False, repr=False)
    root: str = field(default="", compare=False, repr=False)
    on_error: OnError = field(default=OnError.FAIL, compare=False)


@dataclass(frozen=True, slots=True)
class PythonRows(Node):
    """What a function makes of each row: the columns `made`, then those of the input that are `kept` beside them.

    The function sees the columns `reads` of the input.
    """

    input: Node
    kind: PythonKind
    code: PythonCode
    reads: tuple[str, ...]
    made: tuple[Field, ...]
    kept: tuple[str, ...]

    @property
    def schema(self) -> Schema:
        known = {of.name: of for of in self.input.schema.fields}
        return Schema((*self.made, *(known[name] for name in self.kept)))


@dataclass(frozen=True, slots=True)
class ExtractedCall:
    """A call under the name of the column that has its value. `asked` is for which rows; None for all.

    Calls of one `level` need no other calls than those of lower ones.
    """

    name: str
    call: Call
    condition: Expression | None
    level: int


@dataclass
class CallExtractor:
    """The calls taken out so far; `fresh` gives names for their columns."""

    fresh: Callable[[], str]
    calls: list[ExtractedCall] = field(default_factory=list)

    def extract(self, expression: Expression, asked: Expression | None = None) -> Expression:
        """The expression with columns in the place of its calls, the inner ones too."""
        if not has_user_call(expression):
            return expression
        match expression:
            case Call(function="IF", arguments=(condition, then, otherwise)):
                return self.extract(Case(((condition, then),), otherwise, expression.type), asked)
            case Call(function="AND" | "OR", arguments=arguments):
                return replace(
                    expression, arguments=tuple(self._extract_operands(expression.function, arguments, asked))
                )
            case Call(arguments=arguments):
                inner = replace(expression, arguments=tuple(self.extract(one, asked) for one in arguments))
                return self._column_of(inner, asked) if inner.function.startswith(USER_PREFIX) else inner
            case Case():
                return self._case(expression, asked)
            case Cast(operand=operand):
                return replace(expression, operand=self.extract(operand, asked))
            case _:
                return expression

    def _column_of(self, call: Call, asked: Expression | None) -> Column:
        known = next((one for one in self.calls if (one.call, one.condition) == (call, asked)), None)
        if known is None:
            parts = (*call.arguments, *(() if asked is None else (asked,)))
            names = {name for part in parts for name in columns_of(part)}
            level = max((one.level + 1 for one in self.calls if one.name in names), default=0)
            known = ExtractedCall(self.fresh(), call, asked, level)
            self.calls.append(known)
        return Column(known.name, call.type)

    def _case(self, expression: Case, asked: Expression | None) -> Case:
        branches: list[tuple[Expression, Expression]] = []
        left = asked
        for condition, result in expression.branches:
            plain = self.extract(condition, left)
            branches.append((plain, self.extract(result, _both(left, _is_true(plain)))))
            left = _both(left, Call("NOT", (_is_true(plain),), BOOLEAN))
        otherwise = None if expression.otherwise is None else self.extract(expression.otherwise, left)
        return replace(expression, branches=tuple(branches), otherwise=otherwise)

    def _extract_operands(
        self, junction: str, arguments: Sequence[Expression], condition: Expression | None
    ) -> Iterator[Expression]:
        """The operands; those without calls decide which rows the others are asked for."""
        for argument in arguments:
            if not has_user_call(argument):
                open_ = Call("COALESCE", (argument, Literal(True, BOOLEAN)), BOOLEAN)
                condition = _both(
                    condition, open_ if junction == "AND" else Call("NOT", (_is_true(argument),), BOOLEAN)
                )
        for argument in arguments:
            yield self.extract(argument, condition)


def has_user_call(expression: Expression) -> bool:
    """Whether a call of a user's function is part of the expression."""
    match expression:
        case Call(function=function, arguments=arguments):
            return function.startswith(USER_PREFIX) or any(map(has_user_call, arguments))
        case Case(branches=branches, otherwise=otherwise):
            parts = (part for branch in branches for part in branch)
            return any(map(has_user_call, parts)) or (otherwise is not None and has_user_call(otherwise))
        case Cast(operand=operand):
            return has_user_call(operand)
        case _:
            return False


def calls_users_functions(node: Node) -> bool:
    """Whether something in the node's tree calls a user's function for single rows."""
    return any(map(has_user_call, _expressions(node))) or any(map(calls_users_functions, inputs_of(node)))


def has_users_aggregates(node: Node) -> bool:
    """Whether the node itself calls an aggregate of a user's."""
    match node:
        case Aggregate(aggregates=calls) | WindowAggregate(aggregates=calls):
            return any(call.function.startswith(USER_PREFIX) for _, call in calls)
        case Over(calls=overs):
            return any(over.call.function.startswith(USER_PREFIX) for over in overs)
        case _:
            return False


def users_functions_of(node: Node) -> tuple[str, ...]:
    """The functions of the user's that the node itself calls for single rows, each once, by their paths."""
    found: dict[str, None] = {}

    def look(expression: Expression) -> None:
        match expression:
            case Call(function=function, arguments=arguments):
                for argument in arguments:
                    look(argument)
                if function.startswith(USER_PREFIX):
                    found[function.removeprefix(USER_PREFIX)] = None
            case Case(branches=branches, otherwise=otherwise):
                for part in (
                    *(one for branch in branches for one in branch),
                    *(() if otherwise is None else (otherwise,)),
                ):
                    look(part)
            case Cast(operand=operand):
                look(operand)

    for expression in _expressions(node):
        look(expression)
    return tuple(found)


def _expressions(node: Node) -> Iterator[Expression]:
    match node:
        case Scan(table=table, columns=columns):
            computed = (one for one in table.columns if isinstance(one, ComputedColumn) and one.name in columns)
            yield from (one.expression for one in computed)
        case Project(columns=named):
            yield from (value for _, value in named)
        case Filter(predicate=predicate):
            yield predicate
        case Correlate(function=function):
            yield function
        case Expand(projections=projections):
            yield from (value for values in projections for value in values)
        case FanOut(branches=branches):
            yield branches
        case Aggregate(keys=keys, aggregates=calls) | WindowAggregate(keys=keys, aggregates=calls):
            yield from (key for _, key in keys)
            yield from (part for _, call in calls for part in call.parts)
        case _:
            return


def _is_true(condition: Expression) -> Expression:
    return Call("COALESCE", (condition, Literal(False, BOOLEAN)), BOOLEAN)


def _both(one: Expression | None, other: Expression) -> Expression:
    return other if one is None else Call("AND", (one, other), BOOLEAN)
