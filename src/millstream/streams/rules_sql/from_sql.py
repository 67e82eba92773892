"""Converts SQL conditions to formulas of atoms with exactly Spark's semantics, NULL included.

Fields are the columns that the condition names, and fields of ROW columns (`place->city`). What cannot be said is
refused with the reason and stays with SQL. Letters become small and capital as Python's tables of characters say; those
of Spark may be of a later Unicode.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec

from millstream.streams.functions.text.networks import network_of_text
from millstream.streams.plan.evaluation import FLIPPED
from millstream.streams.plan.expressions import Call, Case, Cast, Expression, Literal, operands_of_and
from millstream.streams.plan.types import TypeKind
from millstream.streams.rules.conditions import All, AnyOf, Condition, Not, Op, Predicate, Truth, all_of, any_of, negate
from millstream.streams.rules_sql.operands import (
    InexpressibleCondition,
    TextOperand,
    constant_text,
    field_of,
    number_operand,
    text_operand,
)
from millstream.streams.rules_sql.patterns import like, regexp, similar

__all__ = ["Conjuncts", "InexpressibleCondition", "condition_of", "replace_unknown", "split_conjuncts"]

_NEGATIVE = {"<>": "="}


@dataclass(frozen=True, slots=True)
class Conjuncts:
    """The parts of a condition that are joined by AND: `said` together, `rest` as they are, each with its reason."""

    said: Condition
    rest: tuple[Expression, ...] = ()
    reasons: tuple[str, ...] = ()


def split_conjuncts(predicates: Sequence[Expression]) -> Conjuncts:
    """What of the predicates, which all have to hold, can be said."""
    conditions: list[Condition] = []
    rest: list[Expression] = []
    reasons: list[str] = []
    for conjunct in (one for predicate in predicates for one in operands_of_and(predicate)):
        try:
            conditions.append(_of_columns(condition_of(conjunct)))
        except InexpressibleCondition as refusal:
            rest.append(conjunct)
            reasons.append(f"{conjunct}: {refusal}")
    return Conjuncts(all_of(*conditions), tuple(rest), tuple(reasons))


def _of_columns(formula: Condition) -> Condition:
    """The same of columns, whose lists are values as others are."""
    match formula:
        case Predicate():
            return msgspec.structs.replace(formula, whole_lists=True)
        case Not(part=part):
            return Not(_of_columns(part))
        case All(parts=parts) | AnyOf(parts=parts):
            return type(formula)(tuple(map(_of_columns, parts)))
        case Truth():
            return formula


def condition_of(condition: Expression) -> Condition:
    """The formula that is true, false or unknown where the condition is. Raises CannotBeSaid."""
    match condition:
        case Literal(value=bool(value)):
            return Truth(value)
        case _ if _is_null_literal(condition):
            return Truth(None)
        case _ if (name := field_of(condition)) is not None and condition.type.kind is TypeKind.BOOLEAN:
            return Predicate(name, Op.IN, (True,))
        case Case(branches=branches, otherwise=otherwise):
            return _case(branches, otherwise)
        case Call(function=function, arguments=arguments):
            build = _CALLS.get(function)
            if build is None:
                raise InexpressibleCondition(f"{function} is no question to one column")
            return build(arguments)
    raise InexpressibleCondition("it is no condition on one column")


def replace_unknown(formula: Condition, unknown: bool) -> Condition:
    """The same with `unknown` in the place of unknown, for the whole of it: COALESCE(formula, unknown)."""
    match formula:
        case Predicate(op=Op.IS_NULL):
            return formula
        case Predicate(absent=None):
            return msgspec.structs.replace(formula, absent=unknown)
        case Predicate():
            return formula
        case Truth(value=value):
            return Truth(unknown if value is None else value)
        case Not(part=part):
            return negate(replace_unknown(part, not unknown))
        case All(parts=parts):
            return all_of(*(replace_unknown(part, unknown) for part in parts))
        case AnyOf(parts=parts):
            return any_of(*(replace_unknown(part, unknown) for part in parts))


def _case(branches: Sequence[tuple[Expression, Expression]], otherwise: Expression | None) -> Condition:
    result = Truth(None) if otherwise is None else condition_of(otherwise)
    for condition, value in reversed(branches):
        result = _choose(replace_unknown(condition_of(condition), False), condition_of(value), result)
    return result


def _choose(condition: Condition, then: Condition, otherwise: Condition) -> Condition:
    """One or the other; the condition is never unknown."""
    return any_of(all_of(condition, then), all_of(negate(condition), otherwise))


def _coalesce(arguments: Sequence[Expression]) -> Condition:
    *firsts, result = map(condition_of, arguments)
    for first in reversed(firsts):
        if isinstance(result, Truth) and result.value is not None:
            result = replace_unknown(first, result.value)
        else:
            result = _choose(negate(_is_unknown(first)), first, result)
    return result


def _is_unknown(formula: Condition) -> Condition:
    return all_of(replace_unknown(formula, True), negate(replace_unknown(formula, False)))


def _is_null(arguments: Sequence[Expression]) -> Condition:
    (operand,) = arguments
    name = field_of(operand)
    if name is not None:
        return Predicate(name, Op.IS_NULL)
    if operand.type.kind is TypeKind.BOOLEAN:
        return _is_unknown(condition_of(operand))
    if operand.type.kind is TypeKind.STRING:
        return text_operand(operand).is_null()
    raise InexpressibleCondition("whether what is computed is NULL is no question to one column")


def _comparison_builder(operator: str) -> Callable[[Sequence[Expression]], Condition]:
    return lambda arguments: _comparison(operator, arguments[0], arguments[1])


def _comparison(operator: str, left: Expression, right: Expression) -> Condition:
    if isinstance(left, Literal) and not isinstance(right, Literal) and not _is_null_literal(right):
        return _comparison(FLIPPED[operator], right, left)
    if operator in _NEGATIVE:
        return negate(_comparison(_NEGATIVE[operator], left, right))
    if _is_null_literal(left) or _is_null_literal(right):
        return Truth(None)
    if isinstance(left, Call) and left.function in _PLACES and isinstance(right, Literal):
        return _place(left, operator, right)
    if left.type.kind is TypeKind.BOOLEAN and right.type.kind is TypeKind.BOOLEAN:
        return _equal_conditions(operator, left, right)
    if left.type.kind is TypeKind.STRING and right.type.kind is TypeKind.STRING:
        return _texts(operator, left, right)
    if isinstance(right, Literal) and left.type.is_number:
        return number_operand(left).compare(operator, right)
    raise InexpressibleCondition("it compares more than a column with a constant of its kind")


def _texts(operator: str, left: Expression, right: Expression) -> Condition:
    operand = text_operand(left)
    if isinstance(right, Literal):
        return operand.compare(operator, constant_text(right))
    other = text_operand(right)
    if operator != "=" or operand.steps != other.steps or operand.default is not None or other.default is not None:
        raise InexpressibleCondition("it compares two columns otherwise than as they are")
    return Predicate(operand.field, Op.EQUALS_FIELD, (other.field,), steps=operand.steps)


def _equal_conditions(operator: str, left: Expression, right: Expression) -> Condition:
    if operator != "=" or not isinstance(right, Literal):
        raise InexpressibleCondition("it compares two conditions")
    return condition_of(left) if right.value else negate(condition_of(left))


def _place(call: Call, operator: str, wanted: Literal) -> Condition:
    """POSITION(part IN text) > 0 and what says the same."""
    text, part = _PLACES[call.function](call.arguments)
    operand, found = text_operand(text), constant_text(part)
    if not found or len(call.arguments) > 2:
        raise InexpressibleCondition(f"{call.function} looks for nothing, or from a place on")
    match operator, wanted.value:
        case (">", 0) | (">=", 1):
            return operand.test(Op.CONTAINS, found)
        case ("=" | "<=", 0) | ("<", 1):
            return negate(operand.test(Op.CONTAINS, found))
        case ("=", 1):
            return operand.test(Op.STARTS, found)
    raise InexpressibleCondition(f"only whether {call.function} is 0 or 1 is a question to one column")


def _between(arguments: Sequence[Expression]) -> Condition:
    value, low, high = arguments
    return all_of(_comparison(">=", value, low), _comparison("<=", value, high))


def _in(arguments: Sequence[Expression]) -> Condition:
    value, *options = arguments
    known = [option for option in options if isinstance(option, Literal) and option.value is not None]
    others = [_comparison("=", value, option) for option in options if option not in known]
    return any_of(*([_one_of(value, known)] if known else []), *others)


def _one_of(value: Expression, options: Sequence[Literal]) -> Condition:
    if value.type.kind is TypeKind.STRING and all(option.type.kind is TypeKind.STRING for option in options):
        return text_operand(value).one_of([constant_text(option) for option in options])
    if value.type.is_number:
        return number_operand(value).one_of(options)
    return any_of(*(_comparison("=", value, option) for option in options))


def _distinct(arguments: Sequence[Expression]) -> Condition:
    left, right = arguments
    if isinstance(left, Literal):
        left, right = right, left
    if _is_null_literal(right):
        return negate(_is_null([left]))
    if not isinstance(right, Literal):
        raise InexpressibleCondition("it compares two columns")
    return negate(replace_unknown(_comparison("=", left, right), False))


def _text_search_builder(op: Op) -> Callable[[Sequence[Expression]], Condition]:
    def ask(arguments: Sequence[Expression]) -> Condition:
        text, part = arguments
        operand = text_operand(text)
        return Truth(None) if _is_null_literal(part) else operand.test(op, constant_text(part))

    return ask


def _pattern(
    build: Callable[[TextOperand, str, str | None], Condition],
) -> Callable[[Sequence[Expression]], Condition]:
    def ask(arguments: Sequence[Expression]) -> Condition:
        if any(map(_is_null_literal, arguments[1:])):
            return Truth(None)
        pattern, *escape = map(constant_text, arguments[1:])
        return build(text_operand(arguments[0]), pattern, escape[0] if escape else None)

    return ask


def _is_null_literal(expression: Expression) -> bool:
    value = expression.operand if isinstance(expression, Cast) else expression
    return isinstance(value, Literal) and value.value is None


def _networks(arguments: Sequence[Expression]) -> Condition:
    operand = text_operand(arguments[0])
    networks = [constant_text(one) for one in arguments[1:]]
    if operand.steps or operand.default is not None:
        raise InexpressibleCondition("the address is computed")
    try:
        for one in networks:
            network_of_text(one)
    except ValueError as error:
        raise InexpressibleCondition(str(error)) from None
    return Predicate(operand.field, Op.CIDR, tuple(dict.fromkeys(networks)))


def _choice(arguments: Sequence[Expression]) -> Condition:
    condition, then, otherwise = arguments
    return _case([(condition, then)], otherwise)


_PLACES: dict[str, Callable[[Sequence[Expression]], tuple[Expression, Expression]]] = {
    "POSITION": lambda arguments: (arguments[1], arguments[0]),
    "LOCATE": lambda arguments: (arguments[1], arguments[0]),
    "INSTR": lambda arguments: (arguments[0], arguments[1]),
}

_CALLS: dict[str, Callable[[Sequence[Expression]], Condition]] = {
    "AND": lambda arguments: all_of(*map(condition_of, arguments)),
    "OR": lambda arguments: any_of(*map(condition_of, arguments)),
    "NOT": lambda arguments: negate(condition_of(arguments[0])),
    **{operator: _comparison_builder(operator) for operator in FLIPPED},
    "BETWEEN": _between,
    "IN": _in,
    "IS NULL": _is_null,
    "IS NOT NULL": lambda arguments: negate(_is_null(arguments)),
    "IS DISTINCT FROM": _distinct,
    "COALESCE": _coalesce,
    "IFNULL": _coalesce,
    "NVL": _coalesce,
    "IF": _choice,
    "LIKE": _pattern(like),
    "SIMILAR": _pattern(similar),
    "REGEXP": _pattern(lambda operand, pattern, _escape: regexp(operand, pattern)),
    "STARTSWITH": _text_search_builder(Op.STARTS),
    "ENDSWITH": _text_search_builder(Op.ENDS),
    "CIDR_MATCH": _networks,
}
