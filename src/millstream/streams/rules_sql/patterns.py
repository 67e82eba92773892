"""LIKE, SIMILAR TO and REGEXP as atoms, with the cheapest atom that says it."""

from __future__ import annotations

import re

from millstream.streams.functions.text.text_patterns import ANY_CHARACTER, ANY_TEXT, like_parts, similar_expression
from millstream.streams.rules.conditions import Condition, Truth, negate
from millstream.streams.rules.predicates import Op
from millstream.streams.rules_sql.java_patterns import CannotBeRewritten, python_pattern
from millstream.streams.rules_sql.operands import InexpressibleCondition, TextOperand

__all__ = ["like", "regexp", "similar"]

_WILD = {ANY_CHARACTER: "(?s:.)", ANY_TEXT: "(?s:.*)"}


def like(operand: TextOperand, pattern: str, escape: str | None) -> Condition:
    """The text LIKE the pattern."""
    given = like_parts(pattern, escape)
    if given is None:
        return Truth(None)
    parts = [one for place, one in enumerate(given) if one is not ANY_TEXT or given[place - 1 : place] != [ANY_TEXT]]
    match parts:
        case []:
            return operand.compare("=", "")
        case [str(text)]:
            return operand.compare("=", text)
        case [None]:
            return negate(operand.never())
        case [None, str(text), None]:
            return operand.test(Op.CONTAINS, text)
        case [str(text), None]:
            return operand.test(Op.STARTS, text)
        case [None, str(text)]:
            return operand.test(Op.ENDS, text)
    return operand.match_pattern(rf"\A{''.join(_part(one) for one in parts)}\Z")


def similar(operand: TextOperand, pattern: str, escape: str | None) -> Condition:
    """The text SIMILAR TO the pattern. Raises CannotBeSaid."""
    return _find_pattern(operand, similar_expression(pattern, escape))


def regexp(operand: TextOperand, pattern: str) -> Condition:
    """REGEXP, which finds a blank pattern nowhere. Raises CannotBeSaid."""
    return _find_pattern(operand, pattern) if pattern else operand.never()


def _find_pattern(operand: TextOperand, pattern: str) -> Condition:
    try:
        rewritten = python_pattern(pattern)
    except CannotBeRewritten as refusal:
        raise InexpressibleCondition(f"of its regular expression: {refusal}") from None
    try:
        re.compile(rewritten)
    except (re.error, OverflowError, RecursionError):
        raise InexpressibleCondition("its regular expression is none of Python") from None
    return operand.match_pattern(rewritten)


def _part(part: str | int | None) -> str:
    return re.escape(part) if isinstance(part, str) else _WILD[part]
