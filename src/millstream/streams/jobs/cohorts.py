"""Which jobs share one query: those without state that read one table, may share, and stand at one place."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from pathlib import Path
from typing import Final

import msgspec

from millstream.streams.connectors.registry import connector_of
from millstream.streams.jobs.checkpoint import Checkpoint
from millstream.streams.jobs.cohort import shared_query
from millstream.streams.plan.branch import branch_of
from millstream.streams.plan.nodes import JobPlan, QueryPlan
from millstream.streams.plan.tables import Table
from millstream.streams.plan.user_calls import calls_users_functions

__all__ = ["MAX_SHARED", "cohorts_of", "may_share", "table_of"]

MAX_SHARED: Final = 2_000
"""Jobs of one query, at most."""

_OWN_SETTINGS = ("pipeline.name",)
"""Settings in which jobs of one query may differ."""

Plan = JobPlan | QueryPlan


def cohorts_of(plans: Sequence[Plan], names: Sequence[str], root: Path) -> list[list[int]]:
    """The places of the plans that are started together; `root` holds the checkpoints of jobs by `names`."""
    tables: list[Table] = []
    groups: dict[Hashable, list[int]] = {}
    for place, (plan, name) in enumerate(zip(plans, names, strict=True)):
        table = table_of(plan)
        if table is None or not may_share(plan):
            groups[("alone", place)] = [place]
            continue
        if table not in tables:
            tables.append(table)
        settings = tuple(sorted(item for item in plan.settings.items() if item[0] not in _OWN_SETTINGS))
        key = (tables.index(table), settings, _standing(root / name / table.name))
        group = groups.setdefault(key if None not in key else ("alone", place), [])
        if len(group) >= MAX_SHARED:
            group = groups.setdefault(("full", place // MAX_SHARED, key), [])
        group.append(place)
    return list(groups.values())


def may_share(plan: Plan) -> bool:
    """Whether a job can share a query and is told that it may."""
    settings = {name: value.lower() for name, value in plan.settings.items()}
    if settings.get("millstream.task-type") == "error-sensitive" or settings.get("execution.runtime-mode") == "batch":
        return False
    # What becomes of a bad value may be that the job ends.
    return settings.get("millstream.bad-cast", "null") == "null" and table_of(plan) is not None


def table_of(plan: Plan) -> Table | None:
    """The one table that a job without state reads, from which it only appends to others; None for other jobs."""
    if isinstance(plan, QueryPlan):
        return None
    found: Table | None = None
    for sink in plan.sinks:
        branch = branch_of(sink.input)
        if branch is None or calls_users_functions(sink.input) or sink.overwrites:
            return None
        if not connector_of(sink.table.connector).merges:
            return None
        if found is not None and branch.scan.table != found:
            return None
        found = branch.scan.table
    # A file sink tells readers which of its partitions are whole by the event time of all that it reads.
    files = any(connector_of(sink.table.connector).commits_partitions for sink in plan.sinks)
    return None if found is None or files or not connector_of(found.connector).judges else found


def _standing(directory: Path) -> Hashable:
    """Equal for jobs that can go on together; None for one that has a query of its own."""
    query = shared_query(directory)
    if query is not None:
        return query
    own = Checkpoint.find(directory)
    if own is None:
        return "fresh"
    return None if own.has_run else msgspec.json.encode(own.positions(), order="deterministic")
