"""The terms of a SQL92 filter, each compiled to one function of the properties.

A condition is True, False or None (unknown). A property is text; where a number or a truth value is asked for, it is
read as one. A missing property, and text that cannot be read so, make the condition unknown.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final, TypeVar

from millstream.model import properties as names
from millstream.model.filter import java_hash_code

__all__ = [
    "MAX_NUMBER_CHARACTERS",
    "Condition",
    "FilterTerm",
    "FilterTermKind",
    "between",
    "codes_of",
    "compare_numbers",
    "condition",
    "every",
    "is_null",
    "match_text",
    "negate",
    "number_of",
    "one_of",
    "same",
    "some",
]

MAX_NUMBER_CHARACTERS: Final = 64
"""Characters of a property that is read as a number at most; longer text is no number."""

_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)
_TRUTHS: Final = {"true": True, "false": False}

_T = TypeVar("_T")
_Properties = Mapping[str, str]
_Reading = Callable[[_Properties], _T | None]
_Number = int | float
Condition = _Reading[bool]
"""Whether it holds for a message with these properties; None is unknown."""


class FilterTermKind(Enum):
    """What a term gives; the value names it in errors."""

    PROPERTY = "a property"
    TEXT = "a text"
    NUMBER = "a number"
    CONDITION = "a condition"
    NULL = "NULL"


@dataclass(frozen=True, slots=True)
class FilterTerm:
    """A part of a filter.

    `value` is a literal or a property's name; `holds` is a condition's function. `tag_codes` are the hash codes of the
    tags without which the condition never holds, None where it says nothing about tags.
    """

    kind: FilterTermKind
    position: int
    value: str | _Number = ""
    holds: Condition | None = None
    tag_codes: frozenset[int] | None = None


def condition(term: FilterTerm) -> Condition:
    """The term as a condition: a property says true or false, in any case; anything else that it says is unknown."""
    if term.holds is not None:
        return term.holds
    if term.kind is FilterTermKind.TEXT or term.kind is FilterTermKind.PROPERTY:
        return _bind_meaning(_text(term), lambda text: _TRUTHS.get(text.lower()))
    return _constant(None)


def number_of(text: str) -> _Number | None:
    """The number that a text says, None if it says none: digits with sign, fraction and exponent, nothing around."""
    if len(text) > MAX_NUMBER_CHARACTERS:
        return None
    if text.isdecimal() and text.isascii():
        return int(text)
    if _NUMBER.fullmatch(text) is None:
        return None
    return float(text) if any(mark in text for mark in ".eE") else int(text)


def every(conditions: Sequence[Condition]) -> Condition:
    """AND: False as soon as one is, else unknown if one is."""

    def holds(properties: _Properties) -> bool | None:
        result: bool | None = True
        for part in conditions:
            value = part(properties)
            if value is False:
                return False
            if value is None:
                result = None
        return result

    return holds


def some(conditions: Sequence[Condition]) -> Condition:
    """OR: True as soon as one is, else unknown if one is."""

    def holds(properties: _Properties) -> bool | None:
        result: bool | None = False
        for part in conditions:
            value = part(properties)
            if value:
                return True
            if value is None:
                result = None
        return result

    return holds


def negate(inner: Condition) -> Condition:
    """NOT: what is unknown stays so."""
    return _bind_meaning(inner, operator.not_)


def is_null(term: FilterTerm) -> Condition:
    """IS NULL: True where a property is missing or a condition is unknown. It is never unknown itself."""
    if term.kind is FilterTermKind.PROPERTY:
        name = str(term.value)
        return lambda properties: name not in properties
    if term.holds is not None:
        inner = term.holds
        return lambda properties: inner(properties) is None
    return _constant(term.kind is FilterTermKind.NULL)


def same(left: FilterTerm, right: FilterTerm) -> Condition:
    """`=`: as numbers if one side is a number, as truth values if one is a condition, else as text."""
    kinds = {left.kind, right.kind}
    if FilterTermKind.NULL in kinds or kinds == {FilterTermKind.NUMBER, FilterTermKind.CONDITION}:
        return _constant(None)
    if FilterTermKind.NUMBER in kinds:
        return compare_numbers(left, right, operator.eq)
    if FilterTermKind.CONDITION in kinds:
        return _both(condition(left), condition(right), operator.eq)
    return _both(_text(left), _text(right), operator.eq)


def compare_numbers(left: FilterTerm, right: FilterTerm, relation: Callable[[_Number, _Number], bool]) -> Condition:
    """Whether the relation holds between both sides as numbers."""
    if left.kind is FilterTermKind.PROPERTY and isinstance(right.value, int | float):
        # The usual case, at half the cost.
        name, limit = str(left.value), right.value

        def holds(properties: _Properties) -> bool | None:
            text = properties.get(name)
            number = None if text is None else number_of(text)
            return None if number is None else relation(number, limit)

        return holds
    return _both(_number(left), _number(right), relation)


def between(term: FilterTerm, low: FilterTerm, high: FilterTerm) -> Condition:
    """BETWEEN: both bounds belong to it."""
    return every((compare_numbers(term, low, operator.ge), compare_numbers(term, high, operator.le)))


def one_of(term: FilterTerm, texts: frozenset[str]) -> Condition:
    """IN: whether the property is one of the texts."""
    return _bind_meaning(_text(term), texts.__contains__)


def match_text(term: FilterTerm, relation: Callable[[str, str], bool], text: str) -> Condition:
    """Whether the relation holds between the property and a text."""
    return _bind_meaning(_text(term), lambda own: relation(own, text))


def codes_of(term: FilterTerm, texts: frozenset[str]) -> frozenset[int] | None:
    """The `tag_codes` of a condition that holds only where `term` is one of the texts."""
    is_tag = term.kind is FilterTermKind.PROPERTY and term.value == names.TAGS
    return frozenset(map(java_hash_code, texts)) if is_tag else None


def _constant(value: _T | None) -> _Reading[_T]:
    return lambda _: value


def _bind_meaning(inner: _Reading[_T], meaning: Callable[[_T], bool | None]) -> Condition:
    def holds(properties: _Properties) -> bool | None:
        value = inner(properties)
        return None if value is None else meaning(value)

    return holds


def _both(left: _Reading[_T], right: _Reading[_T], relation: Callable[[_T, _T], bool]) -> Condition:
    def holds(properties: _Properties) -> bool | None:
        first = left(properties)
        if first is None:
            return None
        second = right(properties)
        return None if second is None else relation(first, second)

    return holds


def _text(term: FilterTerm) -> _Reading[str]:
    value = str(term.value)
    if term.kind is FilterTermKind.PROPERTY:
        return lambda properties: properties.get(value)
    return _constant(value)


def _number(term: FilterTerm) -> _Reading[_Number]:
    if term.kind is FilterTermKind.PROPERTY:
        name = str(term.value)

        def read(properties: _Properties) -> _Number | None:
            text = properties.get(name)
            return None if text is None else number_of(text)

        return read
    if term.kind is FilterTermKind.NULL:
        return _constant(None)
    return _constant(number_of(term.value) if isinstance(term.value, str) else term.value)
