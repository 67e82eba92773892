"""The changelog mode of each node: insert-only, upsert by key, or retract."""

from __future__ import annotations

from enum import Enum
from typing import cast

from millstream.streams.plan.aggregates import Aggregate, Expand, WindowAggregate
from millstream.streams.plan.expressions import Column
from millstream.streams.plan.fan_out import FanOut
from millstream.streams.plan.joins import Correlate, Join, JoinKind, LookupJoin, SetOperation, TemporalJoin
from millstream.streams.plan.nodes import (
    Filter,
    FromChangelog,
    Node,
    Normalize,
    OnePerKey,
    Project,
    Scan,
    ToChangelog,
    Union,
    Values,
    Watermarked,
    WindowRows,
)
from millstream.streams.plan.ordering import Over, Rank, Sort
from millstream.streams.plan.patterns import Match
from millstream.streams.plan.user_calls import PythonRows

__all__ = [
    "CHANGELOG_FORMATS",
    "AnyNode",
    "ChangelogMode",
    "RowKind",
    "any_node",
    "changelog_of",
    "first_by_time",
    "upsert_key_of",
]


AnyNode = (
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


def any_node(node: Node) -> AnyNode:
    """The node, as one of all kinds that there are."""
    return cast("AnyNode", node)


class RowKind(Enum):
    """What a row says: Flink's four kinds. The values travel as small numbers; the names are what users see."""

    INSERT = 0
    UPDATE_BEFORE = 1
    UPDATE_AFTER = 2
    DELETE = 3

    @property
    def short(self) -> str:
        """`+I`, `-U`, `+U` or `-D`."""
        return ("+I", "-U", "+U", "-D")[self.value]


class ChangelogMode(Enum):
    """APPEND: inserts only. RETRACT: every change of a row is told with the row before."""

    APPEND = "append"
    RETRACT = "retract"


CHANGELOG_FORMATS = frozenset(
    {"debezium-json", "debezium-avro-confluent", "canal-json", "maxwell-json", "changelog-json", "ogg-json"}
)
"""Formats whose messages say what kind of change a row is."""


def changelog_of(node: Node) -> ChangelogMode:
    """The kinds of rows that `node` emits."""
    return _changelog_of(any_node(node))


def _changelog_of(node: AnyNode) -> ChangelogMode:
    match node:
        case Scan(table=table):
            changes = table.upserts or table.options.get("format", "") in CHANGELOG_FORMATS
            return ChangelogMode.RETRACT if changes else ChangelogMode.APPEND
        case Values() | Match() | Over(whole=True) | ToChangelog():
            return ChangelogMode.APPEND
        case Over():
            return changelog_of(node.input) if _is_timed(node) else ChangelogMode.RETRACT
        case TemporalJoin(left=left):
            return changelog_of(left)
        case Aggregate() | Normalize() | OnePerKey() | SetOperation() | FromChangelog():
            return ChangelogMode.RETRACT
        case Rank():
            final = node.window_end is not None or first_by_time(node) is not None or _keeps_first(node)
            return ChangelogMode.APPEND if final else ChangelogMode.RETRACT
        case Sort():
            return ChangelogMode.RETRACT if node.limit is not None and node.order else changelog_of(node.input)
        case WindowAggregate():
            # Without EMIT a window speaks once, when no row of it comes or goes any more.
            updates = node.emit is not None and (node.emit.early_ms is not None or node.emit.late_ms is not None)
            return ChangelogMode.RETRACT if updates else ChangelogMode.APPEND
        case Join():
            inputs = {changelog_of(node.left), changelog_of(node.right)}
            final = node.bounds is not None or node.window_ends is not None
            keeps_all = node.kind in (JoinKind.INNER, JoinKind.SEMI)
            appends = inputs == {ChangelogMode.APPEND} and (final or keeps_all)
            return ChangelogMode.APPEND if appends else ChangelogMode.RETRACT
        case Union(inputs=inputs):
            appends = all(changelog_of(below) is ChangelogMode.APPEND for below in inputs)
            return ChangelogMode.APPEND if appends else ChangelogMode.RETRACT
        case (
            Project() | Filter() | Expand() | FanOut() | Correlate() | LookupJoin() | WindowRows() | PythonRows()
            | Watermarked()
        ):  # fmt: skip
            return changelog_of(node.input)


def upsert_key_of(node: Node) -> frozenset[str] | None:
    """Columns of which each value stands for one row at a time, so that the last one counts; None if none are known."""
    match node:
        case Scan(table=table):
            return frozenset(table.primary_key) if table.primary_key else None
        case Aggregate(keys=keys):
            return frozenset(name for name, _ in keys)
        case WindowAggregate(keys=keys):
            return frozenset(name for name, _ in keys) | {"window_start", "window_end"}
        case Normalize(keys=names) | OnePerKey(keys=names):
            return frozenset(names)
        case Rank():
            return _ranked_key(node)
        case Filter() | Sort() | Over() | Watermarked() | PythonRows(made=()):
            return upsert_key_of(node.input)
        case TemporalJoin(left=left):
            return upsert_key_of(left)
        case SetOperation(keep_all=False):
            return frozenset(node.schema.names)
        case Project():
            return _renamed_key(node)
        case Join(left=left, right=right, kind=kind, keys=keys):
            return _joined_key(left, right, kind, keys)
        case _:
            return None


def _renamed_key(node: Project) -> frozenset[str] | None:
    below = upsert_key_of(node.input)
    renamed = {value.name: name for name, value in reversed(node.columns) if isinstance(value, Column)}
    return frozenset(renamed[key] for key in below) if below is not None and below <= set(renamed) else None


def _ranked_key(node: Rank) -> frozenset[str] | None:
    if node.function == "ROW_NUMBER" and node.first == node.last:
        return frozenset(node.partition)
    if node.function == "ROW_NUMBER" and node.rank_name is not None:
        return frozenset((*node.partition, node.rank_name))
    return upsert_key_of(node.input)


def _is_timed(node: Over) -> bool:
    first = node.input.schema.find(node.order[0].column) if node.order else None
    return first is not None and first.is_time_attribute


def first_by_time(node: Rank) -> str | None:
    """The event time by which the first row of each key is kept of rows that only come; None for other places.

    Such a row is told once, when the watermark has come to it, so no row changes.
    """
    if node.window_end is not None or node.function != "ROW_NUMBER" or (node.first, node.last) != (1, 1):
        return None
    first = node.input.schema.find(node.order[0].column) if len(node.order) == 1 else None
    keeps_first = first is not None and first.rowtime and node.order[0].ascending
    return node.order[0].column if keeps_first and changelog_of(node.input) is ChangelogMode.APPEND else None


def _keeps_first(node: Rank) -> bool:
    """Places by ascending processing time are places by arrival: a later row moves none."""
    first = node.input.schema.find(node.order[0].column) if len(node.order) == 1 else None
    arrival = first is not None and first.proctime and node.order[0].ascending
    return arrival and node.function == "ROW_NUMBER" and changelog_of(node.input) is ChangelogMode.APPEND


def _joined_key(left: Node, right: Node, kind: JoinKind, keys: tuple[tuple[str, str], ...]) -> frozenset[str] | None:
    """Both keys together; one is enough where the other side is joined by its whole key."""
    ours, theirs = upsert_key_of(left), upsert_key_of(right)
    if kind.only_left:
        return ours
    if ours is not None and theirs is not None and theirs <= {of for _, of in keys} and not kind.keeps_right:
        return ours
    if ours is not None and theirs is not None and ours <= {of for of, _ in keys} and not kind.keeps_left:
        return theirs
    return None if ours is None or theirs is None else ours | theirs
