"""Parses SQL conditions without a table: names are fields, typed by comparison.

A text is compared with a text, a number with a number. Logic is SQL's: a field that is not there is unknown.
"""

from __future__ import annotations

import decimal
import ipaddress
from collections.abc import Callable, Sequence
from typing import Final, NoReturn

import msgspec

from millstream.streams.plan.evaluation import FLIPPED
from millstream.streams.rules.conditions import (
    OF_TWO_FIELDS,
    All,
    AnyOf,
    Condition,
    Not,
    Op,
    Operand,
    Predicate,
    TextStep,
    Truth,
    all_of,
    any_of,
    negate,
)
from millstream.streams.rules_sql.from_sql import replace_unknown
from millstream.streams.rules_sql.operands import InexpressibleCondition, TextOperand
from millstream.streams.rules_sql.patterns import like, regexp, similar
from millstream.streams.sql.parser.grammar import cursor_of
from millstream.streams.sql.syntax.expressions import (
    BetweenTerm,
    CallTerm,
    InTerm,
    IsTerm,
    LiteralTerm,
    NameTerm,
    Operation,
    Term,
)
from millstream.streams.sql.syntax.script import Script

__all__ = ["condition_of_text"]

_COMPARISONS: Final = {"<": Op.LESS, "<=": Op.LESS_EQUAL, ">": Op.GREATER, ">=": Op.GREATER_EQUAL}
_STEPS: Final = {"LOWER": TextStep.LOWER, "UPPER": TextStep.UPPER, "TRIM": TextStep.TRIM, "BTRIM": TextStep.TRIM}
_SEARCHES: Final = {"STARTSWITH": Op.STARTS, "ENDSWITH": Op.ENDS, "CONTAINS": Op.CONTAINS}


def condition_of_text(text: str, *, caseless: bool) -> Condition:
    """The formula of a text such as `EventID IN (1, 4688) AND Image LIKE '%.exe'`. Raises SqlError with the place."""
    script = Script(text)
    cursor = cursor_of(script)
    term = cursor.term()
    if not cursor.at_end:
        raise cursor.expected_error("AND, OR or the end of the condition")
    formula = _Reading(script).condition(term)
    return _caseless(formula) if caseless else formula


class _Reading:
    def __init__(self, script: Script) -> None:
        self._script = script

    def condition(self, term: Term) -> Condition:
        match term:
            case Operation(operator="AND", operands=operands):
                return all_of(*map(self.condition, operands))
            case Operation(operator="OR", operands=operands):
                return any_of(*map(self.condition, operands))
            case Operation(operator="NOT", operands=(inner,)):
                return negate(self.condition(inner))
            case IsTerm(operand=operand, value=value):
                held = replace_unknown(self.condition(operand), not value)
                return held if value else negate(held)
            case LiteralTerm(value=bool() | None as value):
                return Truth(value)
            case _:
                return self._question(term)

    def _question(self, term: Term) -> Condition:
        match term:
            case Operation(operator="IS NULL", operands=(inner,)):
                return Predicate(self._name(inner), Op.IS_NULL, whole_lists=True)
            case Operation(operator="IS NOT NULL", operands=(inner,)):
                return negate(Predicate(self._name(inner), Op.IS_NULL, whole_lists=True))
            case Operation(operator="LIKE" | "SIMILAR", operands=operands):
                return self._pattern(term, operands)
            case Operation(operator=operator, operands=(left, right)) if operator in FLIPPED:
                return self._compare(operator, left, right)
            case BetweenTerm(operand=operand, low=low, high=high):
                return all_of(self._compare(">=", operand, low), self._compare("<=", operand, high))
            case InTerm(operand=operand, options=options):
                return self._one_of(operand, options)
            case NameTerm():
                return Predicate(self._name(term), Op.IN, (True,))
            case CallTerm():
                return self._call(term)
            case _:
                self._refuse(term, "This is no condition on a field.")

    def _compare(self, operator: str, left: Term, right: Term) -> Condition:
        if _is_constant(left) and not _is_constant(right):
            return self._compare(FLIPPED[operator], right, left)
        if operator == "<>":
            return negate(self._compare("=", left, right))
        operand = self._operand(left)
        if not _is_constant(right):
            other = self._operand(right)
            if operator != "=" or operand.steps != other.steps:
                self._refuse(right, "Two fields can only be asked whether they are equal.")
            return Predicate(operand.field, Op.EQUALS_FIELD, (other.field,), steps=operand.steps)
        value = self._value(right)
        if value is None:
            return Truth(None)
        if isinstance(value, bool) and operator != "=":
            self._refuse(right, "A truth value is neither less nor greater.")
        return self._test_operand(right, operand, Op.IN if operator == "=" else _COMPARISONS[operator], [value])

    def _one_of(self, operand: Term, options: Sequence[Term]) -> Condition:
        by_kind: dict[type, list[Operand]] = {}
        unknown = False
        for option in options:
            value = self._value(option)
            if value is None:
                unknown = True
                continue
            by_kind.setdefault(type(value) if isinstance(value, (str, bool)) else float, []).append(value)
        parts = [
            self._test_operand(operand, self._operand(operand), Op.IN, list(dict.fromkeys(values)))
            for values in by_kind.values()
        ]
        return any_of(*parts, *([Truth(None)] if unknown else []))

    def _test_operand(self, place: Term, operand: TextOperand, op: Op, values: list[Operand]) -> Condition:
        if isinstance(values[0], str):
            return operand.test(op, *values)
        if operand.steps:
            self._refuse(place, "What LOWER, UPPER or TRIM gives is compared with a text.")
        return Predicate(operand.field, op, tuple(values))

    def _pattern(self, term: Operation, operands: Sequence[Term]) -> Condition:
        operand, pattern = self._operand(operands[0]), self._text(operands[1])
        escape = self._text(operands[2]) if len(operands) > 2 else None
        build = like if term.operator == "LIKE" else similar
        try:
            return build(operand, pattern, escape)
        except (InexpressibleCondition, ValueError) as refusal:
            self._refuse(operands[1], f"This cannot be asked: {refusal}.")

    def _call(self, call: CallTerm) -> Condition:
        name = call.name.upper()
        ask = self._networks if name == "CIDR_MATCH" else self._regexp if name == "REGEXP" else self._search_text
        if ask == self._search_text and name not in _SEARCHES:
            known = ", ".join((*_SEARCHES, "REGEXP", "CIDR_MATCH", "LOWER", "UPPER", "TRIM"))
            self._refuse(call, f"{name} cannot be asked of a field; there are {known}.")
        if len(call.arguments) < 2 or (len(call.arguments) > 2 and name != "CIDR_MATCH"):
            self._refuse(call, f"{name} takes a field and a text.")
        return ask(name, self._operand(call.arguments[0]), call.arguments[1:])

    def _search_text(self, name: str, operand: TextOperand, arguments: Sequence[Term]) -> Condition:
        return operand.test(_SEARCHES[name], self._text(arguments[0]))

    def _regexp(self, _name: str, operand: TextOperand, arguments: Sequence[Term]) -> Condition:
        try:
            return regexp(operand, self._text(arguments[0]))
        except InexpressibleCondition as refusal:
            self._refuse(arguments[0], f"This cannot be asked: {refusal}.")

    def _networks(self, _name: str, operand: TextOperand, arguments: Sequence[Term]) -> Condition:
        networks = []
        for one in arguments:
            try:
                networks.append(str(ipaddress.ip_network(self._text(one), strict=False)))
            except ValueError as error:
                self._refuse(one, f"Expected a network such as '10.0.0.0/8': {error}.")
        return Predicate(operand.field, Op.CIDR, tuple(networks))

    def _operand(self, term: Term) -> TextOperand:
        match term:
            case NameTerm():
                return TextOperand(self._name(term))
            case CallTerm(name=name, arguments=(inner,)) if name.upper() in _STEPS:
                operand = self._operand(inner)
                return TextOperand(operand.field, steps=(*operand.steps, _STEPS[name.upper()]))
            case _:
                self._refuse(term, "Expected a field, perhaps within LOWER, UPPER or TRIM.")

    def _name(self, term: Term) -> str:
        if not isinstance(term, NameTerm):
            self._refuse(term, "Expected a field.")
        return ".".join(term.parts)

    def _value(self, term: Term) -> Operand | None:
        match term:
            case LiteralTerm(value=decimal.Decimal() as number):
                return float(number)
            case LiteralTerm(value=str() | bool() | int() | float() | None as value):
                return value
            case Operation(
                operator="NEGATE", operands=(LiteralTerm(value=int() | float() | decimal.Decimal() as number),)
            ):
                return -number if isinstance(number, (int, float)) else -float(number)
            case _:
                self._refuse(term, "Expected a text, a number, TRUE, FALSE or NULL.")

    def _text(self, term: Term) -> str:
        value = self._value(term)
        if not isinstance(value, str):
            self._refuse(term, "Expected a text.")
        return value

    def _refuse(self, term: Term, words: str) -> NoReturn:
        raise self._script.error("SQL_SYNTAX", words, term.span, remedy="")


def _is_constant(term: Term) -> bool:
    return isinstance(term, LiteralTerm) or (isinstance(term, Operation) and term.operator == "NEGATE")


def _caseless(formula: Condition) -> Condition:
    """The same, where texts are compared whatever their case."""
    joined: Callable[..., Condition]
    match formula:
        case Predicate(op=op, operands=operands) if op in OF_TWO_FIELDS or (op is not Op.CIDR and _are_texts(operands)):
            return msgspec.structs.replace(formula, caseless=True)
        case Not(part=part):
            return negate(_caseless(part))
        case All(parts=parts) | AnyOf(parts=parts):
            joined = all_of if isinstance(formula, All) else any_of
            return joined(*map(_caseless, parts))
        case _:
            return formula


def _are_texts(operands: Sequence[Operand]) -> bool:
    return bool(operands) and isinstance(operands[0], str)
