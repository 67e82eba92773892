"""Which operators run a node: plain columns, Spark's own operators on streams, or ours."""

from __future__ import annotations

from enum import Enum

from millstream.streams.plan.aggregates import Expand, WindowAggregate
from millstream.streams.plan.changelog import Changelog, changelog_of
from millstream.streams.plan.joins import Correlate, LookupJoin
from millstream.streams.plan.nodes import Filter, Node, Project, Scan, Union, Values, WindowRows, inputs_of
from millstream.streams.plan.windows import Hop, Session, Tumble

__all__ = ["SPARK_AGGREGATES", "Backend", "backend_of", "needs_own"]


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
        case Scan() | Values() | Project() | Filter() | Expand() | Union() | Correlate() | LookupJoin():
            return Backend.COLUMNS
        case WindowRows(window=window):
            return Backend.OWN if isinstance(window, Session) else Backend.COLUMNS
        case WindowAggregate():
            return Backend.SPARK if _spark_can(node) else Backend.OWN
        case _:
            return Backend.OWN


def _spark_can(node: WindowAggregate) -> bool:
    """Tumbling and hopping event-time windows that Spark does as Flink does, with nothing stateful below."""
    time = node.input.schema.find(node.window.time_column)
    calls = [call for _, call in node.aggregates]
    return (
        isinstance(node.window, Tumble | Hop)
        and node.emit is None
        and time is not None
        and time.rowtime
        and all(call.function in SPARK_AGGREGATES and not call.distinct and not call.order for call in calls)
        and changelog_of(node.input) is Changelog.APPEND
        and _is_plain(node.input)
    )


def _is_plain(node: Node) -> bool:
    match node:
        case Scan(table=table):
            # Spark's watermark follows the column that windows stand on, and no other expression.
            return table.watermark is None or table.watermark.expression is None
        case Project() | Filter() | WindowRows(window=Tumble()):
            return _is_plain(node.input)
        case _:
            return False
