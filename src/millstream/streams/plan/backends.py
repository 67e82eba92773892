"""Which operators run a node: plain columns, Spark's own operators on streams, or ours."""

from __future__ import annotations

from enum import Enum

from millstream.streams.plan.aggregates import Expand, WindowAggregate
from millstream.streams.plan.changelog import Changelog, changelog_of
from millstream.streams.plan.expressions import USER_PREFIX
from millstream.streams.plan.joins import Correlate, LookupJoin
from millstream.streams.plan.nodes import FanOut, Filter, Node, Project, Scan, Union, Values, WindowRows, inputs_of
from millstream.streams.plan.python_rows import PythonRows
from millstream.streams.plan.windows import Attached, Hop, Session, Tumble

__all__ = ["SPARK_AGGREGATES", "Backend", "backend_of", "needs_own", "why_own"]


SPARK_AGGREGATES = frozenset(
    """
    COUNT SUM SUM0 AVG MIN MAX STDDEV STDDEV_POP STDDEV_SAMP VARIANCE VAR_POP VAR_SAMP BIT_AND BIT_OR BIT_XOR
    APPROX_COUNT_DISTINCT
    """.split()
)
"""Aggregates that Spark computes with Flink's results."""


class Backend(Enum):
    """What a node runs on; the values are what EXPLAIN shows."""

    COLUMNS = "columns"
    SPARK = "Spark's window"
    OWN = "own operator"


def needs_own(node: Node) -> bool:
    """Whether something in the node's tree needs an operator of ours; then all nodes of it with state run in ours."""
    return backend_of(node) is Backend.OWN or any(map(needs_own, inputs_of(node)))


def backend_of(node: Node) -> Backend:
    """Where `node` can run, whatever stands above it."""
    match node:
        case Scan() | Values() | Project() | Filter() | Expand() | FanOut() | Union() | Correlate() | LookupJoin():
            return Backend.COLUMNS
        case PythonRows():
            return Backend.COLUMNS
        case WindowRows(window=window):
            return Backend.OWN if isinstance(window, Session) else Backend.COLUMNS
        case WindowAggregate():
            return Backend.SPARK if why_own(node) is None else Backend.OWN
        case _:
            return Backend.OWN


def why_own(node: Node) -> str | None:
    """Why a window does not run on Spark's own operators, although Spark has windows; None for all other nodes."""
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
        (changelog_of(node.input) is Changelog.RETRACT, "rows below change"),
        (not _is_plain(node.input), "more than filters and columns stands below"),
    )
    return next((reason for holds, reason in reasons if holds), None)


def _is_plain(node: Node) -> bool:
    match node:
        case Scan(table=table):
            # Spark's watermark follows the column that windows stand on, and no other expression; and it tells nobody
            # which rows were late.
            plain = table.watermark is None or table.watermark.expression is None
            return plain and "late.topic" not in table.options
        case Project() | Filter() | WindowRows(window=Tumble()):
            return _is_plain(node.input)
        case _:
            return False
