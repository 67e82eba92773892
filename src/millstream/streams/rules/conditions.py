"""The condition of a rule: atoms joined by AND, OR and NOT in SQL's three-valued logic."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from millstream.streams.rules.predicates import Predicate

__all__ = ["All", "AnyOf", "Condition", "Not", "Truth", "all_of", "any_of", "negate", "predicates_of"]


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
