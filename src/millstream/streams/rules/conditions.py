"""Conditions of rules: predicates on single fields, joined by AND, OR and NOT in three-valued logic."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import Final

import msgspec

__all__ = [
    "OF_TWO_FIELDS",
    "OF_WHOLE_EVENTS",
    "All",
    "AnyOf",
    "Condition",
    "Not",
    "Op",
    "Operand",
    "Predicate",
    "TextStep",
    "Truth",
    "all_of",
    "any_of",
    "negate",
    "predicates_of",
]


Operand = str | int | float | bool


class Op(StrEnum):
    """How a field is compared with the operands of its atom."""

    IN = "in"
    """It equals one of the operands, which are of one type; `=` is IN with one."""
    LESS = "<"
    LESS_EQUAL = "<="
    GREATER = ">"
    GREATER_EQUAL = ">="
    CONTAINS = "contains"
    STARTS = "starts"
    ENDS = "ends"
    MATCHES = "matches"
    """The regular expression (Python's `re`, without flags but those that it sets) is found somewhere in it."""
    CIDR = "cidr"
    """It is an address in one of the networks."""
    IS_NULL = "is null"
    """It is not there, or null. Never unknown."""
    EXISTS = "exists"
    """The event has it, be it null. Never unknown."""
    EQUALS_FIELD = "equals field"
    """It equals the field that the operand names, as texts; so do the next three with what that field holds."""
    CONTAINS_FIELD = "contains field"
    STARTS_FIELD = "starts with field"
    ENDS_FIELD = "ends with field"
    CALL = "call"
    """The user function `module:name` of the field's value says so; further operands are its further arguments."""


OF_TWO_FIELDS: Final = frozenset((Op.EQUALS_FIELD, Op.CONTAINS_FIELD, Op.STARTS_FIELD, Op.ENDS_FIELD))
"""Those that look at a second field, which their operand names."""

OF_WHOLE_EVENTS: Final = OF_TWO_FIELDS | {Op.EXISTS}
"""Those that the value of one field does not answer."""


class TextStep(StrEnum):
    """What is made of a text before it is compared."""

    LOWER = "lower"
    UPPER = "upper"
    TRIM = "trim"
    """Blanks at both ends go, as SQL's TRIM says."""
    SQUEEZE = "squeeze"
    """Runs of white space become one blank."""


class Predicate(msgspec.Struct, frozen=True, tag="Atom", omit_defaults=True, cache_hash=True):
    """A question about one field.

    `caseless` compares texts in lower case (`str.lower` on both sides; regular expressions by `re.IGNORECASE`).
    `absent` is the answer where the field is not there or null or is nothing that can be compared: None is SQL's
    unknown, False what Sigma means. Of a list each element is asked, and one that fits is enough; with `whole_lists`
    it is one value, its JSON text.
    """

    field: str
    op: Op
    operands: tuple[Operand, ...] = ()
    caseless: bool = False
    absent: bool | None = None
    steps: tuple[TextStep, ...] = ()
    whole_lists: bool = False
    truths: int = 0
    """Which operands are truth values, a bit for each: True is another question than 1. Atoms say it themselves."""

    def __post_init__(self) -> None:
        truths = sum(1 << place for place, one in enumerate(self.operands) if isinstance(one, bool))
        if truths != self.truths:
            msgspec.structs.force_setattr(self, "truths", truths)

    def __str__(self) -> str:
        name = self.field
        for step in self.steps:
            name = f"{step.value}({name})"
        operands = ", ".join(repr(one) for one in self.operands)
        case = " caseless" if self.caseless else ""
        return f"{name} {self.op.value}{f' ({operands})' if operands else ''}{case}"


class Truth(msgspec.Struct, frozen=True, tag=True, cache_hash=True):
    """A condition that does not look at the event; None is unknown."""

    value: bool | None

    def __str__(self) -> str:
        return "unknown" if self.value is None else str(self.value).lower()


class All(msgspec.Struct, frozen=True, tag=True, cache_hash=True):
    """All parts hold. False where one is false, else unknown where one is unknown."""

    parts: tuple[Condition, ...]

    def __str__(self) -> str:
        return f"({' AND '.join(map(str, self.parts))})"


class AnyOf(msgspec.Struct, frozen=True, tag=True, cache_hash=True):
    """One part holds. True where one is true, else unknown where one is unknown."""

    parts: tuple[Condition, ...]

    def __str__(self) -> str:
        return f"({' OR '.join(map(str, self.parts))})"


class Not(msgspec.Struct, frozen=True, tag=True, cache_hash=True):
    """The part is false; unknown stays unknown."""

    part: Condition

    def __str__(self) -> str:
        return f"NOT {self.part}"


Condition = Predicate | Truth | All | AnyOf | Not


def all_of(*parts: Condition) -> Condition:
    """The parts joined by AND, without nesting, repetition and parts that say nothing."""
    flat = _flatten(parts, All)
    if Truth(False) in flat:
        return Truth(False)
    kept = tuple(dict.fromkeys(part for part in flat if part != Truth(True)))
    return kept[0] if len(kept) == 1 else All(kept) if kept else Truth(True)


def any_of(*parts: Condition) -> Condition:
    """The parts joined by OR, without nesting, repetition and parts that say nothing."""
    flat = _flatten(parts, AnyOf)
    if Truth(True) in flat:
        return Truth(True)
    kept = tuple(dict.fromkeys(part for part in flat if part != Truth(False)))
    return kept[0] if len(kept) == 1 else AnyOf(kept) if kept else Truth(False)


def negate(part: Condition) -> Condition:
    """NOT of the part."""
    match part:
        case Truth(value=None):
            return part
        case Truth(value=value):
            return Truth(not value)
        case Not(part=inner):
            return inner
        case _:
            return Not(part)


def predicates_of(formula: Condition) -> Iterator[Predicate]:
    """The atoms of the formula from left to right, repeated as often as they stand there."""
    match formula:
        case Predicate():
            yield formula
        case All(parts=parts) | AnyOf(parts=parts):
            for part in parts:
                yield from predicates_of(part)
        case Not(part=part):
            yield from predicates_of(part)
        case Truth():
            return


def _flatten(parts: tuple[Condition, ...], kind: type[All] | type[AnyOf]) -> list[Condition]:
    flat: list[Condition] = []
    for part in parts:
        if isinstance(part, kind):
            flat += part.parts
        else:
            flat.append(part)
    return flat
