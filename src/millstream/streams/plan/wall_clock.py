"""Which plans must be woken where no rows come: those that say rows because processing time goes on."""

from __future__ import annotations

from millstream.streams.plan.aggregates import WindowAggregate
from millstream.streams.plan.nodes import Node, WindowRows, inputs_of
from millstream.streams.plan.windows import Attached

__all__ = ["follows_wall_clock"]


def follows_wall_clock(node: Node) -> bool:
    """Whether something in the node's tree closes windows by processing time, or tells them early or late by it."""
    return _follows(node) or any(map(follows_wall_clock, inputs_of(node)))


def _follows(node: Node) -> bool:
    match node:
        case WindowAggregate(emit=emit) if emit is not None:
            return True
        case WindowAggregate(window=window) | WindowRows(window=window) if not isinstance(window, Attached):
            time = node.input.schema.find(window.time_column)
            return time is not None and time.proctime
        case _:
            return False
