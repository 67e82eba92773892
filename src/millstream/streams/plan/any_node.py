"""All kinds of nodes as one type, so that a `match` that leaves one out is found by mypy."""

from __future__ import annotations

from typing import cast

from millstream.streams.plan.aggregates import Aggregate, Expand, WindowAggregate
from millstream.streams.plan.conflicts import OnePerKey
from millstream.streams.plan.conversions import FromChangelog, ToChangelog
from millstream.streams.plan.fan_out import FanOut
from millstream.streams.plan.joins import Correlate, Join, LookupJoin, SetOperation, TemporalJoin
from millstream.streams.plan.nodes import Filter, Node, Normalize, Project, Scan, Union, Values, WindowRows
from millstream.streams.plan.ordering import Over, Rank, Sort
from millstream.streams.plan.patterns import Match
from millstream.streams.plan.python_rows import PythonRows
from millstream.streams.plan.watermarked import Watermarked

__all__ = ["AnyNode", "any_node"]

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
