"""Which operators run a node: plain columns, Spark's own operators on streams, or ours."""

from __future__ import annotations

from enum import Enum

from millstream.streams.plan.aggregates import Expand, WindowAggregate
from millstream.streams.plan.changelog import Changelog, changelog_of
from millstream.streams.plan.joins import Correlate, LookupJoin
from millstream.streams.plan.nodes import Filter, Node, Project, Scan, Union, Values, WindowRows, inputs_of
from millstream.streams.plan.windows import Hop, Session, Tumble

__all__ = ["Backend", "backend_of"]


class Backend(Enum):
    """What a node runs on; the values are what EXPLAIN shows."""

    COLUMNS = "columns"
    SPARK = "Spark's window"
    OWN = "own operator"


def backend_of(node: Node) -> Backend:
    """Where `node` itself runs, whatever stands above and below it, except that Spark takes one window a branch."""
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
    """Tumbling and hopping event-time windows over appended rows, without DISTINCT and without early or late firing."""
    time = node.input.schema.find(node.window.time_column)
    return (
        isinstance(node.window, Tumble | Hop)
        and node.emit is None
        and time is not None
        and time.rowtime
        and not any(call.distinct or call.order for _, call in node.aggregates)
        and changelog_of(node.input) is Changelog.APPEND
        and _is_stateless(node.input)
    )


def _is_stateless(node: Node) -> bool:
    return backend_of(node) is Backend.COLUMNS and all(map(_is_stateless, inputs_of(node)))
