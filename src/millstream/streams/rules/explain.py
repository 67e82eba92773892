"""Explains why a rule matches an event or not: its condition as a tree of results."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

import msgspec

from millstream.streams.rules.conditions import All, AnyOf, Condition, Not, Op, Operand, Predicate, Truth, predicates_of
from millstream.streams.rules.reference import FieldOf, presence_of, text_of
from millstream.streams.rules.rule import Rule
from millstream.streams.rules.watch import Watch

__all__ = [
    "ConditionPart",
    "NearMatch",
    "deciding_parts",
    "describe_predicate",
    "draw",
    "explain",
    "find_nearest",
    "outline",
    "quote_text",
]

MAX_SHOWN_PARTS: Final = 12
"""Parts of one AND or OR that are drawn; of the others the number is shown."""

MAX_SHOWN_CHARACTERS: Final = 120
"""Characters of a value that are drawn."""

MAX_SHOWN_OPERANDS: Final = 20
"""Values of one atom that are drawn."""

_ALL, _ANY, _NOT = "all of", "any of", "not"
_NEXT, _LAST, _LINE, _BLANK = "├─ ", "└─ ", "│  ", "   "
_WORDS: Final = {True: "yes", False: "no", None: "unknown"}


class ConditionPart(msgspec.Struct, frozen=True, omit_defaults=True):
    """One part of a condition: what it asks, whether it held, and whether the whole came out as it did because of it.

    Atoms have the value that the event holds (`found`, as a text; None where there is none), or what went wrong.
    """

    asks: str
    held: bool | None
    decides: bool
    field: str | None = None
    found: str | None = None
    wrong: str = ""
    parts: tuple[ConditionPart, ...] = ()


def explain(formula: Condition, field_of: FieldOf, watch: Watch | None = None) -> ConditionPart:
    """Every part of the condition judged on one event. What takes too long, or raises, is in the watch's failures."""
    with watch or Watch() as watched:
        return _mark_deciding(_evaluate(formula, field_of, watched), decides=True)


def deciding_parts(why: ConditionPart) -> Iterator[ConditionPart]:
    """The atoms that decided, from left to right."""
    if why.decides and not why.parts:
        yield why
    for part in why.parts if why.decides else ():
        yield from deciding_parts(part)


class NearMatch(NamedTuple):
    """A rule that fits an event, or all of whose parts but one do; `lacks` says what that one asks."""

    rule: Rule
    held: int
    lacks: str | None


def find_nearest(rules: Iterable[Rule], field_of: FieldOf, watch: Watch | None = None) -> list[NearMatch]:
    """The rules that fit, and those to which one part of several lacks; first those of which the most parts hold.

    Those that lack an equal value come last: mostly it says which kind of event a rule is about. What takes too long,
    or raises, is in the watch's failures.
    """
    found: list[tuple[bool, bool, NearMatch]] = []
    with watch or Watch() as watched:
        for rule in rules:
            parts = rule.condition.parts if isinstance(rule.condition, All) else (rule.condition,)
            lacking = [part for part in parts if _evaluate(part, field_of, watched).held is not True]
            if not lacking:
                found.append((False, False, NearMatch(rule, len(parts), None)))
            elif len(lacking) == 1 and len(parts) > 1:
                [part] = lacking
                is_kind = isinstance(part, Predicate) and part.op is Op.IN
                found.append((True, is_kind, NearMatch(rule, len(parts) - 1, _summary(part))))
    return [near for *_, near in sorted(found, key=lambda one: (one[0], one[1], -one[2].held))]


def draw(why: ConditionPart) -> list[str]:
    """Lines of the tree, a star at what decided."""
    return list(_draw_lines(why, "", ""))


def outline(formula: Condition) -> list[str]:
    """Lines of the condition's tree, for no event."""
    return list(_outline_lines(formula, "", ""))


def _evaluate(formula: Condition, field_of: FieldOf, watch: Watch) -> ConditionPart:
    match formula:
        case Predicate():
            return _atom(formula, field_of, watch)
        case Truth(value=value):
            return ConditionPart(str(formula), value, decides=False)
        case Not(part=part):
            inner = _evaluate(part, field_of, watch)
            return ConditionPart(_NOT, None if inner.held is None else not inner.held, decides=False, parts=(inner,))
        case All(parts=parts) | AnyOf(parts=parts):
            inners = tuple(_evaluate(part, field_of, watch) for part in parts)
            wanted = isinstance(formula, AnyOf)
            answers = {one.held for one in inners}
            held = wanted if wanted in answers else None if None in answers else not wanted
            return ConditionPart(_ANY if wanted else _ALL, held, decides=False, parts=inners)


def _atom(predicate: Predicate, field_of: FieldOf, watch: Watch) -> ConditionPart:
    value: Any = field_of(predicate.field)
    is_null = value is None and field_of(presence_of(predicate.field))
    found = "null" if is_null else None if value is None else text_of(value)
    try:
        held = watch.answer(predicate, field_of)
    except Exception as error:  # noqa: BLE001 - operands from a damaged file may be anything
        return ConditionPart(
            describe_predicate(predicate), None, False, predicate.field, found, f"{type(error).__name__}: {error}"
        )
    failure = watch.failures.get(predicate)
    return ConditionPart(
        describe_predicate(predicate), held, False, predicate.field, found, "" if failure is None else failure.reason
    )


def _mark_deciding(why: ConditionPart, *, decides: bool) -> ConditionPart:
    """What decides is marked: a part without which, or with another answer of which, the whole could differ."""
    if not why.parts or not decides:
        return msgspec.structs.replace(why, decides=decides)
    # NOT has one part, which has the contrary answer.
    parts = tuple(_mark_deciding(one, decides=why.asks == _NOT or one.held is why.held) for one in why.parts)
    return msgspec.structs.replace(why, decides=True, parts=parts)


def describe_predicate(predicate: Predicate) -> str:
    """What an atom asks, in words."""
    name = predicate.field or "the event"
    for step in predicate.steps:
        name = f"{step.value}({name})"
    shown = ", ".join(map(_describe_operand, predicate.operands[:MAX_SHOWN_OPERANDS]))
    hidden = len(predicate.operands) - MAX_SHOWN_OPERANDS
    operands = f"{shown} and {hidden} more" if hidden > 0 else shown
    words = (
        "is"
        if predicate.op is Op.IN and len(predicate.operands) == 1
        else "is one of"
        if predicate.op is Op.IN
        else predicate.op.value
    )
    return f"{name} {words} {operands}".rstrip() + (", whatever the case" if predicate.caseless else "")


def _describe_operand(operand: Operand) -> str:
    return quote_text(operand) if isinstance(operand, str) else text_of(operand)


def quote_text(text: str) -> str:
    """A text in quotes, cut, with backslashes as they are: paths are full of them."""
    shown = "".join(one if one.isprintable() else repr(one)[1:-1] for one in text[: MAX_SHOWN_CHARACTERS + 1])
    return f"'{shown}'" if len(text) <= MAX_SHOWN_CHARACTERS else f"'{shown[:-1]}...'"


def _summary(formula: Condition) -> str:
    """In one line what a part asks."""
    match formula:
        case Predicate():
            return describe_predicate(formula)
        case Not(part=part):
            return f"{_NOT} {_summary(part)}"
        case Truth():
            return str(formula)
        case All(parts=parts) | AnyOf(parts=parts):
            fields = ", ".join(dict.fromkeys(predicate.field or "the event" for predicate in predicates_of(formula)))
            word = _ALL if isinstance(formula, All) else _ANY
            return f"{word} {len(parts)} about {fields}"


def _draw_lines(why: ConditionPart, first: str, rest: str) -> Iterator[str]:
    yield f"{first}{'*' if why.decides else ' '} {_WORDS[why.held]:<7} {why.asks}{_value(why)}"
    shown = _choose_shown(why.parts)
    hidden = len(why.parts) - len(shown)
    for number, part in enumerate(shown):
        is_last = number == len(shown) - 1 and not hidden
        yield from _draw_lines(part, rest + (_LAST if is_last else _NEXT), rest + (_BLANK if is_last else _LINE))
    if hidden:
        answers = {_WORDS[one.held] for one in why.parts if not any(one is other for other in shown)}
        yield f"{rest}{_LAST}{hidden} more, of which each is {' or '.join(sorted(answers))}"


def _outline_lines(formula: Condition, first: str, rest: str) -> Iterator[str]:
    parts: tuple[Condition, ...] = ()
    match formula:
        case Predicate():
            asks = describe_predicate(formula)
        case Truth():
            asks = str(formula)
        case Not(part=part):
            asks, parts = _NOT, (part,)
        case All(parts=parts):
            asks = _ALL
        case AnyOf(parts=parts):
            asks = _ANY
    yield f"{first}{asks}"
    for number, part in enumerate(parts, 1):
        is_last = number == len(parts)
        yield from _outline_lines(part, rest + (_LAST if is_last else _NEXT), rest + (_BLANK if is_last else _LINE))


def _choose_shown(parts: tuple[ConditionPart, ...]) -> list[ConditionPart]:
    """Those that decided first, where there are too many; in their order."""
    ranked = sorted(range(len(parts)), key=lambda number: (not parts[number].decides, number))
    return [parts[number] for number in sorted(ranked[:MAX_SHOWN_PARTS])]


def _value(why: ConditionPart) -> str:
    if why.wrong:
        return f"   ({why.wrong})"
    if why.field is None:
        return ""
    return f"   (it is {'not there' if why.found is None else quote_text(why.found)})"
