"""MATCH_RECOGNIZE nodes: the row pattern and its measures."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from millstream.streams.plan.expressions import Expression
from millstream.streams.plan.nodes import Node
from millstream.streams.plan.ordering import OrderKey
from millstream.streams.plan.types import Field, Schema

__all__ = ["Alternation", "Match", "Pattern", "Quantified", "Sequence", "Skip", "SkipMode", "Variable"]


@dataclass(frozen=True, slots=True)
class Variable:
    """One row that fits the variable's definition; a variable without a definition fits every row."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Sequence:
    """Its parts one right after another."""

    parts: tuple[Pattern, ...]

    def __str__(self) -> str:
        return f"({' '.join(map(str, self.parts))})"


@dataclass(frozen=True, slots=True)
class Alternation:
    """One of its parts, the first that leads to a match."""

    parts: tuple[Pattern, ...]

    def __str__(self) -> str:
        return f"({' | '.join(map(str, self.parts))})"


@dataclass(frozen=True, slots=True)
class Quantified:
    """A part `least` to `most` times (None: any number), as often as it can, or as seldom where not `greedy`."""

    part: Pattern
    least: int
    most: int | None
    greedy: bool = True

    def __str__(self) -> str:
        shown = {(0, None): "*", (1, None): "+", (0, 1): "?"}.get((self.least, self.most))
        if shown is None:
            most = "" if self.most is None else str(self.most)
            shown = f"{{{self.least}}}" if self.least == self.most else f"{{{self.least},{most}}}"
        return f"{self.part}{shown}{'' if self.greedy else '?'}"


Pattern = Variable | Sequence | Alternation | Quantified


class SkipMode(Enum):
    """Where the search goes on after a match."""

    PAST_LAST_ROW = "PAST LAST ROW"
    TO_NEXT_ROW = "TO NEXT ROW"
    TO_FIRST = "TO FIRST"
    TO_LAST = "TO LAST"


@dataclass(frozen=True, slots=True)
class Skip:
    """AFTER MATCH SKIP; `variable` for TO FIRST and TO LAST."""

    mode: SkipMode = SkipMode.PAST_LAST_ROW
    variable: str = ""


@dataclass(frozen=True, slots=True)
class Match(Node):
    """One row per match: the partition's columns, then the measures.

    Expressions of `defines` and `measures` read the rows of the match by calls that the binder makes, each with
    literals for its variable ("" is any row) and its offset:

    * `MATCH_FIRST(value, variable, offset)` and `MATCH_LAST(value, variable, offset)`: the value of the first or last
      row that fits the variable, `offset` rows of it further inside; NULL where there is none. A plain `A.price` is
      `MATCH_LAST(price, 'A', 0)`; in a definition of A itself the row that is tried counts as A's last.
    * `MATCH_PREV(value, offset)`, `MATCH_NEXT(value, offset)`: of the row so far before or behind in the partition.
    * `MATCH_AGGREGATE(function, variable, value)`: an aggregate over the variable's rows; COUNT(*) has no value.

    The value inside may name columns of the input and functions of them. `within_ms` None sets no limit. A variable
    that is in `unless` with another one fits no row that would fit that one in its place.
    """

    input: Node
    partition: tuple[str, ...]
    order: tuple[OrderKey, ...]
    pattern: Pattern
    defines: tuple[tuple[str, Expression], ...]
    measures: tuple[tuple[str, Expression], ...]
    skip: Skip = Skip()
    within_ms: int | None = None
    rowtime: frozenset[str] = frozenset()
    unless: tuple[tuple[str, str], ...] = ()

    @property
    def schema(self) -> Schema:
        keys = tuple(field for name in self.partition if (field := self.input.schema.find(name)) is not None)
        return Schema((*keys, *(Field(name, value.type, name in self.rowtime) for name, value in self.measures)))
