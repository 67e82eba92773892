"""The reference evaluator: one rule on one event in plain Python, the oracle of the stage."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

import msgspec

from millstream.streams.functions.text.networks import address_of, network_of_text
from millstream.streams.rules.called_function import function_of
from millstream.streams.rules.conditions import All, AnyOf, Condition, Not, Op, Predicate, TextStep, Truth

__all__ = [
    "FIELD_SEPARATOR",
    "Ask",
    "FieldOf",
    "Gathered",
    "answer",
    "any_true",
    "apply_steps",
    "elements",
    "evaluate",
    "field_reader",
    "is_presence",
    "number_of",
    "presence_of",
    "text_of",
    "value_at",
    "whole_text",
]

FieldOf = Callable[[str], Any]
"""The value of a field of one event by its name; None where it is not there."""

Ask = Callable[[Predicate, FieldOf], bool | None]
"""What an atom says of an event."""

FIELD_SEPARATOR: Final = "->"
"""Stands between a ROW column of SQL and its field in the name of a rule's field; a list is no ROW."""


def evaluate(formula: Condition, field_of: FieldOf, ask: Ask | None = None) -> bool | None:
    """Whether the condition holds; None is unknown. What a user function raises goes through.

    Atoms are asked by `answer`, or by another function that says the same: one that keeps an eye on time.
    """
    match formula:
        case Predicate():
            return (ask or answer)(formula, field_of)
        case Truth(value=value):
            return value
        case Not(part=part):
            held = evaluate(part, field_of, ask)
            return None if held is None else not held
        case All(parts=parts):
            return _first(parts, field_of, ask, wanted=False)
        case AnyOf(parts=parts):
            return _first(parts, field_of, ask, wanted=True)


def _first(parts: Sequence[Condition], field_of: FieldOf, ask: Ask | None, *, wanted: bool) -> bool | None:
    found: bool | None = not wanted
    for part in parts:
        held = evaluate(part, field_of, ask)
        if held is wanted:
            return wanted
        if held is None:
            found = None
    return found


def answer(predicate: Predicate, field_of: FieldOf) -> bool | None:
    """What one atom says of an event."""
    if predicate.op is Op.EXISTS:
        return field_of(presence_of(predicate.field)) is True
    value = field_of(predicate.field)
    if isinstance(value, list) and not predicate.whole_lists:
        return any_true(_answer(predicate, one, field_of) for one in elements(value))
    return _answer(predicate, value, field_of)


def _answer(predicate: Predicate, value: Any, field_of: FieldOf) -> bool | None:
    if predicate.op is Op.IS_NULL:
        return value is None
    held = None if value is None else _TESTS[predicate.op](predicate, value, field_of)
    return predicate.absent if held is None else held


def field_reader(event: Mapping[str, Any], paths: Mapping[str, Sequence[Sequence[str]]]) -> FieldOf:
    """The fields of an event, where a rule set's `paths` say."""

    def read(name: str) -> Any:
        places = paths.get(name)
        if places is None:
            if is_presence(name):
                return _is_there(event, paths.get(name[1:], ((name[1:],),)))
            places = ((name,),)
        for path in places:
            value = value_at(event, path)
            if value is not None and not (type(value) is Gathered and FIELD_SEPARATOR in name):
                return value
        return None

    return read


def value_at(event: Mapping[str, Any], path: Sequence[str]) -> Any:
    """What an event holds there, None where there is nothing; the whole event as a text where the path is empty.

    A text on the way that spells a JSON object is read as one: some recorders ship an event's data so. Behind a list
    on the way it is what its elements hold there, `Gathered`.
    """
    if not path:
        return whole_text(event)
    value: Any = event
    keys = iter(path)
    for key in keys:
        if type(value) is dict:  # nearly always; asking for a Mapping takes ten times as long
            value = value.get(key)
        elif value is None:
            return None
        elif isinstance(value, list):
            return _gather(value, (key, *keys))
        else:
            value = spelled_object(value) if isinstance(value, str) else value
            value = value.get(key) if isinstance(value, Mapping) else None
    return value


class Gathered(list[Any]):
    """What the elements of a list hold at one place, those that have it, without lists in it."""


def _gather(values: list[Any], path: Sequence[str]) -> Gathered | None:
    found, is_list = Gathered(), False
    for one in elements(values):
        event, there = {"": one}, ("", *path)
        below = value_at(event, there)
        if isinstance(below, list):
            found += elements(below)
            is_list = True
        elif below is not None or _has(event, there):
            found.append(below)
    return found if any(one is not None for one in found) or (is_list and not found) else None


def elements(values: list[Any]) -> list[Any]:
    """The elements of a list, and those of the lists in it."""
    if not any(isinstance(one, list) for one in values):
        return values
    found: list[Any] = []
    waiting = values[::-1]
    while waiting:
        one = waiting.pop()
        if isinstance(one, list):
            waiting += reversed(one)
        else:
            found.append(one)
    return found


def any_true(answers: Iterable[bool | None]) -> bool | None:
    """Whether one of the answers is yes; unknown where none is and one is unknown."""
    found: bool | None = False
    for said in answers:
        if said:
            return True
        if said is None:
            found = None
    return found


_PRESENCE: Final = "\0"


def presence_of(field: str) -> str:
    """The name by which a `FieldOf` is asked whether an event has the field: True, or None."""
    return _PRESENCE + field


def is_presence(name: str) -> bool:
    """Whether it is the name of a presence."""
    return name[:1] == _PRESENCE


def _is_there(event: Mapping[str, Any], places: Iterable[Sequence[str]]) -> bool | None:
    return True if any(_has(event, path) for path in places) else None


def _has(event: Mapping[str, Any], path: Sequence[str]) -> bool:
    if not path:
        return True
    *above, last = path
    value = value_at(event, above) if above else event
    for one in elements(value) if isinstance(value, list) else [value]:
        holder = spelled_object(one) if isinstance(one, str) else one
        if isinstance(holder, Mapping) and last in holder:
            return True
    return False


@lru_cache(maxsize=16)
def spelled_object(text: str) -> Any:
    """What a text spells that begins as a JSON object does; None for one that spells none."""
    if not text.startswith("{"):
        return None
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return None


def whole_text(event: Mapping[str, Any]) -> str:
    """The texts of all values of an event in its order, one a line; without keys and nulls."""
    texts: list[str] = []
    for value in event.values():
        if type(value) is str:
            texts.append(value)
        elif type(value) is int:
            texts.append(str(value))
        elif value is not None:
            texts += _texts_within(value)
    return "\n".join(texts)


def _texts_within(value: Any) -> list[str]:
    texts: list[str] = []
    waiting = [value]
    while waiting:
        value = waiting.pop()
        if isinstance(value, Mapping):
            waiting += reversed(list(value.values()))
        elif isinstance(value, list):
            waiting += reversed(value)
        elif value is not None:
            texts.append(text_of(value))
    return texts


def text_of(value: Any) -> str:
    """A JSON value as a text: a text itself, everything else as compact JSON."""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def number_of(value: Any) -> int | float | None:
    """A JSON value as a number, which a text may spell; None where it is none."""
    if isinstance(value, bool):
        return None
    if isinstance(value, (int, float)):
        return value
    if not isinstance(value, str) or not _NUMBER.fullmatch(value):
        return None
    return int(value) if value.lstrip("+-").isdigit() else float(value)


_NUMBER = re.compile(r"[+-]?[0-9]{1,400}(\.[0-9]{1,400})?([eE][+-]?[0-9]{1,3})?", re.ASCII)


def apply_steps(text: str, steps: Sequence[TextStep]) -> str:
    """The text after the steps."""
    for step in steps:
        text = _STEPS[step](text)
    return text


_STEPS: dict[TextStep, Callable[[str], str]] = {
    TextStep.LOWER: str.lower,
    TextStep.UPPER: str.upper,
    TextStep.TRIM: lambda text: text.strip(" "),
    TextStep.SQUEEZE: lambda text: re.sub(r"\s+", " ", text),
}


def _text(predicate: Predicate, value: Any) -> str:
    text = apply_steps(text_of(value), predicate.steps)
    return text.lower() if predicate.caseless and predicate.op is not Op.MATCHES else text


def _operand(predicate: Predicate, operand: Any) -> str:
    return str(operand).lower() if predicate.caseless else str(operand)


def _in(predicate: Predicate, value: Any, _field_of: FieldOf) -> bool | None:
    first = predicate.operands[0] if predicate.operands else ""
    if isinstance(first, str):
        return _text(predicate, value) in {_operand(predicate, one) for one in predicate.operands}
    if isinstance(first, bool):
        truth = {"true": True, "false": False}.get(text_of(value).lower())
        return None if truth is None else truth in predicate.operands
    number = number_of(value)
    return None if number is None else number in predicate.operands


def _comparison_test(test: Callable[[Any, Any], bool]) -> Callable[[Predicate, Any, FieldOf], bool | None]:
    def compare(predicate: Predicate, value: Any, _field_of: FieldOf) -> bool | None:
        (operand,) = predicate.operands
        if isinstance(operand, str):
            return test(_text(predicate, value), _operand(predicate, operand))
        number = number_of(value)
        return None if number is None else test(number, operand)

    return compare


def _texts(test: Callable[[str, str], bool]) -> Callable[[Predicate, Any, FieldOf], bool | None]:
    def compare(predicate: Predicate, value: Any, _field_of: FieldOf) -> bool:
        return test(_text(predicate, value), _operand(predicate, predicate.operands[0]))

    return compare


@lru_cache(maxsize=65_536)
def _pattern(text: str, flags: int) -> re.Pattern[str]:
    with warnings.catch_warnings(action="ignore"):
        return re.compile(text, flags)


def _matches(predicate: Predicate, value: Any, _field_of: FieldOf) -> bool:
    pattern = _pattern(str(predicate.operands[0]), re.IGNORECASE if predicate.caseless else 0)
    return pattern.search(_text(predicate, value)) is not None


def _cidr(predicate: Predicate, value: Any, _field_of: FieldOf) -> bool | None:
    address = address_of(text_of(value))
    return None if address is None else any(address in network_of_text(str(one)) for one in predicate.operands)


def _two_fields(test: Callable[[str, str], bool]) -> Callable[[Predicate, Any, FieldOf], bool | None]:
    def compare(predicate: Predicate, value: Any, field_of: FieldOf) -> bool | None:
        other = field_of(str(predicate.operands[0]))
        if value is None or other is None:
            return None
        divided = isinstance(other, list) and not predicate.whole_lists
        others = [one for one in elements(other) if one is not None] if divided else [other]
        text = _text(predicate, value)
        return any(test(text, _text(predicate, one)) for one in others)

    return compare


def _call(predicate: Predicate, value: Any, _field_of: FieldOf) -> bool | None:
    result = function_of(str(predicate.operands[0]))(value, *predicate.operands[1:])
    return None if result is None else bool(result)


_TESTS: dict[Op, Callable[[Predicate, Any, FieldOf], bool | None]] = {
    Op.IN: _in,
    Op.LESS: _comparison_test(lambda value, operand: value < operand),
    Op.LESS_EQUAL: _comparison_test(lambda value, operand: value <= operand),
    Op.GREATER: _comparison_test(lambda value, operand: value > operand),
    Op.GREATER_EQUAL: _comparison_test(lambda value, operand: value >= operand),
    Op.CONTAINS: _texts(lambda text, part: part in text),
    Op.STARTS: _texts(str.startswith),
    Op.ENDS: _texts(str.endswith),
    Op.MATCHES: _matches,
    Op.CIDR: _cidr,
    Op.EQUALS_FIELD: _two_fields(str.__eq__),
    Op.CONTAINS_FIELD: _two_fields(str.__contains__),
    Op.STARTS_FIELD: _two_fields(str.startswith),
    Op.ENDS_FIELD: _two_fields(str.endswith),
    Op.CALL: _call,
}
