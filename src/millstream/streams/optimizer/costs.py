"""What conditions cost in Spark and in a source's rule stage; measured numbers, of which only the ratio counts."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from millstream.streams.rules.atoms import Atom, Op
from millstream.streams.rules.formulas import Formula, atoms_of

__all__ = ["spark_cost_us", "stage_cost_us", "stage_is_cheaper"]

PATTERN_US: Final = 1.3
"""A regular expression on a row in Spark: 100 of them on lines of 112 characters make 7,700 rows a core and second."""

TEXT_US: Final = 0.1
"""A search for a text, or a text made smaller, on a row in Spark."""

PLAIN_US: Final = 0.02
"""A comparison on a row in Spark."""

CALL_US: Final = 2.0
"""A function that Spark asks a Python worker for, with its share of the batch's way there and back."""

STAGE_US: Final = 1.0
"""What the stage does for each row, whatever it is asked: the answers become a column."""

FIELD_US: Final = 1.0
"""What each field adds in the stage: its different values are found and looked up, all atoms of it together."""

ATOM_US: Final = 0.002
"""What each different atom adds in the stage; engines take all patterns of a field in one pass."""

_TEXT_OPS = frozenset({Op.CONTAINS, Op.STARTS, Op.ENDS})


def spark_cost_us(formulas: Iterable[Formula]) -> float:
    """Microseconds a row where Spark asks each condition by itself: nothing is shared."""
    return sum(_cost_us(atom) for formula in formulas for atom in atoms_of(formula))


def stage_cost_us(formulas: Iterable[Formula]) -> float:
    """Microseconds a row where a stage asks all of them."""
    atoms = {atom for formula in formulas for atom in atoms_of(formula)}
    return STAGE_US + FIELD_US * len({atom.field for atom in atoms}) + ATOM_US * len(atoms)


def stage_is_cheaper(formulas: Iterable[Formula]) -> bool:
    """Whether a source should judge the conditions itself."""
    asked = tuple(formulas)
    return stage_cost_us(asked) < spark_cost_us(asked)


def _cost_us(atom: Atom) -> float:
    match atom.op:
        case Op.MATCHES:
            return PATTERN_US
        case Op.CALL:
            return CALL_US
        case op:
            return TEXT_US if op in _TEXT_OPS or atom.steps else PLAIN_US
