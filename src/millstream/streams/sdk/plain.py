"""Plans without projections that change nothing."""

from __future__ import annotations

from millstream.streams.plan.expressions import Column
from millstream.streams.plan.nodes import Node, Project, inputs_of, with_inputs

__all__ = ["plain"]


def plain(node: Node) -> Node:
    """The same rows without the projections that only list the columns of their input in its order."""
    inputs = inputs_of(node)
    below = with_inputs(node, tuple(map(plain, inputs))) if inputs else node
    return below.input if isinstance(below, Project) and _changes_nothing(below) else below


def _changes_nothing(node: Project) -> bool:
    same = all(isinstance(value, Column) and value.name == name for name, value in node.columns)
    return same and node.schema == node.input.schema
