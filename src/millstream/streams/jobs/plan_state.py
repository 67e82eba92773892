"""The state of a query as its checkpoint records it: operators in order, tables, sinks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from millstream.streams.errors import JobError
from millstream.streams.jobs.identity import read_identity
from millstream.streams.jobs.pipeline_directories import group_by_tables, pipeline_directories
from millstream.streams.jobs.progress import QUERY_SINK
from millstream.streams.jobs.state_fit import (
    PlannedOperator,
    PlannedSource,
    PlanState,
    StateFit,
    StateRecord,
    fit_state,
)
from millstream.streams.plan.nodes import JobPlan, Node, QueryPlan, Values, inputs_of, scans_of
from millstream.streams.plan.state_forms import form_of
from millstream.streams.plan.tables import Table
from millstream.streams.spark.operators.wirings import operators_of

__all__ = ["fits", "plan_state"]

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


def fits(place: Path, plan: JobPlan | QueryPlan) -> dict[str, StateFit]:
    """What becomes of the state of a job with a plan, by the directory of each of its queries.

    `place` is the directory of the job's checkpoint, or a savepoint. A query that has no state there yet is all new.
    Nothing is written. Raises JobError CHECKPOINT_MISMATCH where two queries have become one, or one has become two,
    and for a checkpoint of an earlier release that the plan's query was not started with since.
    """
    outputs = (
        [(QUERY_SINK, plan.query)]
        if isinstance(plan, QueryPlan)
        else [(sink.table.options.get("print-identifier") or sink.table.name, sink.input) for sink in plan.sinks]
    )
    queries = group_by_tables(outputs, lambda output: {scan.table.name for scan in scans_of(output[1])})
    names = [
        list(dict.fromkeys(scan.table.name for _, one in members for scan in scans_of(one))) for members in queries
    ]
    found = {}
    for directory, members in zip(pipeline_directories(place, names), queries, strict=True):
        identity = read_identity(directory)
        if identity is not None and identity.state is None:
            words = f"The checkpoint {directory} was written by an earlier release."
            raise JobError("CHECKPOINT_MISMATCH", words, remedy="Start the job once with its query and this release.")
        table = StateRecord() if identity is None or identity.state is None else identity.state
        found[directory.name] = fit_state(table, plan_state(members))
    return found


def _rows_of(table: Table) -> str:
    return ", ".join(f"{name}={table.options[name]}" for name in _OPTIONS_OF_ROWS if name in table.options)


def _has_script_rows(node: Node) -> bool:
    return isinstance(node, Values) or any(map(_has_script_rows, inputs_of(node)))
