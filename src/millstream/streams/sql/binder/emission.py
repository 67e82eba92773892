"""EMIT: when windows speak beside their end, as rsqldb and Blink write it behind an INSERT."""

from __future__ import annotations

from dataclasses import replace

from millstream.streams.plan.aggregates import WindowAggregate
from millstream.streams.plan.joins import Join, TemporalJoin
from millstream.streams.plan.nodes import Node, WindowRows, inputs_of, with_inputs
from millstream.streams.plan.ordering import Over, Rank
from millstream.streams.plan.patterns import Match
from millstream.streams.plan.windows import Attached, Emit, Session

__all__ = ["with_emit"]


def with_emit(node: Node, emit: Emit) -> Node:
    """The same plan, in which windows speak as `emit` says, as far as their rows may change.

    Sessions speak at their end only, and so do windows under what needs final rows: other windows, OVER, patterns,
    joins in time and places in a window.
    """
    match node:
        case WindowAggregate(window=Session() | Attached()) | Over() | Match() | TemporalJoin() | WindowRows():
            return node
        case WindowAggregate():
            return replace(node, emit=emit)
        case Rank() if node.window_end is not None:
            return node
        case Join() if node.bounds is not None or node.window_ends is not None:
            return node
    inputs = inputs_of(node)
    return with_inputs(node, tuple(with_emit(below, emit) for below in inputs)) if inputs else node
