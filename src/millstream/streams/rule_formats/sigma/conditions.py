"""Converts the detection of a Sigma rule to a formula.

We walk the tree that pySigma makes of a condition; a backend of pySigma's would be the wrong tool, since it is made to
write query texts and would have to be talked out of its quoting, precedence and deferred parts.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from itertools import accumulate
from pathlib import Path
from typing import Any, Final

from sigma.conditions import (
    ConditionAND,
    ConditionFieldEqualsValueExpression,
    ConditionNOT,
    ConditionOR,
    ConditionValueExpression,
    SigmaCondition,
)
from sigma.exceptions import SigmaError, SigmaRuleLocation
from sigma.modifiers import modifier_mapping
from sigma.policy import SigmaPolicy
from sigma.policy.regex_engine import PythonRegexEngine
from sigma.rule.detection import SigmaDetection, SigmaDetectionItem, SigmaDetections
from sigma.types import SigmaCompareExpression, SigmaNumber

from millstream.streams.rule_formats.sigma.documents import SigmaDocument
from millstream.streams.rule_formats.sigma.fault import Fault, MissingValues
from millstream.streams.rule_formats.sigma.values import (
    CasedFieldReference,
    either,
    expand_placeholders,
    field_is,
    keyword_is,
)
from millstream.streams.rules.conditions import Condition, all_of, negate

__all__ = ["MAX_CONDITION_CHARACTERS", "MAX_NESTING", "Placeholders", "check_size", "detection_condition"]

MAX_CONDITION_CHARACTERS: Final = 10_000
"""Characters of a condition of Sigma, at most: its parser takes time and stack by the length."""

MAX_NESTING: Final = 50
"""Nested brackets in a condition of Sigma, at most: code that walks the condition does so on its stack."""

_NO_DETECTIONS: Final = {"detection": ("condition", "timeframe"), "filter": ("condition", "rules")}
"""What is no detection in each section of a document that has some."""
_HERE: Final = Path()
_POLICY: Final = SigmaPolicy(regex_engine=PythonRegexEngine())
"""Regular expressions are Python's, as they are judged; those of pySigma's own choice know less."""

_PYSIGMA_FAULTS: Final = (SigmaError, ValueError, TypeError, ArithmeticError, LookupError, AttributeError)
"""What pySigma raises for a value: mostly errors of its own, and whatever Python's parts raise below it."""


_OF_TEXTS: Final = frozenset(("contains", "startswith", "endswith"))
_OF_FIELDS: Final = frozenset(("startswith", "endswith", "exists", "cidr", "fieldref", "lt", "lte", "gt", "gte"))
"""Modifiers that say nothing of a keyword."""

_CASED_REFERENCE: Final = frozenset(("cased", "fieldref"))
_OTHER_DASHES: Final = re.compile(r"\B[–—―](?=\w)")
_NOT_TAKEN: Final = re.compile(r"Modifier (Sigma\w+) incompatible to value type")
_POSIX_CLASS: Final = re.compile(r"\[:\^?[a-z]+:\]")
_SHOWN_VALUES: Final = 3
"""Values that are told of a field with one that is not taken."""

_LEAST_WHOLE: Final = -(1 << 63)
_MOST_WHOLE: Final = (1 << 64) - 1
"""Whole numbers beyond these are floats in events as well."""

Placeholders = Mapping[str, Sequence[str | int | float]]
"""The values that stand for each placeholder."""


def detection_condition(
    document: SigmaDocument, conditions: list[str], placeholders: Placeholders, *, section: str = "detection"
) -> Condition:
    """What the detections of the document ask by these conditions, one of which must hold. Raises Fault.

    `section` is the key that they are in: `detection` or `filter`.
    """
    named = document.value[section]
    detections = {
        str(name): _detection(document, definition, (section, name), placeholders)
        for name, definition in named.items()
        if name not in _NO_DETECTIONS[section]
    }
    line = document.line(section, "condition")
    if not detections:
        raise Fault("there is nothing to detect beside the condition", document.line(section))
    held = SigmaDetections(detections, conditions)
    try:
        return either(*(_condition(condition, held, line) for condition in conditions))
    except MissingValues as fault:
        raise Fault(_without_values(fault, document, placeholders), fault.line) from None


def _without_values(fault: MissingValues, document: SigmaDocument, placeholders: Placeholders) -> str:
    name, rule = fault.placeholder, document.value.get("title", document.value.get("id"))
    where = "a keyword" if fault.field is None else f"the field {fault.field!r}"
    near = difflib.get_close_matches(name, placeholders, n=1)
    hint = f" (there is %{near[0]}%)" if near else ""
    return (
        f"{where} of {rule!r} asks for the placeholder %{name}%, which has no values{hint}: "
        f"import with --placeholders FILE, in which a line says {name}: [value, ...]"
    )


def _condition(condition: str, detections: SigmaDetections, line: int | None) -> Condition:
    check_size(condition, line)
    try:
        tree = SigmaCondition(condition, detections).parse()
        return _build_condition(tree)
    except SigmaError as error:
        raise Fault(f"condition: {error}", line) from error
    except RecursionError:
        raise Fault("the condition is nested too deeply", line) from None


def check_size(condition: str, line: int | None) -> None:
    """Raise Fault for a condition that is too long, or has too many brackets within each other, for its parser."""
    if len(condition) > MAX_CONDITION_CHARACTERS:
        raise Fault(f"the condition is longer than {MAX_CONDITION_CHARACTERS:,} characters", line)
    if max(accumulate((char == "(") - (char == ")") for char in condition), default=0) > MAX_NESTING:
        raise Fault(f"the condition has more than {MAX_NESTING} brackets within each other", line)


def _build_condition(node: Any) -> Condition:
    match node:
        case ConditionAND(args=parts):
            return all_of(*map(_build_condition, parts))
        case ConditionOR(args=parts):
            return either(*map(_build_condition, parts))
        case ConditionNOT(args=[part]):
            return negate(_build_condition(part))
        case ConditionFieldEqualsValueExpression() | ConditionValueExpression():
            return _leaf(node)
    raise Fault("a part of the condition asks nothing")


def _leaf(node: ConditionFieldEqualsValueExpression | ConditionValueExpression) -> Condition:
    try:
        if isinstance(node, ConditionFieldEqualsValueExpression):
            return field_is(node.field, node.value)
        return keyword_is(node.value)
    except MissingValues as fault:
        raise MissingValues(fault.placeholder, getattr(node, "field", None), _line_of(node)) from None
    except Fault as fault:
        raise Fault(fault.reason, _line_of(node)) from None


def _line_of(node: ConditionFieldEqualsValueExpression | ConditionValueExpression) -> int | None:
    return node.source.line if node.source is not None else None


def _detection(
    document: SigmaDocument, definition: Any, keys: tuple[Any, ...], placeholders: Placeholders
) -> SigmaDetection:
    """The definition of one name: a map, a list of maps, or values that are keywords."""
    line = document.line(*keys)
    if isinstance(definition, Mapping):
        items = [_item(name, value, document.line(*keys, name), placeholders) for name, value in definition.items()]
    elif isinstance(definition, list) and any(isinstance(one, (Mapping, list)) for one in definition):
        items = [_detection(document, one, (*keys, place), placeholders) for place, one in enumerate(definition)]
    else:
        items = [_item(None, definition, line, placeholders)]
    if not items:
        raise Fault(f"{keys[-1]!r} detects nothing", line)
    return SigmaDetection(items)


def _item(name: Any, value: Any, line: int | None, placeholders: Placeholders) -> SigmaDetection | SigmaDetectionItem:
    if name is not None and not isinstance(name, str):
        raise Fault(f"{name!r} is no name of a field", line)
    if value == []:
        raise Fault("a list without values", line)
    modifiers = [] if name is None else list(_known_modifiers(name.split("|"), line))
    _check_keyword(modifiers, line)
    is_cased_reference = {*modifiers[1:]} >= _CASED_REFERENCE
    used_modifiers = [word for word in modifiers if word != "cased" or not is_cased_reference]
    key = None if name is None else "|".join(used_modifiers)
    values = value if isinstance(value, list) else [value]
    if "windash" in modifiers[1:]:
        value = values = [_with_plain_dashes(one) for one in values]
    if "re" in modifiers[1:]:
        value = [_expression_text(one, line) for one in values]
    elif _OF_TEXTS.intersection(modifiers[1:]) or any(type(one) is date for one in values):
        value = [_text_of(one) for one in values]
    try:
        item = SigmaDetectionItem.from_mapping(key, value, SigmaRuleLocation(_HERE, line), _POLICY)
    except _PYSIGMA_FAULTS as error:
        raise Fault(_explain_error(error, values), line) from error
    _keep_digits(item, value if isinstance(value, list) else [value])
    item.value = [expand_placeholders(one, placeholders) for one in item.value]
    if is_cased_reference:
        item.value = [CasedFieldReference.of(one) for one in item.value]
    return item


def _check_keyword(modifiers: list[str], line: int | None) -> None:
    """Refuse what has no meaning for values that are sought anywhere in an event."""
    wrong = _OF_FIELDS.intersection(modifiers[1:]) if modifiers and not modifiers[0] else ()
    if wrong:
        raise Fault(f"the modifier {min(wrong)!r} needs a field: keywords are sought anywhere in an event", line)


def _with_plain_dashes(value: Any) -> Any:
    """The value with all dashes that begin a flag as `-`: pySigma makes the others of that one and of `/` alone."""
    return _OTHER_DASHES.sub("-", value) if isinstance(value, str) else value


def _explain_error(error: Exception, values: list[Any]) -> str:
    """What pySigma says of a value, in words of the rule."""
    words = str(error.args[0]) if error.args else str(error)
    found = _NOT_TAKEN.match(words)
    if found is None:
        return words
    modifier = next((word for word, kind in modifier_mapping.items() if kind.__name__ == found[1]), found[1])
    shown = ", ".join(repr(one) for one in values[:_SHOWN_VALUES]) + (", ..." if len(values) > _SHOWN_VALUES else "")
    return f"the modifier {modifier!r} does not take {shown} here: by its type, or for the modifiers before it"


def _keep_digits(item: SigmaDetectionItem, values: list[Any]) -> None:
    """Give numbers back the digits that pySigma's have lost: those without a float of their own become the next one."""
    if len(item.value) != len(values):
        return
    for told, held in zip(values, item.value, strict=True):
        number = held.number if isinstance(held, SigmaCompareExpression) else held
        if isinstance(told, int) and isinstance(number, SigmaNumber) and _LEAST_WHOLE <= told <= _MOST_WHOLE:
            number.number = told


def _expression_text(value: Any, line: int | None) -> str:
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        raise Fault(f"a regular expression is a text, not {value!r}", line)
    found = _POSIX_CLASS.search(str(value))
    if found is not None:
        raise Fault(f"{found[0]} is no class of letters here: write them out, as in [A-Za-z] or \\d", line)
    return str(value)


def _text_of(value: Any) -> Any:
    """Whole numbers and dates as the texts that they were most likely written as."""
    return str(value) if type(value) in (int, date) else value


def _known_modifiers(words: list[str], line: int | None) -> Iterator[str]:
    """The name of a field and its modifiers, in the words of pySigma, which calls utf16le by its other name alone."""
    for place, word in enumerate(words):
        if place == 0 or word in modifier_mapping:
            yield word
        elif word == "utf16le":
            yield "wide"
        else:
            near = difflib.get_close_matches(word, modifier_mapping, n=1)
            raise Fault(f"no modifier {word!r} is known{f'; {near[0]!r} is' if near else ''}", line)
