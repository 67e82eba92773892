"""Cases from seeds: a query of 2 to 4 operators that Flink takes, and rows for the tables that it reads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Final

from differential.cases import Case, Step
from differential.draws import SOURCES, draw_arrivals, draw_cuts
from differential.grown_joins import JOINS
from differential.grown_places import PLACES
from differential.grown_rows import ROWWISE
from differential.grown_sums import SUMS
from differential.relations import BASES, Relation

__all__ = ["draw_case"]

Growth = Callable[[Random, "Relation"], "Relation | None"]

_ONE_INPUT: Final[tuple[Growth, ...]] = (*ROWWISE, *SUMS, *SUMS, *PLACES, *PLACES)


def draw_case(seed: int) -> Case:
    """The case of a seed."""
    random = Random(seed)
    has_late = random.random() < 0.25
    while True:
        relation = _draw_relation(random, random.randint(2, 4), linear=has_late)
        if isinstance(relation.step, Step):
            break
    tables = relation.step.tables()
    arrivals = draw_arrivals(random, tables, has_late=has_late)
    cuts = draw_cuts(random, len(arrivals), has_late=has_late)
    sources = tuple(source for source in SOURCES if source.name in tables)
    return Case(seed, sources, arrivals, cuts, relation.step, has_late)


def _draw_relation(random: Random, count: int, *, linear: bool) -> Relation:
    """A relation of `count` operators; `linear`: one chain over one table."""
    if count == 0 and linear:
        return BASES[random.choice(("a", "a", "a", "a", "c"))]
    if count == 0:
        base = BASES[random.choice(("a", "a", "a", "b", "c"))]
        # A row that goes has its old time, which may be late whatever the new one is.
        return replace(base, time=None) if base.changes else base
    for _ in range(20):
        if not linear and random.random() < 0.4:
            left_count = random.randint(0, count - 1)
            left = _draw_relation(random, left_count, linear=False)
            right = _draw_relation(random, count - 1 - left_count, linear=False)
            found = random.choice(JOINS)(random, left, right)
        else:
            below = _draw_relation(random, count - 1, linear=linear)
            found = random.choice(_ONE_INPUT)(random, below)
        if found is not None:
            return found
    return _draw_relation(random, count - 1, linear=linear)
