"""Formulas made smaller by what is known: without NOT but at atoms, with known atoms replaced, and with their keys."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from millstream.streams.rules.conditions import All, AnyOf, Condition, Not, Truth, all_of, any_of
from millstream.streams.rules.predicates import OF_WHOLE_EVENTS, Op, Predicate

__all__ = ["keys_of", "pins_of", "positive", "reduce_condition"]


def positive(formula: Condition, *, wanted: bool = True) -> Condition:
    """A formula that is true exactly where the given one is `wanted`, with NOT only at atoms.

    Where it holds is all that counts: unknown and false are one, so an atom in it holds where it is true, and the NOT
    of one where it is false.
    """
    match formula:
        case Predicate():
            return formula if wanted else Not(formula)
        case Truth(value=value):
            return Truth(value is wanted)
        case Not(part=part):
            return positive(part, wanted=not wanted)
        case All(parts=parts) | AnyOf(parts=parts):
            joined = all_of if isinstance(formula, All) is wanted else any_of
            return joined(*(positive(part, wanted=wanted) for part in parts))


def reduce_condition(formula: Condition, known: Mapping[Predicate, bool | None]) -> Condition:
    """What is left of a positive formula where these atoms have these answers."""
    match formula:
        case Predicate():
            return Truth(known[formula] is True) if formula in known else formula
        case Not(part=Predicate() as atom):
            return Truth(known[atom] is False) if atom in known else formula
        case All(parts=parts):
            return all_of(*(reduce_condition(part, known) for part in parts))
        case AnyOf(parts=parts):
            return any_of(*(reduce_condition(part, known) for part in parts))
        case _:
            return formula


def pins_of(formula: Condition) -> dict[str, frozenset[Predicate]]:
    """For each field that a positive formula pins: its atoms IN and IS_NULL, one of which must hold for it to hold."""
    match formula:
        case Predicate(op=Op.IN | Op.IS_NULL, absent=absent) if absent is not True:
            return {formula.field: frozenset({formula})}
        case All(parts=parts):
            pins: dict[str, frozenset[Predicate]] = {}
            for part in parts:
                for field, atoms in pins_of(part).items():
                    pins[field] = min(pins.get(field, atoms), atoms, key=len)
            return pins
        case AnyOf(parts=parts):
            each = [pins_of(part) for part in parts]
            shared = set(each[0]).intersection(*each[1:]) if each else set()
            return {field: frozenset().union(*(one[field] for one in each)) for field in shared}
        case _:
            return {}


def keys_of(formula: Condition, cost: Callable[[Predicate], float]) -> tuple[float, frozenset[Predicate]] | None:
    """Atoms, one of which must be true for a positive formula to hold, cheapest by the sum of their costs.

    None where there are none: the formula may hold where nothing is found.
    """
    match formula:
        case Predicate(op=op) if op in OF_WHOLE_EVENTS:
            return None
        case Predicate():
            return cost(formula), frozenset({formula})
        case All(parts=parts):
            keyed = [found for part in parts if (found := keys_of(part, cost)) is not None]
            return min(keyed, key=lambda found: found[0], default=None)
        case AnyOf(parts=parts):
            all_keyed = [keys_of(part, cost) for part in parts]
            if any(found is None for found in all_keyed):
                return None
            atoms = frozenset().union(*(found[1] for found in all_keyed if found is not None))
            return sum(map(cost, atoms)), atoms
        case _:
            return None
