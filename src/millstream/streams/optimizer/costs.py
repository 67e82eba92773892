"""What conditions cost in Spark and in a source's rule stage; measured numbers, of which only the ratio counts."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from millstream.streams.rules.conditions import All, AnyOf, Condition, Not, Truth, predicates_of
from millstream.streams.rules.predicates import Op, Predicate

__all__ = ["spark_cost_us", "stage_cost_us", "stage_is_cheaper"]

PATTERN_US: Final = 1.3
"""A regular expression on a row in Spark: 100 of them on lines of 112 characters make 7,700 rows a core and second."""

TEXT_US: Final = 0.1
"""A search for a text, or a text made smaller, on a row in Spark."""

PLAIN_US: Final = 0.02
"""A comparison on a row in Spark."""

CALL_US: Final = 2.0
"""A function that Spark asks a Python worker for, with its share of the batch's way there and back."""

STAGE_US: Final = 0.5
"""What the stage does for each row, whatever it is asked: the answers become a column, which crosses into the JVM."""

FIELD_US: Final = 1.0
"""What each field adds in the stage: its different values (here all of them, of 100 characters) are found and looked
up, 1 pattern or 1,000 in one pass."""

ATOM_US: Final = 0.01
"""What each different atom adds in the stage, where it holds for some rows."""

NEGATION_US: Final = 0.2
"""What each condition adds in the stage that may hold although none of its atoms does: it is looked at in every row."""

_TEXT_OPS = frozenset({Op.CONTAINS, Op.STARTS, Op.ENDS})


def spark_cost_us(formulas: Iterable[Condition]) -> float:
    """Microseconds a row where Spark asks each condition by itself: nothing is shared."""
    return sum(_cost_us(atom) for formula in formulas for atom in predicates_of(formula))


def stage_cost_us(formulas: Iterable[Condition]) -> float:
    """Microseconds a row where a stage asks all of them."""
    asked = tuple(formulas)
    atoms = {atom for formula in asked for atom in predicates_of(formula)}
    negations = sum(1 for formula in asked if not _needs_atom(formula))
    return STAGE_US + FIELD_US * len({atom.field for atom in atoms}) + ATOM_US * len(atoms) + NEGATION_US * negations


def stage_is_cheaper(formulas: Iterable[Condition]) -> bool:
    """Whether a source should judge the conditions itself."""
    asked = tuple(formulas)
    return stage_cost_us(asked) < spark_cost_us(asked)


def _needs_atom(formula: Condition) -> bool:
    """Whether the formula is never true unless one of its atoms is."""
    match formula:
        case Predicate(absent=absent):
            return not absent
        case All(parts=parts):
            return any(map(_needs_atom, parts))
        case AnyOf(parts=parts):
            return all(map(_needs_atom, parts))
        case Truth(value=value):
            return not value
        case Not():
            return False


def _cost_us(atom: Predicate) -> float:
    match atom.op:
        case Op.MATCHES:
            return PATTERN_US
        case Op.CALL:
            return CALL_US
        case op:
            return TEXT_US if op in _TEXT_OPS or atom.steps else PLAIN_US
