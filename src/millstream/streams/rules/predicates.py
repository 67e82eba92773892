"""What a rule asks of one field: the smallest part of a condition, which rules share.

Two atoms that ask the same are equal, so a set of them holds each question once. The values of an atom say what it
compares as: a text with a text (a number in an event by its JSON text), a number with a number (a text by the number
that it spells).
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

import msgspec

__all__ = ["OF_TWO_FIELDS", "OF_WHOLE_EVENTS", "Op", "Operand", "Predicate", "TextStep"]

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
