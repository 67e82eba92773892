"""Join nodes of two inputs, and lookup joins."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from millstream.streams.plan.expressions import Call, Expression
from millstream.streams.plan.nodes import Node
from millstream.streams.plan.tables import Table
from millstream.streams.plan.types import Field, Schema

__all__ = [
    "Correlate",
    "IntervalBounds",
    "Join",
    "JoinKind",
    "LookupJoin",
    "LookupSearch",
    "SearchKind",
    "SetKind",
    "SetOperation",
    "TemporalJoin",
]


class JoinKind(Enum):
    """Which rows without a partner stay; SEMI and ANTI give the left side's columns only."""

    INNER = "INNER"
    LEFT = "LEFT"
    RIGHT = "RIGHT"
    FULL = "FULL"
    SEMI = "SEMI"
    ANTI = "ANTI"

    @property
    def keeps_left(self) -> bool:
        """Whether a left row without a partner gives a row."""
        return self in (JoinKind.LEFT, JoinKind.FULL, JoinKind.ANTI)

    @property
    def keeps_right(self) -> bool:
        """Whether a right row without a partner gives a row."""
        return self in (JoinKind.RIGHT, JoinKind.FULL)

    @property
    def only_left(self) -> bool:
        """Whether the right side's columns are left out."""
        return self in (JoinKind.SEMI, JoinKind.ANTI)


@dataclass(frozen=True, slots=True)
class IntervalBounds:
    """`right_time` + `lower_ms` <= `left_time` <= `right_time` + `upper_ms`; both are time attributes."""

    left_time: str
    right_time: str
    lower_ms: int
    upper_ms: int


@dataclass(frozen=True, slots=True)
class Join(Node):
    """Pairs of rows whose `keys` are equal (NULL equals nothing) and for which `condition` holds.

    `keys` name a column of the left and one of the right input; the columns of both have different names. `bounds`
    makes it an interval join. `window_ends` names the attached windows' ends of both sides, which are among the keys
    together with their starts: a window join, final at the window's end. Without either all rows are kept (or for the
    job's TTL) and the result changes as rows come. SEMI and ANTI with `null_aware` follow NOT IN. `state_ttl_ms` is
    what a STATE_TTL hint says of the left and the right rows; None follows the job.
    """

    INPUTS = ("left", "right")

    left: Node
    right: Node
    kind: JoinKind
    keys: tuple[tuple[str, str], ...]
    condition: Expression | None = None
    bounds: IntervalBounds | None = None
    window_ends: tuple[str, str] | None = None
    null_aware: bool = False
    state_ttl_ms: tuple[int | None, int | None] | None = None

    @property
    def schema(self) -> Schema:
        left, right = self.left.schema.fields, self.right.schema.fields
        if self.kind.only_left:
            return self.left.schema
        timed = self.bounds is not None or self.window_ends is not None
        return Schema(
            (
                *_side(left, nullable=self.kind.keeps_right, timed=timed),
                *_side(right, nullable=self.kind.keeps_left, timed=timed),
            )
        )


@dataclass(frozen=True, slots=True)
class TemporalJoin(Node):
    """Each left row with the version of the right row of its key that was valid at the left row's event time.

    `right` is a stream of versions by primary key (`keys` name its columns); INNER or LEFT. Rows wait for both
    watermarks.
    """

    INPUTS = ("left", "right")

    left: Node
    right: Node
    kind: JoinKind
    keys: tuple[tuple[str, str], ...]
    left_time: str
    right_time: str
    condition: Expression | None = None

    @property
    def schema(self) -> Schema:
        right = _side(self.right.schema.fields, nullable=self.kind.keeps_left, timed=False)
        return Schema((*self.left.schema.fields, *right))


class SearchKind(Enum):
    """How rows are found where no column is equal: between two columns, in a network, by a prefix, or one by one."""

    RANGE = "RANGE"
    NETWORK = "NETWORK"
    PREFIX = "PREFIX"
    ALL = "ALL"


@dataclass(frozen=True, slots=True)
class LookupSearch:
    """The input's column `probe` among the table's `columns`: start and end of a range, or the one that is compared.

    ALL has neither. A range holds its end where `end_included`.
    """

    kind: SearchKind
    columns: tuple[str, ...] = ()
    probe: str = ""
    end_included: bool = True

    def __str__(self) -> str:
        bounds = "" if self.kind is not SearchKind.RANGE or self.end_included else ", end excluded"
        return f"{self.kind.value}({', '.join((self.probe, *self.columns))}{bounds})" if self.columns else "ALL"


@dataclass(frozen=True, slots=True)
class LookupJoin(Node):
    """Each row with the rows of `table` that its `keys` (column of the input, column of the table) find now.

    `columns` are the table's columns under the names of the output. INNER or LEFT. `hints` are those of LOOKUP(...).
    Without keys there is a `search`.
    """

    input: Node
    table: Table
    kind: JoinKind
    keys: tuple[tuple[str, str], ...]
    columns: tuple[tuple[str, str], ...]
    condition: Expression | None = None
    hints: tuple[tuple[str, str], ...] = ()
    search: LookupSearch | None = None

    @property
    def schema(self) -> Schema:
        known = {field.name: field.type for field in self.table.schema.fields}
        nullable = self.kind.keeps_left
        found = [Field(name, known[of].as_nullable() if nullable else known[of]) for name, of in self.columns]
        return Schema((*self.input.schema.fields, *found))


@dataclass(frozen=True, slots=True)
class Correlate(Node):
    """Each row with the rows that a table function or UNNEST makes of it; LEFT keeps rows for which it makes none.

    `function` returns an ARRAY whose elements are ROWs with as many fields as `names`, or else one value.
    """

    input: Node
    function: Call
    names: tuple[Field, ...]
    kind: JoinKind = JoinKind.INNER

    @property
    def schema(self) -> Schema:
        return Schema((*self.input.schema.fields, *self.names))


class SetKind(Enum):
    """The set operations that need to remember rows."""

    INTERSECT = "INTERSECT"
    EXCEPT = "EXCEPT"


@dataclass(frozen=True, slots=True)
class SetOperation(Node):
    """INTERSECT or EXCEPT of two inputs with the same columns; `keep_all` is ALL, which counts equal rows."""

    INPUTS = ("left", "right")

    left: Node
    right: Node
    kind: SetKind
    keep_all: bool = False

    @property
    def schema(self) -> Schema:
        return self.left.schema


def _side(fields: tuple[Field, ...], *, nullable: bool, timed: bool) -> tuple[Field, ...]:
    """One side's columns above a join. Only joins that are bounded in time keep event-time attributes."""
    return tuple(
        Field(of.name, of.type.as_nullable() if nullable else of.type, of.rowtime and timed, of.proctime)
        for of in fields
    )
