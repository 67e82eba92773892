"""What the generator knows of the rows of a step: its columns, its event time, whether rows change."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from random import Random
from typing import Final

from differential.cases import Step
from differential.draws import SOURCES

__all__ = ["BASES", "Relation", "condition", "grown", "numbers", "quoted", "texts"]


@dataclass(frozen=True, slots=True)
class Relation:
    """A step, or a table by its name.

    `types` are INT, STRING or TIME by column; `time` the column that is event time. With `windows` the columns
    window_start, window_end bound windows. `key` names columns of which each value stands for one row; blank: unknown.
    `in_order`: rows of equal times come in the order of the table; behind operators with state they may not.
    """

    step: Step | str
    types: Mapping[str, str]
    time: str | None = None
    changes: bool = False
    windows: bool = False
    key: tuple[str, ...] = ()
    in_order: bool = False

    def names(self) -> tuple[str, ...]:
        """All columns."""
        return tuple(self.types)

    def depth(self) -> int:
        """How many operators it has, which makes names of new columns unlike those below."""
        return sum(1 for _ in self.step.all()) if isinstance(self.step, Step) else 0

    @property
    def mark(self) -> str:
        """Ends the names of new columns, so that they are unlike those of the steps below."""
        return str(self.depth())


def _base(name: str) -> Relation:
    source = next(one for one in SOURCES if one.name == name)
    types = {column: of.split("(")[0].split(" ")[0].replace("TIMESTAMP", "TIME") for column, of in source.columns}
    key = (source.key or "id",)
    return Relation(name, types, source.time, changes=source.key is not None, key=key, in_order=True)


BASES: Final = {source.name: _base(source.name) for source in SOURCES}
"""The tables themselves."""


def grown(kind: str, sql: str, types: Mapping[str, str], *below: Relation, **known: object) -> Relation:
    """The relation of a new step over others."""
    step = Step(kind, sql, tuple(types), tuple(one.step for one in below))
    return Relation(step, types, **known)  # type: ignore[arg-type]


def quoted(names: tuple[str, ...] | list[str], of: str = "") -> str:
    """Columns as SQL writes them, with the table's alias before each."""
    prefix = f"{of}." if of else ""
    return ", ".join(f"{prefix}`{name}`" for name in names)


def numbers(relation: Relation) -> list[str]:
    """Its columns with numbers."""
    return [name for name, of in relation.types.items() if of == "INT"]


def texts(relation: Relation) -> list[str]:
    """Its columns with texts."""
    return [name for name, of in relation.types.items() if of == "STRING"]


def condition(random: Random, relation: Relation, of: str = "") -> str:
    """A condition over some column."""
    prefix = f"{of}." if of else ""
    name = random.choice([*numbers(relation), *texts(relation)])
    column = f"{prefix}`{name}`"
    if relation.types[name] == "STRING":
        return random.choice(
            (f"{column} <> 'y'", f"{column} IS NOT NULL", f"{column} IN ('x', 'z')", f"{column} = 'x'")
        )
    bound = random.randint(0, 8)
    return random.choice(
        (
            f"{column} > {bound}",
            f"{column} <= {bound}",
            f"{column} IS NOT NULL",
            f"MOD({column}, 2) = 0",
            f"({column} IS NULL OR {column} < {bound})",
            f"NOT ({column} = {bound})",
        )
    )
