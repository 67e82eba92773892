"""Changes as rows that say what they are, and rows that say so as changes: Flink's TO_CHANGELOG and FROM_CHANGELOG."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from millstream.streams.plan.nodes import Node
from millstream.streams.plan.types import STRING, TOLD_IF_SET, Field, Schema

__all__ = ["FromChangelog", "ToChangelog"]


@dataclass(frozen=True, slots=True)
class ToChangelog(Node):
    """Each change of the input as a new row, with the code of its kind in the column `op`.

    `codes` are by the numbers of `RowKind`; changes of other kinds are left out. The columns `first` stand before `op`,
    the others behind it; none is a time attribute any more.
    """

    input: Node
    op: str
    codes: tuple[tuple[int, str], ...]
    first: tuple[str, ...] = ()

    @property
    def schema(self) -> Schema:
        first, others = _split_fields(self.input.schema, self.first)
        return Schema((*first, Field(self.op, STRING), *others))


@dataclass(frozen=True, slots=True)
class FromChangelog(Node):
    """Each row of the input as the change that its column `op` says: `kinds` are numbers of `RowKind` by code.

    A row with another code ends the job if it `fails`, else it is left out. `op` is no column of the output; none is a
    time attribute any more.
    """

    input: Node
    op: str
    kinds: tuple[tuple[str, int], ...]
    first: tuple[str, ...] = ()
    fails: bool = field(default=False, metadata=TOLD_IF_SET)

    @property
    def schema(self) -> Schema:
        first, others = _split_fields(self.input.schema, self.first)
        return Schema(tuple(of for of in (*first, *others) if of.name != self.op))


def _split_fields(schema: Schema, first: tuple[str, ...]) -> tuple[list[Field], list[Field]]:
    fields = [replace(of, rowtime=False, proctime=False) for of in schema.fields]
    places = {name: place for place, name in enumerate(first)}
    chosen = sorted((of for of in fields if of.name in places), key=lambda of: places[of.name])
    return chosen, [of for of in fields if of.name not in places]
