"""The test of a field for one value of a Sigma rule, as typed by pySigma.

Everything is false where the field is not there, so that `not` of it is true; texts compare without regard to case
unless `cased` says otherwise, regular expressions the other way round.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from sigma.types import (
    CompareOperators,
    Placeholder,
    SigmaBool,
    SigmaCasedString,
    SigmaCIDRExpression,
    SigmaCompareExpression,
    SigmaExists,
    SigmaExpansion,
    SigmaFieldReference,
    SigmaNull,
    SigmaNumber,
    SigmaRegularExpression,
    SigmaString,
    SigmaTimestampPart,
    SigmaType,
    SpecialChars,
)

from millstream.streams.rule_formats.sigma.fault import Fault, MissingValues
from millstream.streams.rule_formats.sigma.taxonomy import WHOLE_EVENT, other_spellings
from millstream.streams.rule_formats.sigma.times import PART_RANGES
from millstream.streams.rules.conditions import AnyOf, Condition, Op, Operand, Predicate, any_of, negate

__all__ = ["CasedFieldReference", "either", "expand_placeholders", "field_is", "keyword_is"]

_MANY: Final = SpecialChars.WILDCARD_MULTI
_HASHES: Final = frozenset(("imphash", "md5", "sha1", "sha256"))
_TIME_PART: Final = "millstream.streams.rules.sigma.times:part_is"
"""The name under which stored rules know the function; see `millstream.streams.rules.called_function`."""

_COMPARISONS: Final = {
    CompareOperators.LT: Op.LESS,
    CompareOperators.LTE: Op.LESS_EQUAL,
    CompareOperators.GT: Op.GREATER,
    CompareOperators.GTE: Op.GREATER_EQUAL,
}

_FIELD_OPS: Final = {
    (False, False): Op.EQUALS_FIELD,
    (True, False): Op.STARTS_FIELD,
    (False, True): Op.ENDS_FIELD,
    (True, True): Op.CONTAINS_FIELD,
}
"""By whether a field reference may be the start, and the end, of what the field holds."""


class CasedFieldReference(SigmaFieldReference):
    """A field that is compared with regard to case; pySigma forgets `cased` on the way to one."""

    @classmethod
    def of(cls, value: SigmaType) -> SigmaType:
        """The reference with regard to case; other values as they are."""
        if not isinstance(value, SigmaFieldReference):
            return value
        return cls(value.field, value.starts_with, value.ends_with)


def expand_placeholders(value: SigmaType, placeholders: Mapping[str, Sequence[str | int | float]]) -> SigmaType:
    """The value with each placeholder that has values replaced by one of them in turn, letter by letter."""
    if not isinstance(value, (SigmaString, SigmaRegularExpression)) or not value.contains_placeholder():
        return value
    text = value if isinstance(value, SigmaString) else value.regexp
    written = str if isinstance(value, SigmaString) else _escape

    def values_of(placeholder: Placeholder) -> Iterator[str | Placeholder]:
        known = placeholders.get(placeholder.name)
        yield from [placeholder] if known is None else map(written, known)

    made = text.replace_placeholders(values_of)
    if isinstance(value, SigmaString):
        return SigmaExpansion(list(made))
    return SigmaExpansion([SigmaRegularExpression(_plain(one), value.flags, value.policy) for one in made])


def _plain(expression: SigmaString) -> SigmaString | str:
    """The letters of an expression, where no placeholder is left: pySigma would escape what it joined once more."""
    letters = [part for part in expression.s if isinstance(part, str)]
    return "".join(letters) if len(letters) == len(expression.s) else expression


def _escape(value: str | int | float) -> str:
    return re.escape(str(value))


def field_is(field: str, value: SigmaType) -> Condition:
    """Whether the field has that value. Raises Fault for what has no meaning here."""
    match value:
        case SigmaExpansion(values=values):
            return either(*(field_is(field, one) for one in values))
        case SigmaString():
            return _hash_is(field, value) if field.lower() in _HASHES else _text_is(field, value)
        case SigmaTimestampPart():
            return _time_part_is(field, value, "=")
        case SigmaNumber(number=number):
            return _atom(field, Op.IN, number)
        case SigmaCompareExpression(number=SigmaTimestampPart() as part, op=op):
            return _time_part_is(field, part, _COMPARISONS[op].value)
        case SigmaCompareExpression(number=number, op=op):
            return _atom(field, _COMPARISONS[op], number.number)
        case SigmaRegularExpression():
            return _atom(field, Op.MATCHES, _expression(value))
        case _:
            return _other_is(field, value)


def _other_is(field: str, value: SigmaType) -> Condition:
    match value:
        case SigmaBool(boolean=boolean):
            return _atom(field, Op.IN, boolean)
        case SigmaNull():
            return Predicate(field, Op.IS_NULL)
        case SigmaExists(exists=exists):
            return Predicate(field, Op.EXISTS) if exists else negate(Predicate(field, Op.EXISTS))
        case SigmaCIDRExpression(cidr=cidr):
            return _atom(field, Op.CIDR, cidr)
        case SigmaFieldReference(field=other):
            op = _FIELD_OPS[value.starts_with, value.ends_with]
            caseless = not isinstance(value, CasedFieldReference)
            return Predicate(field, op, (other,), caseless=caseless, absent=False)
    raise Fault(f"values of the kind {type(value).__name__} have no meaning here")


def keyword_is(value: SigmaType) -> Condition:
    """Whether the value is found anywhere in the event: in `WHOLE_EVENT`."""
    match value:
        case SigmaExpansion(values=values):
            return either(*(keyword_is(one) for one in values))
        case SigmaString():
            return _keyword_condition(value)
        case SigmaTimestampPart():
            raise Fault("a part of a time needs a field")
        case SigmaNumber(number=number):
            return _atom(WHOLE_EVENT, Op.CONTAINS, str(number), caseless=True)
        case SigmaRegularExpression():
            return _atom(WHOLE_EVENT, Op.MATCHES, _expression(value))
    raise Fault("a keyword must be a text, a number or a regular expression")


def either(*parts: Condition) -> Condition:
    """One part holds; the lists of equal values and networks of one field become one."""
    joined = any_of(*parts)
    if not isinstance(joined, AnyOf):
        return joined
    lists: dict[tuple[object, ...], list[Operand]] = {}
    kept: list[Condition | tuple[object, ...]] = []
    for part in joined.parts:
        if not (isinstance(part, Predicate) and part.op in (Op.IN, Op.CIDR)):
            kept.append(part)
            continue
        key = (part.field, part.op, part.caseless, _kind(part.operands[0]))
        if key not in lists:
            lists[key] = []
            kept.append(key)
        lists[key] += part.operands
    return any_of(*(_in_list(one, lists[one]) if isinstance(one, tuple) else one for one in kept))


def _kind(operand: Operand) -> str:
    return "text" if isinstance(operand, str) else "truth" if isinstance(operand, bool) else "number"


def _in_list(key: tuple[object, ...], operands: list[Operand]) -> Predicate:
    field, op, caseless, _ = key
    ordered = tuple(sorted(dict.fromkeys(operands)))
    return Predicate(str(field), Op(str(op)), ordered, caseless=bool(caseless), absent=False)


def _atom(field: str, op: Op, operand: Operand, *, caseless: bool = False) -> Predicate:
    if caseless and isinstance(operand, str) and op is not Op.MATCHES:
        operand = operand.lower()
    return Predicate(field, op, (operand,), caseless=caseless, absent=False)


def _parts(value: SigmaString) -> list[str | SpecialChars]:
    """Texts and wildcards in turn, without a `*` beside another."""
    parts: list[str | SpecialChars] = []
    for part in value.s:
        if isinstance(part, Placeholder):
            raise MissingValues(part.name)
        if isinstance(part, str) and parts and isinstance(parts[-1], str):
            parts[-1] += part
        elif part and not (part is _MANY and parts and parts[-1] is _MANY):
            parts.append(part)
    return parts


def _text_is(field: str, value: SigmaString) -> Condition:
    caseless = not isinstance(value, SigmaCasedString)
    match _parts(value):
        case []:
            return _atom(field, Op.IN, "")
        case [str(text)]:
            spellings = (text, *other_spellings(field, text))
            return either(*(_atom(field, Op.IN, one, caseless=caseless) for one in spellings))
        case [SpecialChars.WILDCARD_MULTI]:
            return _atom(field, Op.CONTAINS, "")
        case [SpecialChars.WILDCARD_MULTI, str(text)]:
            return _atom(field, Op.ENDS, text, caseless=caseless)
        case [str(text), SpecialChars.WILDCARD_MULTI]:
            return _atom(field, Op.STARTS, text, caseless=caseless)
        case [SpecialChars.WILDCARD_MULTI, str(text), SpecialChars.WILDCARD_MULTI]:
            return _atom(field, Op.CONTAINS, text, caseless=caseless)
        case parts:
            return _atom(field, Op.MATCHES, _pattern(parts, whole=True), caseless=caseless)


def _keyword_condition(value: SigmaString) -> Condition:
    caseless = not isinstance(value, SigmaCasedString)
    parts = _parts(value)
    if parts and parts[0] is _MANY:
        del parts[0]
    if parts and parts[-1] is _MANY:
        del parts[-1]
    match parts:
        case []:
            raise Fault("a keyword without text is found in every event")
        case [str(text)]:
            return _atom(WHOLE_EVENT, Op.CONTAINS, text, caseless=caseless)
        case _:
            return _atom(WHOLE_EVENT, Op.MATCHES, _pattern(parts, whole=False), caseless=caseless)


def _pattern(parts: list[str | SpecialChars], *, whole: bool) -> str:
    """The regular expression of a text with wildcards, which also stand for line ends."""
    made = [re.escape(part) if isinstance(part, str) else ".*" if part is _MANY else "." for part in parts]
    if whole:
        made[0] = "" if parts[0] is _MANY else rf"\A{made[0]}"
        made[-1] = "" if parts[-1] is _MANY else rf"{made[-1]}\Z"
    return f"(?s){''.join(made)}"


def _expression(value: SigmaRegularExpression) -> str:
    if value.contains_placeholder():
        named = next(part.name for part in value.regexp.s if isinstance(part, Placeholder))
        raise MissingValues(named)
    flags = "".join(sorted(value.sigma_to_re_flag[flag] for flag in value.flags))
    return f"(?{flags}){value.regexp}" if flags else str(value.regexp)


def _hash_is(field: str, value: SigmaString) -> Condition:
    """A hash stands in a field of its own, or in the list that Sysmon writes: `SHA1=..,MD5=..`."""
    match _parts(value):
        case [str(text)]:
            return either(
                _text_is(field, value), _atom("Hashes", Op.CONTAINS, f"{field.upper()}={text}", caseless=True)
            )
        case _:
            return _text_is(field, value)


def _time_part_is(field: str, part: SigmaTimestampPart, comparison: str) -> Predicate:
    name, number = part.timestamp_part.name.lower(), part.number
    least, most = PART_RANGES[name]
    if not (isinstance(number, int) and least <= number <= most):
        raise Fault(f"{name} is a whole number from {least} to {most}, not {number}")
    operands = (_TIME_PART, name, comparison, number)
    return Predicate(field, Op.CALL, operands, absent=False)
