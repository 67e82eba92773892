"""GROUP BY taken apart: the keys, the sets of them that GROUPING SETS, CUBE and ROLLUP ask for, and GROUPING()."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

from millstream.streams.plan.aggregates import Expand
from millstream.streams.plan.expressions import Call, Case, Column, Expression, Literal
from millstream.streams.plan.nodes import Node
from millstream.streams.plan.types import BIGINT, BOOLEAN, INT
from millstream.streams.sql.binder.relations import fresh
from millstream.streams.sql.syntax.expressions import RowTerm, Term
from millstream.streams.sql.syntax.queries import GroupingSets, Select
from millstream.streams.sql.syntax.script import Script

__all__ = ["MAX_GROUPING_SETS", "ExpandedKeys", "expanded", "sets_of"]

MAX_GROUPING_SETS = 256
"""Copies of each row that one GROUP BY may ask for."""


def sets_of(select: Select, script: Script) -> list[list[Term]]:
    """The sets of terms that are grouped by: one for a plain GROUP BY. Raises SQL_UNSUPPORTED at too many."""
    choices: list[Sequence[tuple[Term, ...]]] = []
    for group in select.groups:
        if isinstance(group, GroupingSets):
            choices.append(group.sets)
        else:
            choices.append(((*group.values,),) if isinstance(group, RowTerm) else ((group,),))
    count = 1
    for choice in choices:
        count *= len(choice)
    if count > MAX_GROUPING_SETS:
        message = f"GROUP BY asks for {count} grouping sets; at most {MAX_GROUPING_SETS} are possible."
        raise script.error("SQL_UNSUPPORTED", message, select.groups[0].span)
    return [[term for chosen in combination for term in chosen] for combination in product(*choices)]


@dataclass(frozen=True)
class ExpandedKeys:
    """Rows copied for each grouping set: the column that stands for each key, NULL outside of its sets.

    `number` is the column that tells the sets apart.
    """

    node: Node
    columns: dict[Expression, Column]
    number: Column
    sets: tuple[frozenset[Expression], ...]

    def grouping(self, asked: Sequence[Expression], number: Column) -> Expression | None:
        """GROUPING_ID of the expressions where the column `number` tells the sets; None if one is no key."""
        return _bits(asked, number, self.sets)


def expanded(node: Node, keys: Sequence[Expression], sets: Sequence[frozenset[Expression]]) -> ExpandedKeys:
    """Each row once per set; `keys` are those that are not in all sets."""
    taken = set(node.schema.names)
    names = [fresh(key.name if isinstance(key, Column) else "key", taken) for key in keys]
    number = fresh("grouping_set", taken)
    fields = node.schema.fields
    own = tuple(Column(of.name, of.type) for of in fields)
    projections = tuple(
        (
            *own,
            *(key if key in chosen else Literal(None, key.type.as_nullable()) for key in keys),
            Literal(place, INT.as_nullable(False)),
        )
        for place, chosen in enumerate(sets)
    )
    rowtime = frozenset(of.name for of in fields if of.rowtime)
    copied = Expand(node, (*node.schema.names, *names, number), projections, rowtime)
    columns = {key: Column(name, key.type.as_nullable()) for key, name in zip(keys, names, strict=True)}
    return ExpandedKeys(copied, columns, Column(number, INT), tuple(sets))


def _bits(asked: Sequence[Expression], number: Column, sets: Sequence[frozenset[Expression]]) -> Expression | None:
    """A bit for each expression, the last one lowest: 1 in the sets without it; None if one is in no set."""
    if any(all(value not in chosen for chosen in sets) for value in asked):
        return None
    not_null = BIGINT.as_nullable(False)
    branches = []
    for place, chosen in enumerate(sets):
        bits = 0
        for value in asked:
            bits = bits * 2 + (value not in chosen)
        same = Call("=", (number, Literal(place, INT.as_nullable(False))), BOOLEAN)
        branches.append((same, Literal(bits if asked else place, not_null)))
    return Case(tuple(branches), Literal(0, not_null), not_null)
