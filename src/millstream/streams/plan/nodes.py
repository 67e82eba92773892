"""Relational nodes of the plan. Each knows its output schema; names in a schema are unique.

Every node of this first set emits appended rows only (insert-only changelog).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from millstream.streams.plan.expressions import Expression
from millstream.streams.plan.tables import Table
from millstream.streams.plan.types import DataType, Field, Schema

__all__ = [
    "AggregateCall",
    "Filter",
    "JobPlan",
    "Node",
    "Project",
    "QueryPlan",
    "Scan",
    "Sink",
    "Tumble",
    "WindowAggregate",
    "WindowRows",
    "scans_of",
]


@dataclass(frozen=True, slots=True)
class Scan:
    """A table read: its physical and metadata columns that the query needs, then its computed ones, then its watermark.

    `columns` (in the table's order) are the visible columns that are read above, including the ones that only the
    computed columns and the watermark need.
    """

    table: Table
    columns: tuple[str, ...]

    @property
    def schema(self) -> Schema:
        wanted = set(self.columns)
        return Schema(tuple(field for field in self.table.schema.fields if field.name in wanted))


@dataclass(frozen=True, slots=True)
class Project:
    """Named expressions over the input. `rowtime` lists the outputs that stay event-time attributes."""

    input: Node
    columns: tuple[tuple[str, Expression], ...]
    rowtime: frozenset[str] = frozenset()

    @property
    def schema(self) -> Schema:
        return Schema(tuple(Field(name, value.type, name in self.rowtime) for name, value in self.columns))


@dataclass(frozen=True, slots=True)
class Filter:
    """The rows for which the predicate is true (not false, not NULL)."""

    input: Node
    predicate: Expression

    @property
    def schema(self) -> Schema:
        return self.input.schema


@dataclass(frozen=True, slots=True)
class Tumble:
    """Windows of `size_ms`, one after another, aligned to 1970 plus `offset_ms`, over an event-time column."""

    time_column: str
    size_ms: int
    offset_ms: int = 0


@dataclass(frozen=True, slots=True)
class WindowRows:
    """A window TVF without aggregation: each row with the bounds of its window.

    Adds `window_start`, `window_end` (TIMESTAMP(3)) and `window_time` (event time, `window_end` less 1 ms).
    """

    input: Node
    window: Tumble

    @property
    def schema(self) -> Schema:
        return Schema((*self.input.schema.fields, *window_fields(self.input.schema, self.window)))


@dataclass(frozen=True, slots=True)
class AggregateCall:
    """One aggregate: COUNT (`argument` None counts rows), SUM, AVG, MIN, MAX; `filter` is FILTER (WHERE ...)."""

    function: str
    argument: Expression | None
    type: DataType
    distinct: bool = False
    filter: Expression | None = None

    def __str__(self) -> str:
        inside = "*" if self.argument is None else str(self.argument)
        text = f"{self.function}({'DISTINCT ' if self.distinct else ''}{inside})"
        return f"{text} FILTER (WHERE {self.filter})" if self.filter is not None else text


@dataclass(frozen=True, slots=True)
class WindowAggregate:
    """One row per key and window, emitted when the watermark passes the window's end.

    Output: the keys, the aggregates, then `window_start`, `window_end`, `window_time`. TVF and group-window
    spellings are bound to this one node.
    """

    input: Node
    window: Tumble
    keys: tuple[tuple[str, Expression], ...]
    aggregates: tuple[tuple[str, AggregateCall], ...]

    @property
    def schema(self) -> Schema:
        return Schema(
            (
                *(Field(name, key.type) for name, key in self.keys),
                *(Field(name, call.type) for name, call in self.aggregates),
                *window_fields(self.input.schema, self.window),
            )
        )


Node = Scan | Project | Filter | WindowRows | WindowAggregate


@dataclass(frozen=True, slots=True)
class Sink:
    """An INSERT: the rows of `input`, whose columns have the names and types of `table.writable`, in order."""

    table: Table
    input: Node


@dataclass(frozen=True, slots=True)
class JobPlan:
    """What runs as one job: the INSERTs of one statement set, or a single INSERT. `settings` come from SET."""

    sinks: tuple[Sink, ...]
    settings: dict[str, str]


@dataclass(frozen=True, slots=True)
class QueryPlan:
    """A SELECT whose rows are shown to the user."""

    query: Node
    settings: dict[str, str]


def window_fields(schema: Schema, window: Tumble) -> tuple[Field, Field, Field]:
    """The three columns that a window adds; their type follows the time column's (without or with local zone)."""
    time = schema.find(window.time_column)
    if time is None:
        raise ValueError(f"no column {window.time_column!r} under the window")
    bound = DataType(time.type.kind, nullable=False, precision=3)
    return (
        Field("window_start", bound),
        Field("window_end", bound),
        Field("window_time", bound, rowtime=True),
    )


def scans_of(node: Node) -> Iterator[Scan]:
    """All table reads below (and including) `node`."""
    if isinstance(node, Scan):
        yield node
    else:
        yield from scans_of(node.input)
