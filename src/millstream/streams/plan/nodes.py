"""Relational nodes of the plan. Each knows its output schema; names in a schema are unique.

What changes a node emits is told by `millstream.streams.plan.changelog`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, cast

from millstream.streams.plan.expressions import Expression
from millstream.streams.plan.tables import Table
from millstream.streams.plan.types import Field, Schema
from millstream.streams.plan.windows import Window, window_fields

__all__ = [
    "Filter",
    "JobPlan",
    "Node",
    "Normalize",
    "Project",
    "QueryPlan",
    "Scan",
    "Sink",
    "Union",
    "Values",
    "WindowRows",
    "inputs_of",
    "scans_of",
    "with_inputs",
]


class Node:
    """What a plan is made of: rows that come of those of its inputs. `AnyNode` lists all that there are.

    Each is a frozen dataclass. What stands here is no field of theirs: checkpoints tell plans apart by their fields.
    """

    __slots__ = ()

    INPUTS: ClassVar[tuple[str, ...]] = ("input",)
    """The fields that hold the nodes right below, from left to right."""

    @property
    def schema(self) -> Schema:
        """The columns of its rows; their names differ."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class Scan(Node):
    """A table read: its physical and metadata columns that the query needs, then its computed ones, then its watermark.

    `columns` (in the table's order) are the visible columns that are read above, including the ones that only the
    computed columns and the watermark need.
    """

    INPUTS = ()

    table: Table
    columns: tuple[str, ...]

    @property
    def schema(self) -> Schema:
        wanted = set(self.columns)
        return Schema(tuple(of for of in self.table.schema.fields if of.name in wanted))


@dataclass(frozen=True, slots=True)
class Project(Node):
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
class Filter(Node):
    """The rows for which the predicate is true (not false, not NULL)."""

    input: Node
    predicate: Expression

    @property
    def schema(self) -> Schema:
        return self.input.schema


@dataclass(frozen=True, slots=True)
class WindowRows(Node):
    """A window TVF without aggregation: each row once for every window that it is in.

    Adds `window_start`, `window_end` (TIMESTAMP(3)) and `window_time` (event time, `window_end` less 1 ms).
    """

    input: Node
    window: Window

    @property
    def schema(self) -> Schema:
        return Schema((*self.input.schema.fields, *window_fields(self.input.schema, self.window)))


@dataclass(frozen=True, slots=True)
class Union(Node):
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
class Values(Node):
    """Rows that stand in the script."""

    INPUTS = ()

    # Without `field`, the property of all nodes would be its default.
    schema: Schema = field()
    rows: tuple[tuple[Expression, ...], ...]


@dataclass(frozen=True, slots=True)
class Normalize(Node):
    """The last row of each key of an input of upserts: an insert, an update with the row before, or a deletion."""

    input: Node
    keys: tuple[str, ...]

    @property
    def schema(self) -> Schema:
        return self.input.schema


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
    return node.inputs if isinstance(node, Union) else tuple(getattr(node, name) for name in node.INPUTS)


def with_inputs(node: Node, inputs: tuple[Node, ...]) -> Node:
    """The same node over other inputs, as many as `inputs_of` gives."""
    if isinstance(node, Union):
        return Union(inputs)
    changed = dict(zip(node.INPUTS, inputs, strict=True))
    return cast("Node", replace(cast("Any", node), **changed)) if changed else node


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
