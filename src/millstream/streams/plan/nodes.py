"""Relational nodes of the plan. Each knows its output schema; names in a schema are unique.

What changes a node emits is told by `millstream.streams.plan.changelog`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from millstream.streams.plan.aggregates import Aggregate, AggregateCall, Expand, WindowAggregate
from millstream.streams.plan.conflicts import OnePerKey
from millstream.streams.plan.conversions import FromChangelog, ToChangelog
from millstream.streams.plan.expressions import Expression
from millstream.streams.plan.fan_out import FanOut
from millstream.streams.plan.joins import Correlate, Join, LookupJoin, SetOperation, TemporalJoin
from millstream.streams.plan.ordering import Over, Rank, Sort
from millstream.streams.plan.patterns import Match
from millstream.streams.plan.python_rows import PythonRows
from millstream.streams.plan.tables import Table
from millstream.streams.plan.types import Field, Schema
from millstream.streams.plan.watermarked import Watermarked
from millstream.streams.plan.windows import Tumble, Window, window_fields

__all__ = [
    "Aggregate",
    "AggregateCall",
    "FanOut",
    "Filter",
    "JobPlan",
    "Node",
    "Normalize",
    "Project",
    "QueryPlan",
    "Scan",
    "Sink",
    "Tumble",
    "Union",
    "Values",
    "WindowAggregate",
    "WindowRows",
    "inputs_of",
    "scans_of",
    "with_inputs",
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
    """Named expressions over the input. `rowtime` and `proctime` list the outputs that stay time attributes."""

    input: Node
    columns: tuple[tuple[str, Expression], ...]
    rowtime: frozenset[str] = frozenset()
    proctime: frozenset[str] = frozenset()

    @property
    def schema(self) -> Schema:
        return Schema(
            tuple(Field(name, value.type, name in self.rowtime, name in self.proctime) for name, value in self.columns)
        )


@dataclass(frozen=True, slots=True)
class Filter:
    """The rows for which the predicate is true (not false, not NULL)."""

    input: Node
    predicate: Expression

    @property
    def schema(self) -> Schema:
        return self.input.schema


@dataclass(frozen=True, slots=True)
class WindowRows:
    """A window TVF without aggregation: each row once for every window that it is in.

    Adds `window_start`, `window_end` (TIMESTAMP(3)) and `window_time` (event time, `window_end` less 1 ms).
    """

    input: Node
    window: Window

    @property
    def schema(self) -> Schema:
        return Schema((*self.input.schema.fields, *window_fields(self.input.schema, self.window)))


@dataclass(frozen=True, slots=True)
class Union:
    """The rows of all inputs, which have the same columns."""

    inputs: tuple[Node, ...]

    @property
    def schema(self) -> Schema:
        """The first input's; a column may be NULL if it may be in any, and is a time attribute if it is one of all."""
        columns = zip(*(node.schema.fields for node in self.inputs), strict=True)
        return Schema(
            tuple(
                Field(
                    same[0].name,
                    same[0].type.as_nullable(any(of.type.nullable for of in same)),
                    all(of.rowtime for of in same),
                    all(of.proctime for of in same),
                )
                for same in columns
            )
        )


@dataclass(frozen=True, slots=True)
class Values:
    """Rows that stand in the script."""

    schema: Schema
    rows: tuple[tuple[Expression, ...], ...]


@dataclass(frozen=True, slots=True)
class Normalize:
    """The last row of each key of an input of upserts: an insert, an update with the row before, or a deletion."""

    input: Node
    keys: tuple[str, ...]

    @property
    def schema(self) -> Schema:
        return self.input.schema


Node = (
    Scan
    | Values
    | Project
    | Filter
    | Expand
    | FanOut
    | Union
    | Correlate
    | LookupJoin
    | WindowRows
    | WindowAggregate
    | Aggregate
    | Normalize
    | OnePerKey
    | ToChangelog
    | FromChangelog
    | Rank
    | Over
    | Sort
    | Match
    | Join
    | TemporalJoin
    | SetOperation
    | PythonRows
    | Watermarked
)


@dataclass(frozen=True, slots=True)
class Sink:
    """An INSERT: the rows of `input`, whose columns have the names and types of `table.writable`, in order.

    `overwrites` is INSERT OVERWRITE: what the table (or a partition that gets rows) held before is gone. `fixed` are
    the columns whose values PARTITION (...) gives.
    """

    table: Table
    input: Node
    overwrites: bool = False
    fixed: tuple[str, ...] = ()


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


def inputs_of(node: Node) -> tuple[Node, ...]:
    """The nodes right below, from left to right."""
    match node:
        case Scan() | Values():
            return ()
        case Union(inputs=inputs):
            return inputs
        case Join(left=left, right=right) | TemporalJoin(left=left, right=right) | SetOperation(left=left, right=right):
            return left, right
        case _:
            return (node.input,)


def with_inputs(node: Node, inputs: tuple[Node, ...]) -> Node:
    """The same node over other inputs, as many as `inputs_of` gives."""
    match node:
        case Scan() | Values():
            return node
        case Union():
            return Union(inputs)
        case Join() | TemporalJoin() | SetOperation():
            return replace(node, left=inputs[0], right=inputs[1])
        case _:
            return replace(node, input=inputs[0])


def scans_of(node: Node) -> Iterator[Scan]:
    """All table reads below (and including) `node`."""
    if isinstance(node, Scan):
        yield node
    for below in inputs_of(node):
        yield from scans_of(below)


def scans_of_plan(plan: JobPlan | QueryPlan) -> list[Scan]:
    """All table reads of a job or a query."""
    roots = [sink.input for sink in plan.sinks] if isinstance(plan, JobPlan) else [plan.query]
    return [scan for root in roots for scan in scans_of(root)]
