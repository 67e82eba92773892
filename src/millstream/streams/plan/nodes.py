"""Relational nodes of the plan, each with its output schema; names in a schema are unique."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, ClassVar, cast

from millstream.streams.plan.expressions import Expression
from millstream.streams.plan.tables import Table
from millstream.streams.plan.types import STRING, TOLD_IF_SET, DataType, Field, Schema
from millstream.streams.plan.windows import Window, window_fields

__all__ = [
    "Filter",
    "FromChangelog",
    "JobPlan",
    "Node",
    "Normalize",
    "OnConflict",
    "OnePerKey",
    "Project",
    "QueryPlan",
    "Scan",
    "Sink",
    "ToChangelog",
    "Union",
    "Values",
    "Watermarked",
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


class OnConflict(Enum):
    """Which of a key's rows counts; the values are the words behind DO."""

    LAST = "DEDUPLICATE"
    FIRST = "NOTHING"
    NONE = "ERROR"


@dataclass(frozen=True, slots=True)
class OnePerKey(Node):
    """At most one row for each value of `keys`, of all that are there: the last that came, the first, or an error.

    When that row is taken back the next one counts: a table that only knew the last row would lose the key.
    """

    input: Node
    keys: tuple[str, ...]
    on_conflict: OnConflict

    @property
    def schema(self) -> Schema:
        return self.input.schema


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


@dataclass(frozen=True, slots=True)
class Watermarked(Node):
    """Each row with the watermark that it met as the column `name`: NULL before any.

    Event time moves between micro-batches, so that all rows of one meet the same.
    """

    input: Node
    name: str
    type: DataType

    @property
    def schema(self) -> Schema:
        return Schema((*self.input.schema.fields, Field(self.name, self.type)))
