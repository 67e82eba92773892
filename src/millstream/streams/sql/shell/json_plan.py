"""EXPLAIN JSON_EXECUTION_PLAN: the nodes of a plan as JSON, each with the numbers of those below it."""

from __future__ import annotations

import json
from collections.abc import Sequence

from millstream.streams.plan.changelog import changelog_of
from millstream.streams.plan.nodes import Node, inputs_of
from millstream.streams.sql.shell.explain import explain_node

__all__ = ["json_plan"]


def json_plan(roots: Sequence[Node]) -> str:
    """{"nodes": [{"id", "type", "contents", "changelog", "predecessors"}]}, inputs before what reads them."""
    nodes: list[dict[str, object]] = []
    for root in roots:
        _number(root, nodes)
    return json.dumps({"nodes": nodes}, indent=2)


def _number(node: Node, nodes: list[dict[str, object]]) -> int:
    below = [_number(part, nodes) for part in inputs_of(node)]
    nodes.append(
        {
            "id": len(nodes) + 1,
            "type": type(node).__name__,
            "contents": explain_node(node)[0],
            "changelog": changelog_of(node).value,
            "predecessors": below,
        }
    )
    return len(nodes)
