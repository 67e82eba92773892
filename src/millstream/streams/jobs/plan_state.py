"""What a query keeps, as its checkpoint knows it: its operators in the order in which they run, tables, sinks."""

from __future__ import annotations

from collections.abc import Sequence

from millstream.streams.jobs.state_fit import PlannedOperator, PlannedSource, PlanState
from millstream.streams.plan.nodes import Node, Values, inputs_of, scans_of
from millstream.streams.plan.state_forms import form_of
from millstream.streams.plan.tables import Table
from millstream.streams.spark.operators.wirings import operators_of

__all__ = ["plan_state"]

_OPTIONS_OF_ROWS = ("connector", "topic", "path", "index", "query", "table-name", "scan.partition.column")
"""Options of a table that say which rows there are; with others its positions mean other rows."""


def plan_state(outputs: Sequence[tuple[str, Node]]) -> PlanState:
    """The state of a query of these outputs, by the names of their sinks."""
    operators = []
    for sink, root in outputs:
        for node in operators_of(root):
            form = form_of(node)
            assert form is not None, type(node)
            operators.append(PlannedOperator(form, (sink,), type(node).__name__.lower()))
    tables = {scan.table.name: scan.table for _, node in outputs for scan in scans_of(node)}
    return PlanState(
        tuple(operators),
        tuple(PlannedSource(table.name, _rows_of(table)) for table in tables.values()),
        tuple(sink for sink, _ in outputs),
        any(map(_has_script_rows, (node for _, node in outputs))),
    )


def _rows_of(table: Table) -> str:
    return ", ".join(f"{name}={table.options[name]}" for name in _OPTIONS_OF_ROWS if name in table.options)


def _has_script_rows(node: Node) -> bool:
    return isinstance(node, Values) or any(map(_has_script_rows, inputs_of(node)))
