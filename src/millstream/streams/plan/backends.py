"""Chooses the backend of a node: columns, our operators, or Spark's operators in batch jobs.

In a batch job all rows of a table are there at once, so that a join or an aggregation over inserts alone needs no
state: Spark's own operators choose how to run it, and spill to disks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import Enum

from millstream.streams.plan.aggregates import Aggregate, AggregateCall, Expand, WindowAggregate
from millstream.streams.plan.changelog import ChangelogMode, changelog_of
from millstream.streams.plan.expressions import USER_PREFIX, Expression
from millstream.streams.plan.fan_out import FanOut
from millstream.streams.plan.joins import Correlate, Join, LookupJoin
from millstream.streams.plan.nodes import (
    Filter,
    FromChangelog,
    Node,
    Project,
    Scan,
    ToChangelog,
    Union,
    Values,
    WindowRows,
    inputs_of,
)
from millstream.streams.plan.types import TypeKind
from millstream.streams.plan.user_calls import PythonRows, has_user_call
from millstream.streams.plan.windows import Attached, Hop, Session, Tumble

__all__ = ["SPARK_AGGREGATES", "NodeBackend", "backend_of", "needs_own_in_batch", "why_own_in_batch"]


SPARK_AGGREGATES = frozenset("COUNT SUM SUM0 AVG MIN MAX BIT_AND BIT_OR BIT_XOR".split())
"""Aggregates that Spark computes with the results of ours, to the last bit; sums of floating-point numbers apart."""

_FLOATS = (TypeKind.FLOAT, TypeKind.DOUBLE)


_Reason = tuple[bool, str]
"""Whether something keeps a node from Spark's own operators, and what to say of it."""


class NodeBackend(Enum):
    """What a node runs on; the values are what EXPLAIN shows."""

    COLUMNS = "columns"
    OWN = "own operator"


def needs_own_in_batch(node: Node) -> bool:
    """Whether something in the node's tree needs an operator of ours in a batch job.

    Below such an operator joins and aggregations still run on Spark where they can; a window then runs in ours.
    """
    if isinstance(node, WindowAggregate | Join | Aggregate) and why_own_in_batch(node) is None:
        return False
    return backend_of(node) is NodeBackend.OWN or any(map(needs_own_in_batch, inputs_of(node)))


def backend_of(node: Node) -> NodeBackend:
    """Where `node` can run, whatever stands above it."""
    match node:
        case Scan() | Values() | Project() | Filter() | Expand() | FanOut() | Union() | Correlate() | LookupJoin():
            return NodeBackend.COLUMNS
        case PythonRows() | ToChangelog() | FromChangelog():
            return NodeBackend.COLUMNS
        case WindowRows(window=window):
            return NodeBackend.OWN if isinstance(window, Session) else NodeBackend.COLUMNS
        case _:
            return NodeBackend.OWN


def why_own_in_batch(node: Node) -> str | None:
    """Why a window, join or aggregation of a batch job is not run by Spark; None if it is, and for other nodes."""
    match node:
        case WindowAggregate():
            reasons = _why_own_window(node)
        case Join():
            reasons = _why_own_join(node)
        case Aggregate():
            reasons = (*_why_own_calls([call for _, call in node.aggregates]), *_why_own_grouping(node))
        case _:
            return None
    return next((reason for holds, reason in reasons if holds), None)


def _why_own_window(node: WindowAggregate) -> tuple[_Reason, ...]:
    time = node.input.schema.find(node.window.time_column)
    return (
        (isinstance(node.window, Attached), "the rows carry their windows already"),
        (not isinstance(node.window, Tumble | Hop), f"Spark cuts no {type(node.window).__name__.upper()} windows"),
        (node.emit is not None, "EMIT speaks beside the window's end"),
        (time is None or not time.rowtime, "the window stands on processing time"),
        *_why_own_calls([call for _, call in node.aggregates]),
        (changelog_of(node.input) is ChangelogMode.RETRACT, "rows below change"),
        (not _is_plain(node.input), "more than filters and columns stands below"),
    )


def _why_own_calls(calls: Sequence[AggregateCall]) -> tuple[_Reason, ...]:
    return (
        (any(call.distinct for call in calls), "DISTINCT is exact"),
        (any(call.function.startswith(USER_PREFIX) for call in calls), "an aggregate is the user's, in Python"),
        (any(call.function not in SPARK_AGGREGATES for call in calls), "Spark lacks one of the aggregates"),
        (any(map(_sums_floats, calls)), "sums of floating-point numbers do not depend on the order of rows"),
    )


def _why_own_grouping(node: Aggregate) -> tuple[_Reason, ...]:
    return (
        (any(key.type.kind in _FLOATS for _, key in node.keys), "a key is a floating-point number"),
        (any(map(has_user_call, _values_of(node))), "a user's function is called"),
        (not _inserts_in_batch(node.input), "rows below change or need operators of ours"),
    )


def _values_of(node: Aggregate) -> Iterator[Expression]:
    yield from (key for _, key in node.keys)
    for _, call in node.aggregates:
        yield from call.parts


def _why_own_join(node: Join) -> tuple[_Reason, ...]:
    left, right = node.left.schema, node.right.schema
    keys = [side.find(name) for pair in node.keys for side, name in zip((left, right), pair, strict=True)]
    return (
        (node.bounds is not None or node.window_ends is not None, "event time bounds the join"),
        (node.null_aware, "NOT IN asks what NULL would be equal to"),
        (any(key is None or key.type.kind in _FLOATS for key in keys), "a key is a floating-point number"),
        (node.condition is not None and has_user_call(node.condition), "a user's function is called"),
        (
            not (_inserts_in_batch(node.left) and _inserts_in_batch(node.right)),
            "rows below change or need operators of ours",
        ),
    )


def _inserts_in_batch(node: Node) -> bool:
    """Whether a batch job gives the node's rows as inserts, without an operator of ours."""
    match node:
        case Scan():
            return changelog_of(node) is ChangelogMode.APPEND
        case Join() | Aggregate():
            return why_own_in_batch(node) is None
        case Values() | Project() | Filter() | Expand() | Union() | Correlate() | LookupJoin() | PythonRows():
            return all(map(_inserts_in_batch, inputs_of(node)))
        case WindowRows(window=window):
            return not isinstance(window, Session) and _inserts_in_batch(node.input)
        case _:
            return False


def _sums_floats(call: AggregateCall) -> bool:
    return call.function in ("SUM", "SUM0", "AVG") and call.argument is not None and call.argument.type.kind in _FLOATS


def _is_plain(node: Node) -> bool:
    match node:
        case Scan():
            return True
        case Project() | Filter() | WindowRows(window=Tumble()):
            return _is_plain(node.input)
        case _:
            return False
