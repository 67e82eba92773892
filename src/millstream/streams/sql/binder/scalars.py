"""Binds expressions: names to columns, functions to the registry, and types.

Literals with Flink's types.
"""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Sequence
from dataclasses import replace

from millstream.streams.errors import SqlError
from millstream.streams.functions.casting import can_cast, common_type
from millstream.streams.functions.registry import AGGREGATES, FUNCTIONS
from millstream.streams.functions.spec import UNIT_ARGUMENTS, FunctionSpec
from millstream.streams.functions.unsupported import FLINK_ONLY
from millstream.streams.functions.user_functions.user import UserFunction
from millstream.streams.plan.evaluation import COMPARISONS
from millstream.streams.plan.expressions import Call, Case, Cast, Column, Expression, Literal
from millstream.streams.plan.types import BIGINT, BOOLEAN, DOUBLE, INT, MAX_DIGITS, NULL, STRING, DataType, TypeKind
from millstream.streams.sql.binder.arithmetic import arithmetic, negate
from millstream.streams.sql.binder.scopes import Scope, bind_name
from millstream.streams.sql.syntax.expressions import (
    BetweenTerm,
    CallTerm,
    CaseTerm,
    CastTerm,
    ExistsTerm,
    InQueryTerm,
    InTerm,
    IntervalTerm,
    IsTerm,
    LiteralTerm,
    NameTerm,
    Operation,
    QuantifiedTerm,
    QueryTerm,
    QuestionTerm,
    RowTerm,
    StarTerm,
    Term,
)
from millstream.streams.sql.syntax.script import Script, Span, did_you_mean
from millstream.streams.sql.syntax.terms import identity

__all__ = [
    "RANKINGS",
    "WINDOW_CALLS",
    "Scope",
    "bind_condition",
    "bind_literal",
    "bind_term",
    "convert_type",
    "did_you_mean",
    "identity",
    "window_key",
]

_INTERVAL_DAY = DataType(TypeKind.INTERVAL_DAY, nullable=False)
_INTERVAL_YEAR = DataType(TypeKind.INTERVAL_YEAR, nullable=False)
_INT_LIMIT = 2**31
_BIGINT_LIMIT = 2**63


def bind_literal(term: LiteralTerm | IntervalTerm, script: Script) -> Literal:
    """The literal with the type that Flink gives it. Raises SqlError at a number that fits no type."""
    if isinstance(term, IntervalTerm):
        return Literal(term.months, _INTERVAL_YEAR) if term.duration is None else Literal(term.duration, _INTERVAL_DAY)
    value = term.value
    if value is None:
        return Literal(None, NULL)
    if isinstance(value, bool):
        return Literal(value, BOOLEAN.as_nullable(False))
    if isinstance(value, int):
        if value >= _BIGINT_LIMIT:
            return Literal(decimal.Decimal(value), _decimal_type(decimal.Decimal(value), term, script))
        return Literal(value, (INT if value < _INT_LIMIT else BIGINT).as_nullable(False))
    if isinstance(value, decimal.Decimal):
        return Literal(value, _decimal_type(value, term, script))
    if isinstance(value, float):
        return Literal(value, DOUBLE.as_nullable(False))
    if isinstance(value, datetime.datetime):
        return Literal(value, DataType(TypeKind.TIMESTAMP, nullable=False, precision=term.digits))
    if isinstance(value, datetime.date):
        return Literal(value, DataType(TypeKind.DATE, nullable=False))
    if isinstance(value, bytes):
        return Literal(value, DataType(TypeKind.BYTES, nullable=False))
    return Literal(value, STRING.as_nullable(False))


def _decimal_type(value: decimal.Decimal, term: LiteralTerm, script: Script) -> DataType:
    _, digits, exponent = value.as_tuple()
    scale = -exponent if isinstance(exponent, int) else 0
    # Calcite counts the 0 before the point: 0.25 is a DECIMAL(3, 2).
    precision = max(len(digits), scale + 1 if scale else 0)
    if precision > MAX_DIGITS:
        raise script.error("SQL_TYPE", f"A number has at most {MAX_DIGITS} digits.", term.span)
    return DataType(TypeKind.DECIMAL, nullable=False, precision=precision, scale=scale)


_ORDERED = ("<", "<=", ">", ">=")

WINDOW_CALLS = ("TUMBLE", "HOP", "SESSION", "CUMULATE")
"""Group windows by name."""

RANKINGS = ("ROW_NUMBER", "RANK", "DENSE_RANK")
"""The functions whose places a Top-N filters."""

_WINDOW_FIELDS = ("_START", "_END", "_ROWTIME", "_PROCTIME")


def bind_condition(term: Term, scope: Scope) -> Expression:
    """The bound expression of WHERE, HAVING and the like; SQL_TYPE unless it is a BOOLEAN."""
    bound = bind_term(term, scope)
    if bound.type.kind not in (TypeKind.BOOLEAN, TypeKind.NULL):
        raise scope.script.error("SQL_TYPE", f"A condition is needed here, but this is {bound.type}.", term.span)
    return bound


def bind_term(term: Term, scope: Scope) -> Expression:
    """The bound and typed expression. Raises SqlError."""
    known = _find_replacement(term, scope)
    if known is not None:
        return known
    match term:
        case NameTerm():
            return bind_name(term, scope)
        case LiteralTerm() | IntervalTerm():
            return bind_literal(term, scope.script)
        case Operation():
            return _operation(term, scope)
        case CallTerm():
            return _call(term, scope)
        case CaseTerm():
            return _case(term, scope)
        case CastTerm():
            return _cast(term, scope)
        case InTerm() | BetweenTerm():
            return _membership(term, scope)
        case IsTerm():
            return _is(term, scope)
        case RowTerm(values=values):
            return _call(CallTerm("ROW", values, term.span, term.span), scope)
        case QueryTerm() | ExistsTerm() | InQueryTerm() | QuantifiedTerm() | StarTerm():
            raise _misplaced_error(term, scope)


def _is(term: IsTerm, scope: Scope) -> Expression:
    operand = bind_condition(term.operand, scope)
    certain = Call("COALESCE", (operand, Literal(not term.value, BOOLEAN)), BOOLEAN)
    return certain if term.value else Call("NOT", (certain,), BOOLEAN)


def _misplaced_error(term: QueryTerm | QuestionTerm | StarTerm, scope: Scope) -> SqlError:
    if isinstance(term, StarTerm):
        return scope.script.error("SQL_SYNTAX", "* stands alone in SELECT or inside COUNT(*).", term.span)
    message = f"A sub-query is not supported in {scope.place} at this place."
    remedy = "Move it into WHERE." if scope.place == "ON" else "Sub-queries stand in SELECT, WHERE and HAVING."
    return scope.script.error("SQL_UNSUPPORTED", message, term.span, remedy=remedy)


def _find_replacement(term: Term, scope: Scope) -> Expression | None:
    """What stands for the whole term here, as OVER, aggregates and grouped expressions have it."""
    if scope.replaced and (replaced := scope.replaced.get(identity(term))) is not None:
        return replaced
    if not scope.in_group or isinstance(term, NameTerm | LiteralTerm | IntervalTerm | StarTerm):
        return None
    if all(isinstance(key, Column) for key in scope.keys):
        return None
    try:
        below = bind_term(term, replace(scope, in_group=False, replaced={}, window=None))
    except SqlError:
        return None
    return scope.keys.get(below)


def window_key(term: CallTerm, scope: Scope) -> object:
    """A value that is equal for calls of one group window, however its time column is written: (name, time, sizes).

    The name is without _START and its kin.
    """
    time = bind_term(term.arguments[0], replace(scope, in_group=False, replaced={}, window=None))
    base = next((name for name in WINDOW_CALLS if term.name == name or term.name.startswith(f"{name}_")), term.name)
    return base, time, identity(term.arguments[1:])


def _cast(term: CastTerm, scope: Scope) -> Expression:
    operand = bind_term(term.operand, scope)
    if not can_cast(operand.type, term.type):
        raise scope.script.error("SQL_TYPE", f"CAST of {operand.type} AS {term.type} is not possible.", term.span)
    return convert_type(operand, term.type, safe=term.safe, explicit=True)


def convert_type(expression: Expression, wanted: DataType, *, safe: bool = False, explicit: bool = False) -> Expression:
    """The expression in another type; itself where it has that type already."""
    have = expression.type
    same = (have.kind, have.scale, have.elements, have.fields) == (
        wanted.kind, wanted.scale, wanted.elements, wanted.fields,
    )  # fmt: skip
    if same and (not explicit or (have.precision, have.fixed) == (wanted.precision, wanted.fixed)):
        return expression
    # A text that does not fit becomes NULL.
    return Cast(expression, wanted.as_nullable(have.nullable or safe or have.kind is TypeKind.STRING), safe)


def _operation(term: Operation, scope: Scope) -> Expression:
    operator = term.operator
    if operator in ("AND", "OR", "NOT"):
        conditions = tuple(bind_condition(operand, scope) for operand in term.operands)
        return Call(operator, conditions, BOOLEAN)
    if operator in ("=", "<>") and (pairs := _equal_rows(term.operands[0], term.operands[1:])) is not None:
        equal = bind_term(pairs, scope)
        return equal if operator == "=" else Call("NOT", (equal,), BOOLEAN)
    operands = [bind_term(operand, scope) for operand in term.operands]
    if operator in ("IS NULL", "IS NOT NULL"):
        return Call(operator, tuple(operands), BOOLEAN.as_nullable(False))
    if operator == "IS DISTINCT FROM":
        return replace(_comparison(operator, operands, term, scope), type=BOOLEAN.as_nullable(False))
    if operator in COMPARISONS:
        return _comparison(operator, operands, term, scope)
    if operator in ("LIKE", "SIMILAR"):
        for operand, part in zip(operands, term.operands, strict=True):
            _need_text(operand, operator, part.span, scope)
        if len(operands) == 3 and isinstance(operands[2], Literal) and len(str(operands[2].value)) != 1:
            raise scope.script.error("SQL_TYPE", "ESCAPE takes one character.", term.operands[2].span)
        return Call(operator, tuple(operands), BOOLEAN)
    if operator == "||":
        of_bytes = all(operand.type.kind in (TypeKind.BYTES, TypeKind.NULL) for operand in operands)
        wanted = DataType(TypeKind.BYTES) if of_bytes else STRING
        return Call("CONCAT", tuple(convert_type(operand, wanted) for operand in operands), wanted)
    if operator == "NEGATE":
        return negate(operands[0], term.span, scope.script)
    return arithmetic(operator, operands[0], operands[1], term.span, scope.script)


def _equal_rows(operand: Term, options: tuple[Term, ...]) -> Term | None:
    """Rows of one length compared value by value, where a NULL leaves unknown what the others do not decide."""
    if not isinstance(operand, RowTerm) or not all(
        isinstance(of, RowTerm) and len(of.values) == len(operand.values) for of in options
    ):
        return None
    found: list[Term] = []
    for row in options:
        assert isinstance(row, RowTerm)
        pairs = zip(operand.values, row.values, strict=True)
        equal = tuple(Operation("=", pair, pair[0].span.to(pair[1].span)) for pair in pairs)
        found.append(Operation("AND", equal, row.span))
    return found[0] if len(found) == 1 else Operation("OR", tuple(found), operand.span.to(options[-1].span))


def _need_text(operand: Expression, operator: str, span: Span, scope: Scope) -> None:
    if operand.type.kind not in (TypeKind.STRING, TypeKind.NULL):
        raise scope.script.error("SQL_TYPE", f"{operator} wants a string, but this is {operand.type}.", span)


def _comparison(operator: str, operands: list[Expression], term: Operation, scope: Scope) -> Call:
    aligned = _align_types(operands, term.span, scope)
    if operator in _ORDERED and aligned[0].type.kind in (TypeKind.ROW, TypeKind.MAP, TypeKind.ARRAY, TypeKind.VARIANT):
        raise scope.script.error("SQL_TYPE", f"{aligned[0].type} has no order.", term.span)
    return Call(operator, tuple(aligned), BOOLEAN)


def _align_types(operands: Sequence[Expression], span: Span, scope: Scope) -> list[Expression]:
    """The operands in their common type; text is read as the other side's time or number, as Flink does."""
    types = [operand.type for operand in operands]
    others = [data_type for data_type in types if data_type.kind not in (TypeKind.STRING, TypeKind.NULL)]
    texts = [data_type for data_type in types if data_type.kind is TypeKind.STRING]
    try:
        wanted = common_type(others if texts and others else types)
    except TypeError:
        shown = " and ".join(str(data_type) for data_type in types)
        raise scope.script.error("SQL_TYPE", f"{shown} cannot be compared.", span) from None
    if (
        texts
        and others
        and not (wanted.is_number or wanted.is_timestamp or wanted.kind in (TypeKind.DATE, TypeKind.BOOLEAN))
    ):
        raise scope.script.error("SQL_TYPE", f"STRING and {wanted} cannot be compared.", span)
    return [
        operand if operand.type.is_number and wanted.is_number else convert_type(operand, wanted)
        for operand in operands
    ]


def _case(term: CaseTerm, scope: Scope) -> Expression:
    results = [bind_term(result, scope) for _, result in term.branches]
    otherwise = None if term.otherwise is None else bind_term(term.otherwise, scope)
    conditions = []
    for condition, _ in term.branches:
        if term.operand is None:
            conditions.append(bind_condition(condition, scope))
        else:
            equal = Operation("=", (term.operand, condition), condition.span)
            conditions.append(_operation(equal, scope))
    everything = results if otherwise is None else [*results, otherwise]
    wanted = _common(everything, term.span, scope)
    branches = tuple(
        (condition, convert_type(result, wanted)) for condition, result in zip(conditions, results, strict=True)
    )
    return Case(branches, None if otherwise is None else convert_type(otherwise, wanted), wanted)


def _common(values: Sequence[Expression], span: Span, scope: Scope) -> DataType:
    try:
        return common_type([value.type for value in values])
    except TypeError as error:
        raise scope.script.error("SQL_TYPE", f"The results have no common type: {error}.", span) from None


def _membership(term: InTerm | BetweenTerm, scope: Scope) -> Expression:
    if isinstance(term, InTerm) and (rows := _equal_rows(term.operand, term.options)) is not None:
        return bind_term(rows, scope)
    function, others = ("IN", term.options) if isinstance(term, InTerm) else ("BETWEEN", (term.low, term.high))
    parts = [bind_term(part, scope) for part in (term.operand, *others)]
    return Call(function, tuple(_align_types(parts, term.span, scope)), BOOLEAN)


def _call(term: CallTerm, scope: Scope) -> Expression:
    name = term.name
    if term.over is not None or name in RANKINGS:
        message = f"{name} {'OVER' if term.over is not None else 'without OVER'} is not possible in {scope.place}."
        remedy = "It stands in SELECT, with OVER (PARTITION BY ... ORDER BY ...)."
        raise scope.script.error("SQL_SYNTAX", message, term.span, remedy=remedy)
    if name in AGGREGATES or scope.script.aggregate(name) is not None:
        message = f"The aggregate {name} is not possible in {scope.place}."
        raise scope.script.error("SQL_SYNTAX", message, term.span)
    if name in WINDOW_CALLS or any(name == window + part for window in WINDOW_CALLS for part in _WINDOW_FIELDS):
        return _window_bound(term, scope)
    if name in ("GROUPING", "GROUPING_ID", "GROUP_ID"):
        return _grouping(term, scope)
    if name == "CURRENT_DATABASE" and not term.arguments and scope.script.user_function(name) is None:
        return Literal(scope.script.database(), STRING.as_nullable(False))
    spec = _spec(term, scope)
    if term.star or term.distinct or term.filter is not None:
        raise scope.script.error("SQL_SYNTAX", f"{name} takes plain arguments.", term.span)
    arguments = [bind_term(argument, scope) for argument in term.arguments]
    if len(arguments) < spec.min_args or (spec.max_args is not None and len(arguments) > spec.max_args):
        most = "or more" if spec.max_args is None else f"to {spec.max_args}"
        wanted = str(spec.min_args) if spec.min_args == spec.max_args else f"{spec.min_args} {most}"
        message = f"{name} takes {wanted} arguments, not {len(arguments)}, as in {spec.example}."
        raise scope.script.error("SQL_UNKNOWN_FUNCTION", message, term.span)
    literals = [argument.value if isinstance(argument, Literal) else None for argument in arguments]
    types = [argument.type for argument in arguments]
    try:
        result, wanted_types = spec.type_rule(types, literals), spec.wanted_types(types)
    except TypeError as error:
        given = ", ".join(map(str, types))
        message = f"{name} wants {error}, not ({given})."
        raise scope.script.error("SQL_TYPE", message, term.span, remedy=f"As in {spec.example}.") from None
    _check_unit(term, scope)
    adapted = zip(arguments, wanted_types, strict=True)
    function = spec.call_name if isinstance(spec, UserFunction) else name
    return Call(function, tuple(have if new is None else convert_type(have, new) for have, new in adapted), result)


def _spec(term: CallTerm, scope: Scope) -> FunctionSpec | UserFunction:
    """The function that the call names: one of the user's, or of the registry."""
    name = term.name
    found = scope.script.user_function(name) or FUNCTIONS.get(name)
    if found is not None:
        return found
    if name in FLINK_ONLY:
        message = f"The function {name} is not supported: {FLINK_ONLY[name]}"
        remedy = "See docs/functions.md for those that are."
        raise scope.script.error("SQL_UNSUPPORTED", message, term.name_span, remedy=remedy)
    hint = did_you_mean(name, (*FUNCTIONS, *AGGREGATES)) or "See docs/functions.md for the functions."
    raise scope.script.error("SQL_UNKNOWN_FUNCTION", f"There is no function {name}.", term.name_span, remedy=hint)


def _window_bound(term: CallTerm, scope: Scope) -> Expression:
    """TUMBLE_START(...) and its kin: a column of the window that is grouped by."""
    suffix = term.name.rpartition("_")[2]
    if scope.window is not None and term.arguments and window_key(term, scope) == scope.window.key:
        found = scope.window.columns.get(suffix)
        if found is not None:
            return found
    base = term.name.partition("_")[0]
    message = f"{term.name} needs GROUP BY {base} with the same arguments."
    raise scope.script.error("SQL_UNSUPPORTED", message, term.span)


def _grouping(term: CallTerm, scope: Scope) -> Expression:
    """GROUPING(a) is 1 in the rows of the sets without `a`; GROUPING_ID(a, b) joins such bits."""
    below = replace(scope, in_group=False, replaced={})
    found = scope.grouping([bind_term(part, below) for part in term.arguments]) if scope.grouping else None
    if found is None:
        message = f"{term.name} takes expressions of GROUP BY, in a query that groups."
        raise scope.script.error("SQL_SYNTAX", message, term.span)
    return found


def _check_unit(term: CallTerm, scope: Scope) -> None:
    """The unit of a function that has one must stand there as a word: it decides how the function works."""
    argument = UNIT_ARGUMENTS.get(term.name)
    if argument is None or len(term.arguments) <= argument.place:
        return
    unit = term.arguments[argument.place]
    text = unit.value if isinstance(unit, LiteralTerm) else None
    if not isinstance(text, str) or text.upper().removeprefix("SQL_TSI_") not in argument.units:
        message = f"{term.name} needs a unit of time here."
        raise scope.script.error("SQL_TYPE", message, unit.span, remedy=f"Use one of {', '.join(argument.units)}.")
