"""Which operators run a node: plain columns or ours; and which windows of batch jobs are left to Spark's own."""

from __future__ import annotations

from enum import Enum

from millstream.streams.plan.aggregates import AggregateCall, Expand, WindowAggregate
from millstream.streams.plan.changelog import Changelog, changelog_of
from millstream.streams.plan.conversions import FromChangelog, ToChangelog
from millstream.streams.plan.expressions import USER_PREFIX
from millstream.streams.plan.joins import Correlate, LookupJoin
from millstream.streams.plan.nodes import FanOut, Filter, Node, Project, Scan, Union, Values, WindowRows, inputs_of
from millstream.streams.plan.python_rows import PythonRows
from millstream.streams.plan.types import TypeKind
from millstream.streams.plan.windows import Attached, Hop, Session, Tumble

__all__ = ["SPARK_AGGREGATES", "Backend", "backend_of", "needs_own_in_batch", "why_own_in_batch"]


SPARK_AGGREGATES = frozenset("COUNT SUM SUM0 AVG MIN MAX BIT_AND BIT_OR BIT_XOR".split())
"""Aggregates that Spark computes with the results of ours, to the last bit; sums of floating-point numbers apart."""

_FLOATS = (TypeKind.FLOAT, TypeKind.DOUBLE)


class Backend(Enum):
    """What a node runs on; the values are what EXPLAIN shows."""

    COLUMNS = "columns"
    OWN = "own operator"


def needs_own_in_batch(node: Node) -> bool:
    """Whether something in the node's tree needs an operator of ours in a batch job; then all with state run in ours.

    A window of a batch job stays with Spark where that does the same: it sums up on the way, and spills to disks.
    """
    if isinstance(node, WindowAggregate) and why_own_in_batch(node) is None:
        return False
    return backend_of(node) is Backend.OWN or any(map(needs_own_in_batch, inputs_of(node)))


def backend_of(node: Node) -> Backend:
    """Where `node` can run, whatever stands above it."""
    match node:
        case Scan() | Values() | Project() | Filter() | Expand() | FanOut() | Union() | Correlate() | LookupJoin():
            return Backend.COLUMNS
        case PythonRows() | ToChangelog() | FromChangelog():
            return Backend.COLUMNS
        case WindowRows(window=window):
            return Backend.OWN if isinstance(window, Session) else Backend.COLUMNS
        case _:
            return Backend.OWN


def why_own_in_batch(node: Node) -> str | None:
    """Why a window of a batch job does not run on Spark's, although Spark has windows; None for all other nodes."""
    if not isinstance(node, WindowAggregate):
        return None
    time = node.input.schema.find(node.window.time_column)
    calls = [call for _, call in node.aggregates]
    reasons = (
        (isinstance(node.window, Attached), "the rows carry their windows already"),
        (not isinstance(node.window, Tumble | Hop), f"Spark cuts no {type(node.window).__name__.upper()} windows"),
        (node.emit is not None, "EMIT speaks beside the window's end"),
        (time is None or not time.rowtime, "the window stands on processing time"),
        (any(call.distinct for call in calls), "DISTINCT is exact"),
        (any(call.function.startswith(USER_PREFIX) for call in calls), "an aggregate is the user's, in Python"),
        (any(call.function not in SPARK_AGGREGATES for call in calls), "Spark lacks one of the aggregates"),
        (any(map(_sums_floats, calls)), "sums of floating-point numbers do not depend on the order of rows"),
        (changelog_of(node.input) is Changelog.RETRACT, "rows below change"),
        (not _is_plain(node.input), "more than filters and columns stands below"),
    )
    return next((reason for holds, reason in reasons if holds), None)


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
