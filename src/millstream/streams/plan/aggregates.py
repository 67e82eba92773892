"""Aggregation nodes: with a window, without one, and the expansion of grouping sets."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from millstream.streams.plan.expressions import Expression
from millstream.streams.plan.nodes import Node
from millstream.streams.plan.types import DataType, Field, Schema
from millstream.streams.plan.windows import Emit, Window, window_fields

__all__ = ["Aggregate", "AggregateCall", "Expand", "WindowAggregate"]


@dataclass(frozen=True, slots=True)
class AggregateCall:
    """One aggregate of the registry. `argument` None counts rows; `more` are the arguments behind it.

    `filter` is FILTER (WHERE ...).
    """

    function: str
    argument: Expression | None
    type: DataType
    distinct: bool = False
    filter: Expression | None = None
    more: tuple[Expression, ...] = ()

    @property
    def parts(self) -> tuple[Expression, ...]:
        """Every expression that it reads."""
        return tuple(part for part in (self.argument, *self.more, self.filter) if part is not None)

    def over_parts(self, parts: Iterator[Expression]) -> AggregateCall:
        """The same call over other expressions, as many as `parts` has and in that order."""
        return replace(
            self,
            argument=None if self.argument is None else next(parts),
            more=tuple(next(parts) for _ in self.more),
            filter=None if self.filter is None else next(parts),
        )

    def __str__(self) -> str:
        inside = ", ".join(map(str, (self.argument, *self.more)))
        if self.argument is None:
            inside = "*" if self.function == "COUNT" else ""
        text = f"{self.function}({'DISTINCT ' if self.distinct else ''}{inside})"
        return f"{text} FILTER (WHERE {self.filter})" if self.filter is not None else text


@dataclass(frozen=True, slots=True)
class WindowAggregate(Node):
    """One row per key and window, emitted when the watermark passes the window's end, and as `emit` says.

    Output: the keys, the aggregates, then `window_start`, `window_end`, `window_time`. TVF and group-window
    spellings are bound to this one node. It appends unless `emit` speaks early or late; then it updates.
    """

    input: Node
    window: Window
    keys: tuple[tuple[str, Expression], ...]
    aggregates: tuple[tuple[str, AggregateCall], ...]
    emit: Emit | None = None

    @property
    def schema(self) -> Schema:
        return Schema((*_fields_of(self.keys, self.aggregates), *window_fields(self.input.schema, self.window)))


@dataclass(frozen=True, slots=True)
class Aggregate(Node):
    """One row per key over all rows so far, which changes as rows come; one row in all where there are no keys.

    SELECT DISTINCT is this without aggregates. Output: the keys, then the aggregates. `state_ttl_ms` is what a
    STATE_TTL hint says; None follows the job.
    """

    input: Node
    keys: tuple[tuple[str, Expression], ...]
    aggregates: tuple[tuple[str, AggregateCall], ...]
    state_ttl_ms: int | None = None

    @property
    def schema(self) -> Schema:
        return Schema(_fields_of(self.keys, self.aggregates))


@dataclass(frozen=True, slots=True)
class Expand(Node):
    """Each row once per projection, as GROUPING SETS, CUBE and ROLLUP need it; all have the columns of `names`."""

    input: Node
    names: tuple[str, ...]
    projections: tuple[tuple[Expression, ...], ...]
    rowtime: frozenset[str] = frozenset()

    @property
    def schema(self) -> Schema:
        types = [value.type.as_nullable() for value in self.projections[0]]
        pairs = zip(self.names, types, strict=True)
        return Schema(tuple(Field(name, of, name in self.rowtime) for name, of in pairs))


def _fields_of(
    keys: tuple[tuple[str, Expression], ...], aggregates: tuple[tuple[str, AggregateCall], ...]
) -> tuple[Field, ...]:
    return (*(Field(name, key.type) for name, key in keys), *(Field(name, call.type) for name, call in aggregates))
